"""Delay control: its rule with times that the test chooses, and on links whose rate changes."""

from __future__ import annotations

import itertools
import math
import statistics as numbers
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from switchml.benchmarks.linked_systems import PORT, linked_systems, own_run_directory
from switchml.benchmarks.torch_ranks import torch_group
from switchml.client.wire import LANE_BITS, Blocks
from switchml.topologies.shaped_links import Shape
from switchml.torch import statistics
from switchml.torch.compression import Average, DelayControl, Exchange, Outcome, Place, Rounds, by_name
from switchml.torch.compression.compressor import next_of
from switchml.torch.compression.control import BusyTimer, Control, RoundTrips
from tests.support.fabric_harness import needs_namespaces
from tests.torch.conftest import running_fabric
from tests.torch.torch_harness import Ranks, RendezvousServer

RANK = "switchml.benchmarks.workers.compression"
TARGET = 1.0
ELEMENTS = 1000


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
    clock = BusyTimer(lambda: next(times))
    for call in (clock.begin, clock.begin, clock.end, clock.end, clock.begin, clock.end):
        call()
    assert clock.take() == 4.0
    assert clock.take() == 0.0


def stepped(methods: list[DelayControl], step: int) -> int:
    """Make a step of one bucket at all ranks, whose averages are exact; return the bits of its lanes."""
    gradient = torch.ones(ELEMENTS)
    rounds = [method.rounds(gradient, Place("w", step, rank, len(methods))) for rank, method in enumerate(methods)]
    measured = [next_of(one, None) for one in rounds]
    assert all(type(one) is Average and one.wire == Blocks() for one in measured)
    mean = torch.stack([one.values for one in measured]).mean(0)  # type: ignore[union-attr]
    requests = [next_of(one, mean) for one in rounds]
    assert all(isinstance(request, Average) and request == requests[0] for request in requests)
    for one in rounds:
        assert next_of(one, gradient).average is gradient  # type: ignore[union-attr]
    bits = {method.bits for method in methods}
    assert len(bits) == 1
    wire = requests[0].wire  # type: ignore[union-attr]
    assert isinstance(wire, Blocks)
    assert wire.bits in bits
    assert wire.rounding == ("nearest" if wire.bits == 32 else "stochastic")
    return bits.pop()


def test_all_ranks_decide_by_the_mean_of_their_times() -> None:
    """Let one of four ranks measure 2.4 s, in which nothing changes, and then two of them."""
    methods = [DelayControl(TARGET) for _ in range(4)]
    for method in methods:
        method._clock = BusyTimer(lambda: 0.0)

    def step(number: int, times: Sequence[float]) -> int:
        bits = stepped(methods, number)
        for method, seconds in zip(methods, times, strict=True):
            method._clock._total = seconds
        return bits

    assert [step(number, (0.5, 0.5, 2.4, 0.5)) for number in range(10)] == [32] * 10
    found = [step(number, (0.5, 2.4, 2.4, 0.5)) for number in range(10, 15)]
    assert found == [32] * 2 + [16] * 3  # two of the last three are slow


def test_round_trips_tell_the_time_of_a_step_whoever_measures_them() -> None:
    """Simulate links that take 0.8 s for a step of 32 bits, 8 s for a while, and then 0.8 s again.

    Rank 1 completes all slots but one, whose packet was on its way alone and tells a tenth of the rate.
    """
    sums = [[0.0, 0], [0.0, 0]]
    methods = [DelayControl(2.2 * TARGET, sensor="round_trips") for _ in sums]
    for method, read in zip(methods, sums, strict=True):
        method._round_trips = RoundTrips(lambda read=read: (read[0], int(read[1])))  # type: ignore[misc]

    def step(number: int, seconds: float) -> int:
        bits = stepped(methods, number)
        rate = 4 * ELEMENTS / seconds
        for read, trips, trip, came in ((sums[0], 1, 0.001, 0.0001 * rate), (sums[1], 40, 0.05, 0.05 * rate)):
            read[0] += trips * trip
            read[1] += trips * came
        return bits

    fast = [step(number, 0.8) for number in range(20)]
    slow = [step(number, 8.0) for number in range(20, 40)]
    again = [step(number, 0.8) for number in range(40, 60)]
    assert fast == [32] * 20
    assert slow == [32] * 2 + [16] * 5 + [8] * 13
    assert again == [8] * 2 + [16] * 5 + [32] * 13


def test_nothing_changes_without_measurements() -> None:
    """Make steps in which no round trip was measured, and those of a gradient that is not finite."""
    blind = [DelayControl(1e-9, sensor="round_trips")]
    assert [stepped(blind, number) for number in range(20)] == [32] * 20
    method = DelayControl(1e-9)
    for number in range(20):
        rounds = method.rounds(torch.zeros(3), Place("w", number, 0, 2))
        next_of(rounds, None)
        next_of(rounds, torch.tensor([math.nan, math.nan]))
        next_of(rounds, torch.zeros(3))
        assert method.bits == 32


