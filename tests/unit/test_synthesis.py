"""Synthesis of schedules: figures of TACCL's topologies, the simulator, the switch as a node, MSCCL, bad input."""

import dataclasses
import json
import re
import sys
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

from switchml.commands.root import cli
from switchml.common import schedules
from switchml.common.errors import DrawingError, NoRouteError, ScheduleError, SketchError, SolverError
from switchml.common.installation import install_command
from switchml.common.schedules import COLLECTIVES, Schedule, Send
from switchml.topologies.synthesis import msccl, routing, simulate, sketch, timeline
from switchml.topologies.synthesis.sketch import PACKAGED, SketchedNetwork
from switchml.topologies.synthesis.synthesize import Synthesis, synthesize

SECONDS = 120.0  # these searches take a second or two

needs_solver = pytest.mark.skipif(
    __import__("importlib.util").util.find_spec("highspy") is None, reason="highspy is not installed"
)


def content(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((PACKAGED / f"{name}.json").read_text())
    return read


def written(tmp_path: Path, topology: dict[str, Any], sketched: dict[str, Any]) -> SketchedNetwork:
    for name, one in (("topology", topology), ("sketch", sketched)):
        (tmp_path / f"{name}.json").write_text(json.dumps(one))
    return sketch.load(str(tmp_path / "topology.json"), str(tmp_path / "sketch.json"))


def small(tmp_path: Path, hosts: int, parts: int = 1, **topology: Any) -> SketchedNetwork:
    """Return hosts of two GPUs, of which GPU 0 sends to GPU 1 of other hosts, and is attached to a switch."""
    return written(
        tmp_path,
        {
            "name": "small", "gpus_per_node": 2, "nics_per_node": 1, "node_betas_list": [4], "node_invbws_list": [5],
            "remote_beta": 20, "remote_invbw": 21, "aggregation_switch": {"gpus": [0], "alpha": 1, "beta": 20},
        } | topology,
        {
            "nnodes": hosts, "intranode_sketch": {"strategy": "none"},
            "internode_sketch": {"strategy": "relay", "internode_conn": {"0": [1]}},
            "symmetry_offsets": [[2, 2 * hosts]], "hyperparameters": {"input_chunkup": parts},
        },
    )  # fmt: skip


# ---- TACCL's topologies ----------------------------------------------------------------------------------------------


@needs_solver
@pytest.mark.parametrize(
    ("topology", "name", "relaxed", "makespan", "ring"),
    [
        ("ndv2-1mb", "ndv2-x1", 69, 92, 161),
        ("ndv2-1mb", "ndv2-x2", 856, 1155, 1605),
        ("dgx2-1mb", "dgx2-x1", 120, 120, 120),
    ],
)
def test_all_gathers_of_taccls_topologies(
    topology: str, name: str, relaxed: float, makespan: float, ring: float
) -> None:
    found = synthesize(sketch.load(topology, name), "all-gather", SECONDS)
    assert found.best.relaxed == relaxed
    assert found.best.proven
    assert relaxed <= found.best.makespan <= makespan
    assert found.ring == ring


@needs_solver
def test_routes_are_symmetric_under_the_offsets() -> None:
    network = sketch.load("ndv2-1mb", "ndv2-x2")
    [mapped] = network.symmetries
    everyone = frozenset(range(network.ranks))
    demands = [routing.Demand(rank, everyone - {rank}) for rank in range(network.ranks)]
    links = routing.find_routes(network, demands, SECONDS).links
    for rank, route in enumerate(links):
        assert {(mapped[a], mapped[b]) for a, b in route} == set(links[mapped[rank]])


@needs_solver
def test_small_chunks_are_joined_into_messages() -> None:
    network = sketch.load("ndv2-1kb", "ndv2-x2")
    found = synthesize(network, "all-gather", SECONDS).best
    assert any(len(send.chunks) > 1 for send in found.schedule.sends)
    # Eight chunks in two messages, instead of eight, between the hosts, and a few hops within them.
    assert found.makespan < 2 * 270.25 + 6 * 10.25 + 8 * 34.5 < found.relaxed


@needs_solver
@pytest.mark.parametrize("strategy", ["uc-min", "uc-max"])
def test_a_switch_within_a_host_uses_few_or_many_links(strategy: str, tmp_path: Path) -> None:
    whole = {"strategy": "switch", "switches": [[0, 1, 2, 3]], "switch_hyperedge_strategy": [strategy]}
    plan = content("ndv2-x1") | {"intranode_sketch": whole}
    network = written(tmp_path, content("dgx2-1mb") | {"gpus_per_node": 4}, plan)
    found = synthesize(network, "all-gather", SECONDS).best
    used = {(send.sources, send.destinations) for send in found.schedule.sends}
    assert found.relaxed == 3 * 8
    assert len(used) == 12 if strategy == "uc-max" else len(used) < 12


@needs_solver
@pytest.mark.parametrize("strategy", ["minmax", "maxmin"])
def test_loads_are_preferred_among_equally_fast_routes(strategy: str, tmp_path: Path) -> None:
    network = written(tmp_path, content("ndv2-1mb"), content("ndv2-x1") | {"intranode_sketch": {"strategy": strategy}})
    assert synthesize(network, "all-gather", 8.0).best.relaxed == 69


@needs_solver
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_chunks_leave_their_host_at_their_senders(collective: str, tmp_path: Path) -> None:
    """Every GPU has a link to other hosts, but the chunks of both leave at GPU 1."""
    relayed = {"strategy": "relay", "internode_conn": "fully-connected", "gpus_to_sender_rev_map": {"1": [0, 1]}}
    plan = content("ndv2-x2") | {"internode_sketch": relayed | {"enforce_ordering": True}, "symmetry_offsets": [[2, 4]]}
    network = written(tmp_path, content("dgx2-1mb") | {"gpus_per_node": 2}, plan)
    sends = synthesize(network, collective, SECONDS).best.schedule.sends
    crossing = [send for send in sends if network.crosses((send.sources[0], send.destinations[0]))]
    assert {send.sources[0] % 2 for send in crossing if not send.reduces} <= {1}
    if collective == "all-gather":  # and a sender's own chunks go first
        for host in range(2):
            own = [send.chunks[0] == send.sources[0] for send in crossing if network.host(send.sources[0]) == host]
            assert own == sorted(own, reverse=True)


# ---- the switch as a node --------------------------------------------------------------------------------------------


@needs_solver
@pytest.mark.parametrize("hosts", [2, 4])
def test_an_all_reduce_through_the_switch_wins_by_what_links_allow(hosts: int, tmp_path: Path) -> None:
    found = synthesize(small(tmp_path, hosts, parts=4), "all-reduce", SECONDS)
    through, around = sorted(found.candidates, key=lambda candidate: not candidate.through_switch)
    chunks = 2 * hosts * 4
    assert through.busiest == 21 * chunks
    assert around.busiest == 21 * chunks * 2 * (hosts - 1) / hosts
    links = around.busiest / through.busiest
    assert links * 0.95 <= around.makespan / through.makespan <= links * 1.1
    assert f"a factor of {links:.2f}" in found.verdict


@needs_solver
def test_ndv2_with_a_switch_between_two_hosts() -> None:
    found = synthesize(sketch.load("ndv2-switchml-1mb", "ndv2-x2"), "all-reduce", SECONDS)
    through, around = sorted(found.candidates, key=lambda candidate: not candidate.through_switch)
    assert through.busiest == around.busiest == 16 * 107  # with two hosts, links do not allow more
    assert through.makespan <= 1.1 * around.makespan


# ---- the simulator, files, pictures ----------------------------------------------------------------------------------


@pytest.fixture
def gathered(tmp_path: Path) -> Synthesis:
    pytest.importorskip("highspy", reason="highspy is not installed")
    return synthesize(small(tmp_path, 2), "all-gather", SECONDS)


def changed(schedule: Schedule, number: int, **fields: Any) -> Schedule:
    sends = list(schedule.sends)
    sends[number] = dataclasses.replace(sends[number], **fields)
    return dataclasses.replace(schedule, sends=tuple(sends))


def test_the_simulator_refuses_schedules_that_cannot_be(gathered: Synthesis) -> None:
    schedule, network = gathered.best.schedule, gathered.network
    simulate.check(schedule, network)
    first, last = schedule.sends[0], schedule.sends[-1]
    twice = dataclasses.replace(schedule, sends=(*schedule.sends, first))
    short = changed(schedule, 0, end=first.start + 1)
    absent = Send((1,), (1,), (2,), 0.0, 100.0)
    wrong = {
        "is used twice at once": twice,
        "takes less time than the link": short,
        "which it does not have": changed(schedule, -1, start=0.0, end=last.end - last.start),
        "does not have chunk": dataclasses.replace(schedule, sends=schedule.sends[:-1]),
        "which does not exist": dataclasses.replace(schedule, sends=(*schedule.sends, absent)),
        "adds a contribution twice": dataclasses.replace(
            schedule, sends=(*schedule.sends, dataclasses.replace(first, reduces=True, start=900.0, end=950.0))
        ),
        "not a sum in the aggregation switch": changed(schedule, 0, destinations=(3, 1)),
    }
    for text, other in wrong.items():
        with pytest.raises(ScheduleError, match=text):
            simulate.check(other, network)


def test_a_schedule_survives_its_file(gathered: Synthesis, tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps(gathered.as_dict()))
    assert schedules.load(path) == gathered.best.schedule
    for text, message in (
        ("{", "is not a schedule"),
        (json.dumps(gathered.as_dict() | {"version": 2}), "version 2"),
        (json.dumps(gathered.as_dict() | {"sends": []}), "does not have chunk"),
        (json.dumps(gathered.as_dict() | {"collective": "gossip"}), "is not a collective"),
    ):
        path.write_text(text)
        with pytest.raises(ScheduleError, match=message):
            schedules.load(path)
    with pytest.raises(ScheduleError, match="cannot be read"):
        schedules.load(tmp_path / "absent.json")


def test_a_schedule_is_drawn(gathered: Synthesis, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    timeline.picture(gathered.best.schedule, gathered.network, tmp_path / "t.svg")
    assert "<svg" in (tmp_path / "t.svg").read_text()
    with pytest.raises(DrawingError, match="must end in"):
        timeline.picture(gathered.best.schedule, gathered.network, tmp_path / "t.gif")


# ---- MSCCL -----------------------------------------------------------------------------------------------------------


def interpreted(text: str, inputs: list[list[int]]) -> list[list[int]]:
    """Run the thread blocks of an algorithm as MSCCL does, and return the output buffers."""
    root = ElementTree.fromstring(text)
    buffers: list[dict[str, list[int]]] = []
    blocks: list[tuple[int, ElementTree.Element, deque[ElementTree.Element]]] = []
    for gpu, given in zip(root.iter("gpu"), inputs, strict=True):
        buffers.append({buffer: [0] * int(gpu.attrib[f"{buffer}_chunks"]) for buffer in "ios"})
        buffers[-1]["i"] = list(given)
        blocks += [(len(buffers) - 1, block, deque(block.iter("step"))) for block in gpu.iter("tb")]
    done: dict[tuple[int, int], int] = defaultdict(lambda: -1)  # by GPU and block, the last step that announced its end
    wires: dict[tuple[int, int], deque[list[int]]] = defaultdict(deque)
    progress = True
    while progress:
        progress = False
        for rank, block, steps in blocks:
            while steps:
                step = steps[0]
                of = {key: int(step.attrib[key]) for key in ("srcoff", "dstoff", "cnt", "depid", "deps", "s", "hasdep")}
                if of["depid"] >= 0 and done[rank, of["depid"]] < of["deps"]:
                    break
                source, target = (buffers[rank][step.attrib[key]] for key in ("srcbuf", "dstbuf"))
                place = slice(of["dstoff"], of["dstoff"] + of["cnt"])
                kind, values = step.attrib["type"], source[of["srcoff"] : of["srcoff"] + of["cnt"]]
                if kind == "s":
                    wires[rank, int(block.attrib["send"])].append(values)
                elif kind == "cpy":
                    target[place] = values
                elif kind in ("r", "rrc"):
                    wire = wires[int(block.attrib["recv"]), rank]
                    if not wire:
                        break
                    arrived = wire.popleft()
                    target[place] = arrived if kind == "r" else [a + b for a, b in zip(values, arrived, strict=True)]
                if of["hasdep"]:
                    done[rank, int(block.attrib["id"])] = of["s"]
                steps.popleft()
                progress = True
    assert not any(steps for _, _, steps in blocks), "the thread blocks wait for one another"
    return [buffer["o"] for buffer in buffers]


@needs_solver
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_msccl_algorithms_compute_the_collective(collective: str, tmp_path: Path) -> None:
    network = dataclasses.replace(small(tmp_path, 3, parts=2), aggregating=())
    found = synthesize(network, collective, SECONDS).best
    ranks, parts = network.ranks, network.chunks_per_rank
    each = parts if collective == "all-gather" else ranks * parts
    inputs = np.random.default_rng(1).integers(1, 1000, (ranks, each))
    outputs = np.array(interpreted(msccl.algorithm(found.schedule, "small"), inputs.tolist()))
    total = inputs.sum(axis=0)
    expected: dict[str, Callable[[], Any]] = {
        "all-gather": lambda: np.tile(inputs.reshape(-1), (ranks, 1)),
        "all-reduce": lambda: np.tile(total, (ranks, 1)),
        "reduce-scatter": lambda: total.reshape(ranks, parts),
        "all-to-all": lambda: inputs.reshape(ranks, ranks, parts).swapaxes(0, 1).reshape(ranks, -1),
    }
    np.testing.assert_array_equal(outputs, expected[collective]())


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('coll="allgather"', 'coll="gossip"', "coll is unknown"),
        ('proto="Simple"', 'proto="Complex"', "proto is unknown"),
        ('nchunksperloop="4"', 'nchunksperloop="5"', "contradicts nchunksperloop"),
        ('type="cpy"', 'type="mov"', "type 'mov' is unknown"),
        ('hasdep="1"', 'hasdep="0"', "has no hasdep"),
        ('cnt="1"', 'cnt="99"', "cnt is not"),
        ('chan="0"', 'chan="7"', "not a channel"),
        ('send="1"', 'send="0"', "not another GPU"),
        ('<step s="0"', '<step s="4"', "steps are not"),
        ('srcoff="0"', 'srcoff="40"', "outside of its buffer"),
        ('s_chunks="4"', 's_chunks="four"', "lacks a whole number"),
        ("<algo", "<algorithm", "not XML"),
    ],
)
def test_algorithms_that_msccl_refuses(before: str, after: str, message: str, gathered: Synthesis) -> None:
    text = msccl.algorithm(gathered.best.schedule, "small")
    assert before in text
    with pytest.raises(ScheduleError, match=message):
        msccl.check(text.replace(before, after))


