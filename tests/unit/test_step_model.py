"""The model of training steps: predicted times of recorded steps over other links, and the advice that follows."""

import json
from pathlib import Path
from typing import Any

import pytest

from switchml.common.errors import NoStepsError
from switchml.ops import advice
from switchml.ops.step_model import (
    Load,
    RankStep,
    Recording,
    StepCollective,
    Way,
    compressed_way,
    gloo_way,
    network_way,
    predicted,
)

SPEED = 1000.0  # bytes per second
RANKS = 4
COMPRESSING = 1e-4  # seconds for a byte


def event(kind: str, number: int, at: float, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "number": number, "at": at, **more}


def started(number: int, at: float, name: str, nbytes: int, **more: Any) -> dict[str, Any]:
    return event("start", number, at, name=name, bytes=nbytes, dtype="float32", **more)


def recording(events: list[dict[str, Any]], seconds: float, directory: Path, steps: int = 3) -> Recording:
    """Write and read the files of ranks that all make the same steps."""
    step = {"seconds": seconds, "optimizer": 0.0, "events": events}
    for rank in range(RANKS):
        content = {"world_size": RANKS, "steps": [step] * steps, "compressing": COMPRESSING if rank == 0 else 0.0}
        (directory / f"rank-{rank}.json").write_text(json.dumps(content))
    return Recording.read(directory, warm_up=1)


PLAIN = Way(lambda collective, _ranks: Load(collective.bytes, collective.bytes, 0.0))
ONE_WAY = Way(
    lambda collective, _ranks: Load(*((0, 1000) if collective.name == "all_gather" else (1000, 0)), 0.0), depth=1
)

# Computes for 1 s, starts two all-reduces 1 s apart, and does not wait for them: they end 4 s after the second.
DDP = [
    *(started(1, 1.0, "all_reduce", 1000), started(2, 2.0, "all_reduce", 3000)),
    *(event("end", 1, 3.0), event("end", 2, 6.0)),
]
# Two modules are gathered, computed for 1 s each, gathered again in reverse, computed, scattered. Each call takes 1 s.
FSDP = [
    *(started(1, 0.0, "all_gather", 1000), event("wait", 1, 0.0), event("go on", 1, 1.0)),
    *(started(2, 2.0, "all_gather", 1000), event("wait", 2, 2.0), event("go on", 2, 3.0)),
    *(started(3, 4.0, "all_gather", 1000), event("wait", 3, 4.0), event("go on", 3, 5.0)),
    *(started(4, 6.0, "reduce_scatter", 250), event("wait", 4, 6.0), event("go on", 4, 7.0)),
    *(started(5, 7.0, "all_gather", 1000), event("wait", 5, 7.0), event("go on", 5, 8.0)),
    *(started(6, 9.0, "reduce_scatter", 250), event("wait", 6, 9.0), event("go on", 6, 10.0)),
]


def test_calls_without_a_wait_end_before_the_optimizer(tmp_path: Path) -> None:
    found = recording(DDP, 7.0, tmp_path)
    assert RankStep.of({"seconds": 7.0, "optimizer": 0.5, "events": DDP}).rest == pytest.approx(1.0)
    # The first ends at 1 + 1, the second at 2 + 3, and the rank computes for another second.
    assert predicted(found, PLAIN, SPEED) == pytest.approx([6.0, 6.0])
    # On a link of twice the speed the second ends at 3.5; on an endless one nothing is waited for.
    assert predicted(found, PLAIN, 2 * SPEED) == pytest.approx([4.5, 4.5])
    assert predicted(found, PLAIN, 1e12) == pytest.approx([3.0, 3.0])


def test_a_call_begins_when_the_last_rank_has_started_it(tmp_path: Path) -> None:
    found = recording(DDP, 7.0, tmp_path)
    slow = [event(one["kind"], one["number"], one["at"] + 2.0) for one in DDP]
    late = RankStep.of(
        {"seconds": 9.0, "optimizer": 0.0, "events": [{**a, **b} for a, b in zip(DDP, slow, strict=True)]}
    )
    mixed = Recording(RANKS, found.compressing, found.seconds, ((*found.steps[0][1:], late),), found.collectives[:1])
    assert predicted(mixed, PLAIN, SPEED) == pytest.approx([8.0])


