"""Delay control: its rule with times that the test chooses, and on links whose rate changes."""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fabric_harness import why_no_namespaces

from switchml.benchmarks.linked_systems import PORT, linked_systems, own_run_directory
from switchml.benchmarks.torch_ranks import torch_group
from switchml.lanes import LANE_BITS
from switchml.topologies.shaped_links import Shape
from switchml.torch.compression import Average, DelayControl, FromLeader, Place
from switchml.torch.compression.compressor import next_of
from switchml.torch.compression.control import Clock, Control

REASON = why_no_namespaces()
RANK = "switchml.benchmarks.workers.compression"
TARGET = 1.0


def followed(control: Control, seconds: Callable[[int], float], steps: int) -> list[int]:
    """Return the bits of each step, on a network that takes `seconds(bits)` for it."""
    found = []
    for _ in range(steps):
        found.append(control.bits)
        control.took(seconds(control.bits))
    return found


def test_bits_follow_a_link_that_gets_slower_and_faster() -> None:
    control = Control(TARGET, list(LANE_BITS))
    fast = followed(control, lambda bits: 0.36 * bits / 32, 20)
    slow = followed(control, lambda bits: 3.6 * bits / 32, 40)
    again = followed(control, lambda bits: 0.36 * bits / 32, 40)
    assert fast == [32] * 20
    assert slow == [32] * 2 + [16] * 5 + [8] * 33  # in time from the eighth step on, and it stays so
    assert again == [8] * 2 + [16] * 5 + [32] * 33


@pytest.mark.parametrize("factor", [1, 2, 4])
@pytest.mark.parametrize("seconds", [0.46, 0.5, 0.54, 0.91, 1.0, 1.09])
def test_bits_do_not_swing_when_no_lanes_are_just_in_time(seconds: float, factor: int) -> None:
    """Check that there is at most one change on a steady link."""
    control = Control(TARGET, list(LANE_BITS))
    control.bits = 16
    found = followed(control, lambda bits: seconds * factor * bits / 32, 60)
    assert sum(first != second for first, second in itertools.pairwise(found)) <= 1
    assert seconds * factor * found[-1] / 32 <= 1.1 * TARGET or found[-1] == 8


def test_single_slow_steps_change_nothing_and_changes_are_apart() -> None:
    control = Control(TARGET, list(LANE_BITS))
    times = iter([0.5, 9.0, 0.5] * 20)
    assert followed(control, lambda bits: next(times), 60) == [32] * 60
    never = Control(TARGET, [32, 16])
    found = followed(never, lambda bits: 5.0, 30)
    assert found == [32] * 5 + [16] * 25  # not below the narrowest


def test_a_clock_counts_the_time_in_which_something_is_under_way() -> None:
    times = iter([1.0, 4.0, 10.0, 11.0])
    clock = Clock(lambda: next(times))
    for call in (clock.begin, clock.begin, clock.end, clock.end, clock.begin, clock.end):
        call()
    assert clock.take() == 4.0
    assert clock.take() == 0.0


def test_the_word_of_rank_0_decides_for_all_buckets_of_a_step() -> None:
    leader, other = DelayControl(TARGET), DelayControl(TARGET)
    gradient = torch.ones(3)
    leader.load_state_dict({"bits": 16})
    assert leader.state_dict() == {"bits": 16}
    for method, rank in ((leader, 0), (other, 1)):
        rounds = method.rounds(gradient, Place("w", 0, rank, 2))
        word = next_of(rounds, None)
        assert isinstance(word, FromLeader)
        assert word.leader == 0
        request = next_of(rounds, torch.tensor([16], dtype=torch.int32))
        assert isinstance(request, Average)
        assert (request.wire_bits, request.rounding, method.bits) == (16, "stochastic", 16)
        assert next_of(rounds, gradient).average is gradient  # type: ignore[union-attr]
    first = next_of(leader.rounds(gradient, Place("w", 0, 0, 2)), None)
    leader._control.bits = 8  # decided after the step
    later = next_of(leader.rounds(gradient, Place("w", 1, 0, 2)), None)
    assert [int(word.values) for word in (first, later)] == [16, 8]  # type: ignore[union-attr]
    assert repr(leader) == "by_name('delay_control', target=1.0, least_bits=8)"


@pytest.mark.long
@pytest.mark.skipif(bool(REASON), reason=f"skipped: no network namespaces: {REASON}")
def test_lanes_follow_the_rate_of_the_links() -> None:
    """Change the links of two ranks from 200 Mb/s to 20 and back. The target is 1.1 times the time of 8 bits at 20."""
    elements = 1_200_000
    slow_rate, fast_rate = 20_000_000, 200_000_000
    target = 1.1 * elements * 8 / slow_rate
    with (
        tempfile.TemporaryDirectory(prefix="swml-") as base,
        own_run_directory(Path(base) / "run") as (run_directory, directory),
        linked_systems(run_directory, 2, Shape(fast_rate, 0.4)) as systems,
        torch_group(systems, RANK, "switchml", PORT, sys.executable, directory) as group,
    ):

        def step() -> tuple[int, float]:
            """Make a step; return the bits of an element at both ranks, and the seconds of the slower one."""
            answers = group.command(f"step delay_control:target={target} {elements} 1 0")
            parameters = answers[0]["parameters"]
            bits = {round(8 * answer["bytes"] / parameters) for answer in answers}
            assert len(bits) == 1
            assert len({answer["digest"] for answer in answers}) == 1
            return bits.pop(), max(answer["seconds"][0] for answer in answers)

        fast = [step() for _ in range(8)]
        systems.links.shape(Shape(slow_rate, 0.4))
        slow = [step() for _ in range(14)]
        systems.links.shape(Shape(fast_rate, 0.4))
        again = [step() for _ in range(20)]
    assert [bits for bits, _ in fast] == [32] * 8
    assert [bits for bits, _ in slow[9:]] == [8] * 5
    assert 0.8 * target < statistics.median(seconds for _, seconds in slow[9:]) < 1.2 * target
    assert [bits for bits, _ in again[-5:]] == [32] * 5
    assert statistics.median(seconds for _, seconds in again[-5:]) < 1.2 * target