@needs_solver
def test_msccl_has_no_switch_that_sums(tmp_path: Path) -> None:
    found = synthesize(small(tmp_path, 3), "all-reduce", SECONDS)
    assert found.best.through_switch
    with pytest.raises(ScheduleError, match="MSCCL has no switch"):
        msccl.algorithm(found.best.schedule, "small")


# ---- bad input -------------------------------------------------------------------------------------------------------


def internode(**fields: Any) -> dict[str, Any]:
    return {"internode_sketch": content("ndv2-x2")["internode_sketch"] | fields}


@pytest.mark.parametrize(
    ("topology", "sketched", "message"),
    [
        ({}, internode(internode_conn={"0": [8]}), "GPU 8 does not exist"),
        ({}, internode(internode_conn={"x": [1]}), "GPU x does not exist"),
        ({}, internode(internode_conn="ring"), "neither an object"),
        ({}, internode(strategy="ring"), "'ring' is unknown"),
        ({}, internode(gpus_to_sender_rev_map={"3": [0]}), "GPU 3 is not a sender"),
        ({}, internode(gpus_to_sender_rev_map={"0": [0, 1]}), r"no sender is named for the chunks of GPUs \[2, 3"),
        ({}, {"symmetry_offsets": [[1, 8]]}, "symmetry_offsets: .* it maps the link"),
        ({}, {"symmetry_offsets": [[8, 12]]}, "are not groups of 12"),
        ({}, {"nnodes": 0}, "nnodes is 0"),
        ({}, {"intranode_sketch": {"strategy": "best"}}, "'best' is unknown"),
        (
            {},
            {"intranode_sketch": {"strategy": "switch", "switches": [[0, 7]], "switch_hyperedge_strategy": ["uc-min"]}},
            "no link 0 -> 7",
        ),
        ({"node_betas_list": [1, 2, 3]}, {}, "differ in length"),
        ({"gpus_per_node": 4}, {}, "give the matrices"),
        ({"remote_invbw": -1}, {}, "remote_invbw is -1"),
        ({"links": [[0]], "invbws": [[0]], "betas": [[0]]}, {}, "is not a matrix of 8 x 8"),
        ({"aggregation_switch": {"gpus": [9], "alpha": 1, "beta": 1}}, {}, "GPU 9 does not exist"),
        ({"aggregation_switch": {"gpus": [0]}}, {}, "the key 'beta' is missing"),
        ({"aggregation_switch": 5}, {}, "aggregation_switch is not an object"),
        ({}, {"symmetry_offsets": 5}, "a value of a wrong type"),
    ],
)
def test_bad_topologies_and_sketches_are_named(
    topology: dict[str, Any], sketched: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SketchError, match=message):
        written(tmp_path, content("ndv2-1mb") | topology, content("ndv2-x2") | sketched)