def test_calls_that_are_waited_for_at_once(tmp_path: Path) -> None:
    found = recording(FSDP, 10.0, tmp_path)
    assert predicted(found, PLAIN, SPEED) == pytest.approx([10.0, 10.0])
    assert predicted(found, PLAIN, 1e12) == pytest.approx([4.0, 4.0])
    assert predicted(found, PLAIN, SPEED / 2) == pytest.approx([16.0, 16.0])


def test_overlap_of_gathers_and_scatters(tmp_path: Path) -> None:
    found = recording(FSDP, 10.0, tmp_path)
    # Gathers of 1 s end at 1 and 2; the third is saved; the last one is made while the rank computes, and so is the
    # first scatter: what is left are the first gather, four seconds of computing, and the last scatter.
    assert predicted(found, ONE_WAY, SPEED) == pytest.approx([6.0, 6.0])


def test_gradients_that_travel_during_the_next_forward_pass(tmp_path: Path) -> None:
    events = [
        *(started(1, 1.0, "all_reduce", 3000), started(2, 2.0, "all_reduce", 1000)),
        *(event("end", 1, 4.0), event("end", 2, 5.0)),
    ]
    found = recording(events, 6.0, tmp_path)
    assert predicted(found, PLAIN, SPEED) == pytest.approx([6.0, 6.0])
    across = Way(PLAIN.load, cross=True)
    # The links are busy for 4 s. With twice the speed, a step computes for 3 s and waits for the last call.
    assert predicted(found, across, SPEED) == pytest.approx([4.0, 4.0])
    assert predicted(found, across, 2 * SPEED) == pytest.approx([3.5, 3.5])
    given = advice.advise(["python", "train.py"], 8 * 1000, found, found, found)
    scheduled = next(choice for choice in given.choices if choice.name.startswith("gradients that travel"))
    assert scheduled.needs_code
    assert scheduled.accuracy == "the same averages"
    assert given.left == pytest.approx(1 - given.computing / given.choices[-1].seconds)


def test_compression_takes_the_time_of_its_work(tmp_path: Path) -> None:
    found = recording(DDP, 7.0, tmp_path)
    way = compressed_way(0.01, found.compressing)
    load = way.load(StepCollective("all_reduce", 100_000, "float32"), RANKS)
    # The leader sends 250 places and 250 values, in two calls.
    assert load.up == load.down == pytest.approx(2000 + 2000 / 1024 * 74)
    assert load.seconds == pytest.approx(2 * 3e-4 + 100_000 * COMPRESSING)
    half = way.load(StepCollective("all_reduce", 50_000, "bfloat16"), RANKS)
    assert half.up == load.up
    # Almost nothing travels: two calls take 0.1 and 0.3 s, the second after 2 s and before a last second.
    assert predicted(found, way, 1e9) == pytest.approx([3.3, 3.3], abs=0.01)
    given = advice.advise(["python", "train.py"], 8 * 1000, found, found, found)
    assert given.choices[-1].name == "shared Top-k of 1% in place of all others"
    assert given.choices[-1].needs_code
    assert given.choices[-1].seconds < given.choices[-2].seconds
    # Where the work takes longer than the bytes, it is not offered.
    fast = advice.advise(["python", "train.py"], 8 * 10**9, found, found, found)
    assert "Top-k" not in fast.choices[-1].name


def test_compression_is_for_programs_that_only_average_gradients(tmp_path: Path) -> None:
    found = recording(FSDP, 10.0, tmp_path)
    given = advice.advise(["python", "train.py"], 8 * 100, found, found, found)
    assert not any("Top-k" in choice.name for choice in given.choices)