def test_a_step_of_several_buckets_has_the_same_bits() -> None:
    method = DelayControl(TARGET)
    method.load_state_dict({"bits": 16})
    assert method.state_dict() == {"bits": 16}
    measured = []
    for step, bucket in ((0, 0), (0, 1), (1, 0), (1, 1)):
        if (step, bucket) == (1, 0):
            method._clock._total = 3.0
        rounds = method.rounds(torch.ones(3), Place(f"bucket {bucket}", step, 0, 2))
        request = next_of(rounds, None)
        measured.append(request.values.tolist())  # type: ignore[union-attr]
        next_of(rounds, request.values)  # type: ignore[union-attr]
        next_of(rounds, torch.ones(3))
        assert method.bits == 16
    assert measured == [[0, 0], [0, 0], [3, TARGET], [0, 0]]  # the first bucket tells of the whole step before
    assert repr(method) == "by_name('delay_control', target=1.0, least_bits=8, sensor='time')"


def made_steps(method: DelayControl, rank: int, stop: float, steps: int) -> tuple[list[int], Exchange]:
    """Make `steps` in which rank 1 stops before each average, for `stop` seconds; return the bits of each step."""
    exchange = Exchange(method, timeout=60.0)
    gradient = torch.full((100_000,), float(rank))

    def rounds(step: int) -> Rounds:
        inner = method.rounds(gradient, Place("w", step, rank, 2))
        first = next_of(inner, None)
        assert not isinstance(first, Outcome)
        request = next_of(inner, (yield first))
        assert not isinstance(request, Outcome)
        if rank == 1:
            time.sleep(stop)
        outcome = next_of(inner, (yield request))
        assert isinstance(outcome, Outcome)
        return outcome

    bits = []
    for step in range(steps):
        outcome = exchange.submit(rounds(step)).wait()
        assert torch.allclose(outcome.average, torch.tensor(0.5), atol=0.05)
        bits.append(method.bits)
    return bits, exchange


def measured_by_both(rank: int) -> tuple[list[int], list[int], list[int], float]:
    """Return the bits with a target that nothing meets, and for both sensors with one that only a late rank misses."""
    few, exchange = made_steps(DelayControl(1e-9, sensor="round_trips"), rank, 0.0, 14)
    by_time, _ = made_steps(DelayControl(0.2), rank, 0.4, 8)
    by_round_trips, _ = made_steps(DelayControl(0.2, sensor="round_trips"), rank, 0.4, 8)
    return few, by_time, by_round_trips, exchange.groups[-1].round_trips[0]


def test_round_trips_do_not_tell_of_a_rank_that_stops(server: RendezvousServer) -> None:
    for control in running_fabric("--transport", "udp"):
        first, second = Ranks(server, control.run_dir).run(2, measured_by_both)
    assert first[:3] == second[:3]
    few, by_time, by_round_trips, seconds = first
    assert (few[0], few[-1]) == (32, 8)
    assert by_time[-1] < 32
    assert by_round_trips == [32] * 8
    assert seconds + second[3] > 0


def refused(rank: int, message: str) -> None:
    """Check that there is no such sensor, that nothing was sent, and that another one can be used then."""
    before = statistics()["wire_bytes"]
    with pytest.raises(ValueError, match=message):
        Exchange(by_name("delay_control", sensor="round_trips"), timeout=60.0)
    assert statistics()["wire_bytes"] == before
    exchange = Exchange(by_name("delay_control"), timeout=60.0)
    outcome = exchange.submit(exchange.compressor.rounds(torch.ones(5), Place("w", 0, rank, 2))).wait()
    assert outcome.average.tolist() == [1.0] * 5


def test_round_trips_need_packets(ranks: Ranks) -> None:
    ranks.run(2, refused, 'sensor="round_trips" measures packets.*share memory with the switch.*use sensor="time"')


def test_round_trips_need_a_switch(server: RendezvousServer) -> None:
    Ranks(server, None).run(
        2,
        refused,
        'sensor="round_trips" measures packets.*gloo: .*use sensor="time"',
        environment={"SWITCHML_TORCH_FALLBACK": "gloo"},
    )


@pytest.mark.long
@needs_namespaces
@pytest.mark.parametrize("sensor", ["time", "round_trips"])
def test_lanes_follow_the_rate_of_the_links(sensor: str) -> None:
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
            answers = group.command(f"step delay_control:target={target}:sensor={sensor} {elements} 1 0")
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
    assert 0.8 * target < numbers.median(seconds for _, seconds in slow[9:]) < 1.2 * target
    assert [bits for bits, _ in again[-5:]] == [32] * 5
    assert numbers.median(seconds for _, seconds in again[-5:]) < 1.2 * target