def cut_off(tmp_path: Path) -> SketchedNetwork:
    """Return a host of two GPUs with a link in one direction only."""
    one_way = {"links": [[0, 0], [1, 0]], "invbws": [[0, 0], [5, 0]], "betas": [[0, 0], [5, 0]]}
    return written(tmp_path, {"name": "one way", "gpus_per_node": 2, "nics_per_node": 1} | one_way, content("ndv2-x1"))


@needs_solver
def test_a_rank_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoRouteError, match=r"rank 0 cannot be reached from rank 1.*add a link"):
        synthesize(cut_off(tmp_path), "all-gather", SECONDS)


@needs_solver
def test_a_search_that_finds_nothing_in_its_time_says_so() -> None:
    with pytest.raises(SolverError, match="no routes in 1e-09 s; allow more time with --seconds"):
        synthesize(sketch.load("dgx2-1mb", "dgx2-x2"), "all-gather", 1e-9)


def test_a_missing_solver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(SolverError, match=re.escape(install_command("synthesis"))):
        synthesize(sketch.load("ndv2-1mb", "ndv2-x1"), "all-gather", SECONDS)


# ---- the command -----------------------------------------------------------------------------------------------------


@needs_solver
def test_the_command_writes_the_schedule_and_says_what_it_found(tmp_path: Path) -> None:
    files = {name: str(tmp_path / f"x.{name}") for name in ("json", "xml")}
    arguments = [
        "synthesize",
        "--topology",
        "ndv2-1mb",
        "--sketch",
        "ndv2-x1",
        "--output",
        files["json"],
        "--xml",
        files["xml"],
    ]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.stderr
    assert "all-gather of 8 ranks" in result.stdout
    assert schedules.load(tmp_path / "x.json").ranks == 8
    msccl.check((tmp_path / "x.xml").read_text())
    shown = json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).stdout)
    assert shown["found"][0]["relaxed"] == 69


def test_the_command_names_the_packaged_files() -> None:
    result = CliRunner().invoke(cli, ["synthesize", "--topology", "ndv3", "--sketch", "ndv2-x1"])
    assert result.exit_code == 2
    assert "ndv2-1mb" in result.stderr