def test_loads() -> None:
    plain = StepCollective("all_reduce", 4096, "float32")
    assert gloo_way().load(plain, 4).up == pytest.approx(1.5 * 4096 * 1514 / 1448)
    assert network_way().load(plain, 4).up == pytest.approx(4096 + 4 * 74)
    assert network_way(bits=8).load(plain, 4).down == pytest.approx(1024 + 74)
    sparse = network_way(skips_zeros=True).load(StepCollective("all_reduce", 4096, "float32", 0.25), 4)
    assert (sparse.up, sparse.down) == pytest.approx((1024 + 74, (1 - 0.75**4) * (4096 + 4 * 74)))
    assert network_way(bits=8).load(StepCollective("all_reduce", 4096, "int32"), 4).up == pytest.approx(4096 + 4 * 74)
    halves = StepCollective("all_reduce", 4096, "bfloat16")
    assert (network_way().load(halves, 8).up, network_way().load(halves, 16).up) == pytest.approx(
        (4096 + 4 * 74, 8192 + 8 * 74)
    )
    scatter, gather = (
        StepCollective("reduce_scatter_single", 4096, "float32"),
        StepCollective("all_gather", 4096, "bfloat16"),
    )
    assert network_way().load(scatter, 4).up == pytest.approx(3072 + 4 * 74)
    assert network_way().load(scatter, 4).down == pytest.approx(1024 + 4 * 74)
    assert network_way(bits=8).load(gather, 4).down == pytest.approx(3072 + 4 * 74)


def test_parts_of_a_reduce_scatter_are_those_of_all_ranks(tmp_path: Path) -> None:
    found = recording(FSDP, 10.0, tmp_path)
    assert found.collectives[0][4] == StepCollective("reduce_scatter", 250 * RANKS, "float32")


def test_programs_without_steps(tmp_path: Path) -> None:
    with pytest.raises(NoStepsError, match=r"made 0 steps of an optimizer.*needs at least 2"):
        Recording.read(tmp_path, warm_up=1)
    with pytest.raises(NoStepsError, match="made 1 steps"):
        recording(DDP, 7.0, tmp_path, steps=1)


def test_ranks_with_other_calls(tmp_path: Path) -> None:
    recording(DDP, 7.0, tmp_path)
    file = tmp_path / "rank-2.json"
    content = json.loads(file.read_text())
    content["steps"][2]["events"] = FSDP
    file.write_text(json.dumps(content))
    (tmp_path / "rank-1.json").rename(tmp_path / "kept")
    with pytest.raises(NoStepsError, match="3 of 4 ranks came to the end"):
        Recording.read(tmp_path, warm_up=1)
    (tmp_path / "kept").rename(tmp_path / "rank-1.json")
    with pytest.raises(NoStepsError, match="ranks 0 and 2 made other collectives in a step, 2 and 6 of them"):
        Recording.read(tmp_path, warm_up=1)


def test_options_that_pay_are_named(tmp_path: Path) -> None:
    found = recording(FSDP, 10.0, tmp_path)
    given = advice.advise(["python", "train.py"], 8 * 1000, found, found, found)
    assert [choice.name for choice in given.choices] == [
        "gloo",
        "switchml",
        "overlap of FSDP's collectives",
        "16 bits for a value",
        "16 bits for a value, and no change of the program",
        "8 bits for a value, and no change of the program",
    ]
    gains = [choice.gain for choice in given.choices]
    assert gains[:4] == sorted(gains[:4])
    assert gains[1] < gains[4] < gains[5] < gains[3]
    assert given.computing == pytest.approx(4.0, rel=1e-2)
    assert (given.calls, given.bytes, given.largest) == (6, 6000, 1000)
    _, plain, _, halves, unchanged, _ = given.choices
    assert plain.accuracy.startswith("float32 sums to 2^-28 of the largest magnitude")
    assert halves.accuracy.startswith("gradients rounded to 8191 levels")
    assert (halves.needs_code, halves.variables) == (True, {"SWITCHML_TORCH_WIRE": "blocks:bits=16"})
    assert (unchanged.needs_code, unchanged.variables) == (False, {"SWITCHML_TORCH_WIRE": "blocks:bits=16"})
    measured = given.with_measured({"gloo": 3.0, "switchml": 2.0})
    assert [choice.measured for choice in measured.choices] == [3.0, 2.0, None, None, None, None]
    fast = advice.advise(["python", "train.py"], 100_000_000_000, found, found, found)
    assert [choice.name for choice in fast.choices] == ["gloo", "switchml"]
    assert fast.communicating < 0.01


def test_blocks_of_zeros_are_left_out_where_most_are_zero(tmp_path: Path) -> None:
    sparse = [{**one, "filled": 0.1} if one["kind"] == "start" else one for one in DDP]
    found = recording(sparse, 7.0, tmp_path)
    given = advice.advise(["python", "train.py"], 8 * 1000, found, found, found)
    assert "blocks of zeros left out" in [choice.name for choice in given.choices]
