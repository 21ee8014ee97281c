"""`switchml-ctl probe` and `order`: agents that measure the paths between each other, and some that do not."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from switchml.controller.client import ControllerClient
from switchml.controller.errors import FabricInUse
from switchml.controller.proto import switchml_pb2 as pb
from tests.support.controller_harness import ScriptedAgent
from tests.support.fabric_harness import Ctl

AGENTS = ["agent-0", "agent-1", "agent-2"]


@pytest.fixture
def probed(ctl: Ctl) -> Ctl:
    """Provide a fabric of three agents."""
    ctl.run("up", "--agents", "3")
    return ctl


@pytest.fixture
def controller(probed: Ctl) -> Iterator[ControllerClient]:
    state = json.loads((probed.run_dir / "fabric.json").read_text())
    with ControllerClient(state["controller"]) as client:
        yield client


def answering(agent: ScriptedAgent, **answers: Callable[[pb.ProbeOrder], pb.ProbeAnswer]) -> None:
    """Let an agent answer the orders of these kinds."""

    def run() -> None:
        taken = 0
        while not agent.ended.wait(0.02):
            orders = agent.messages("probe_order")
            for order in orders[taken:]:
                kind = order.WhichOneof("order")
                if kind in answers:
                    answer = answers[kind](order)
                    answer.number = order.number
                    agent.send(pb.AgentMessage(probe_answer=answer))
            taken = len(orders)

    threading.Thread(target=run, daemon=True).start()


def test_agents_measure_the_paths_between_each_other(probed: Ctl) -> None:
    result = probed.json("probe", "--bytes", "1MiB")
    assert [host["name"] for host in result["hosts"]] == AGENTS
    assert result["left_out"] == {}
    for name in ("round_trip_us", "bytes_per_second"):
        for row, values in enumerate(result[name]):
            assert [value > 0 for value in values] == [row != column for column in range(3)]
    assert json.loads((probed.run_dir / "probe.json").read_text())["time"] == pytest.approx(time.time(), abs=600)
    found = probed.run("order", "--for", "ring")
    assert sorted(found.stdout.split()) == AGENTS
    assert " ms/MiB found, " in found.stderr
    addresses = probed.json("order", "--for", "halving-doubling", "--names", "address")["order"]
    assert sorted(addresses) == sorted(host["address"] for host in result["hosts"])
    leaves = probed.json("order", "--for", "leaves")
    assert sorted(name for leaf in leaves["leaves"] for name in leaf) == AGENTS

    result = probed.json("probe")
    assert result["bytes_per_second"] is None
    assert " us found, " in probed.run("order", "--for", "ring").stderr
    probed.run("down")
    assert sorted(probed.run("order", "--for", "ring").stdout.split()) == AGENTS


def test_ranks_are_given_to_agents_in_the_found_order(ctl: Ctl) -> None:
    ctl.run("up", "--agents", "4")
    matrix = ctl.json("probe")
    names = [host["name"] for host in matrix["hosts"]]
    far = {(0, 1), (1, 0), (2, 3), (3, 2)}  # so the ring is 0, 2, 1, 3
    matrix["round_trip_us"] = [[900 if (row, column) in far else 1 for column in range(4)] for row in range(4)]
    (ctl.run_dir / "probe.json").write_text(json.dumps(matrix))
    attach = ctl.json("job", "start", "--workers", "8", "--order", "ring")["attach"]
    sockets = [Path(rank["SWITCHML_AGENT"]).stem for rank in attach]
    assert sockets == [names[agent] for agent in (0, 0, 2, 2, 1, 1, 3, 3)]


def test_agents_that_do_not_answer_are_left_out_and_named(probed: Ctl, controller: ControllerClient) -> None:
    with (
        ScriptedAgent(controller.address, "silent"),
        ScriptedAgent(controller.address, "wrong") as wrong,
        ScriptedAgent(controller.address, "absent") as absent,
    ):
        opened = pb.ProbeAnswer(port=9)  # the port discard, at which nothing listens
        answering(wrong, open=lambda _: opened, measure=lambda _: pb.ProbeAnswer(round_trip=math.nan))
        refused = pb.ProbeAnswer(failure="no room\x1b")
        answering(absent, open=lambda _: opened, measure=lambda _: refused)
        result = probed.json("probe")
    assert [host["name"] for host in result["hosts"]] == AGENTS
    assert result["left_out"].keys() == {"silent", "wrong", "absent"}
    assert result["left_out"]["silent"] == "no answer within 5 s; if the agent is of an earlier version, update it"
    for name in ("wrong", "absent"):
        assert name in result["left_out"][name]


def test_fewer_than_three_agents_have_one_order_only(ctl: Ctl) -> None:
    ctl.run("up", "--agents", "2")
    refused = ctl.run("probe", status=3).stderr
    assert "a probe needs 3 to 256 live agents, and there are 2" in refused
    missing = ctl.run("order", "--for", "ring", status=1).stderr
    assert "probe.json does not exist; `switchml-ctl probe` measures the paths" in missing
    assert "at most 64MiB" in ctl.run("probe", "--bytes", "65MiB", status=2).stderr


def test_jobs_have_precedence(probed: Ctl, controller: ControllerClient) -> None:
    job = controller.start_job(pb.StartJobRequest(workers=2, name="train"))
    refused = probed.run("probe", status=3).stderr
    assert "jobs live (train), and a probe would measure their packets: wait until they have ended" in refused
    controller.stop_job(job.id)

    with ScriptedAgent(controller.address, "slow") as slow:
        began, goes_on = threading.Event(), threading.Event()

        def measure(_: pb.ProbeOrder) -> pb.ProbeAnswer:
            goes_on.wait(30)
            return pb.ProbeAnswer(round_trip=1)

        def opened(_: pb.ProbeOrder) -> pb.ProbeAnswer:
            began.set()
            goes_on.wait(4)  # less than the agents have
            return pb.ProbeAnswer(port=9)

        answering(slow, open=opened, measure=measure)
        probing = probed.start("probe")
        assert began.wait(30)
        with pytest.raises(FabricInUse, match="another probe runs"):
            controller.probe_agents()
        controller.start_job(pb.StartJobRequest(workers=2, name="train"))
        goes_on.set()
        _, said = probing.communicate(timeout=60)
        assert probing.returncode == 3
        assert "jobs live since the probe began, which has ended (train)" in said
        slow.wait_for("probe_order", 2)
        assert slow.messages("probe_order")[-1].HasField("close")
    assert controller.get_job("train").state == pb.JOB_STATE_READY
