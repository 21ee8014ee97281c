"""Tuning of partition and credit: the search itself, and that all ranks follow rank 0 at the same steps."""

from __future__ import annotations

import pytest
import torch

from switchml.client.schedules import Policy, Segment
from switchml.torch.scheduling import ScheduledOptimizer, Tuner
from switchml.torch.scheduling.tune import LATENCY, Knob, Search
from tests.torch.test_scheduling import BUCKET, make_model
from tests.torch.torch_harness import Ranks
from tests.torch.training_tasks import assert_same_on_all_ranks, loss_of, parameters

pytest.importorskip("optuna")

STEPS = 20


def test_the_search_finds_the_least_value() -> None:
    """Use the function with which BytePS's tuner is tested."""
    search = Search({"x": Knob(0, 100)}, points=15)
    for _ in range(15):
        search.tell((search.ask()["x"] - 20) ** 2 + 5)
    assert search.ended
    assert abs(search.ask()["x"] - 20) < 0.1


def test_points_are_timed_after_they_act_and_the_best_one_stays() -> None:
    tuner = Tuner(points=3, steps=3, seed=1)
    tuner.start()
    values = [9.0, 4.0, 7.0]
    points = []
    for value in values:
        assert not tuner.ended
        points.append(tuner.point)
        for second in [100.0] * (LATENCY + 1) + [value, value, 50.0]:
            tuner.took(second)
    assert len(set(points)) == 3
    assert tuner.ended
    assert tuner.point == points[1]
    tuner.took(1.0)
    assert tuner.point == points[1]


def test_ranges_are_checked() -> None:
    for arguments in ({"points": 0}, {"steps": 0}, {"partition": (8, 8)}, {"credit": (1, 1 << 31)}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            Tuner(**arguments)


Record = tuple[tuple[int, int] | None, list[list[Segment]]]


def tuned(rank: int) -> list[Record]:
    model, same = make_model(), make_model()
    tuner = Tuner(points=3, steps=2, partition=(16 << 10, 256 << 10), credit=(16 << 10, 1 << 20))
    policy = Policy("", "first use", classes=2)
    optimizer = ScheduledOptimizer(
        torch.optim.Adam(model.parameters()), model, policy, bucket_bytes=BUCKET, tuner=tuner
    )
    plain = ScheduledOptimizer(torch.optim.Adam(same.parameters()), same, "fifo", bucket_bytes=BUCKET)
    found: list[Record] = []
    for step in range(STEPS):
        loss_of(model, rank, step).backward()
        acting = optimizer.classes
        optimizer.step()
        found.append((tuner.point, acting))
        loss_of(same, rank, step).backward()
        plain.step()
    optimizer.synchronize()
    plain.synchronize()
    assert_same_on_all_ranks(parameters(model))
    assert all(map(torch.equal, parameters(model), parameters(same)))
    assert tuner.ended == (rank == 0)
    return found


def test_all_ranks_take_the_points_of_rank_0_two_steps_later(ranks: Ranks) -> None:
    first, *others = ranks.run(2, tuned)
    assert [classes for _, classes in others[0]] == [classes for _, classes in first]
    assert {point for point, _ in others[0]} == {None}
    longest = [max(segment.size for of_class in classes for segment in of_class) for _, classes in first]
    largest = max(longest)
    for (point, _), acting in zip(first[:-LATENCY], longest[LATENCY:], strict=True):
        assert point is not None
        wanted = max(point[0] // (16 << 10), 1) * (16 << 10)
        assert acting == min(wanted, largest)
    assert len(set(longest[LATENCY:])) > 1
