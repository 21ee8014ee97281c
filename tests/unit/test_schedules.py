"""Policies of scheduling: segments and classes, the orders of TicTac, and simulated steps whose times are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from studies.bytescheduler.simulation import Layer, step_time
from switchml.client.schedules import (
    POLICIES,
    Graph,
    Operation,
    Policy,
    Segment,
    plan,
    policy_of,
    tac_order,
    tic_costs,
    tic_order,
)

TOY = [Layer(1, 1, size) for size in (2, 2, 6)]
# Most bytes in the last layers, most computing in the first ones.
VGG_LIKE = [Layer(2, 2, size) for size in (2, 2, 4, 8, 8, 16)] + [Layer(1, 1, size) for size in (24, 40)]
FIFO = POLICIES["fifo"]
WHOLE = Policy("whole tensors", "first use", classes=None, credit=1)  # one transfer at a time


def cut(partition: int) -> Policy:
    return replace(WHOLE, partition=partition)


def test_the_steps_of_three_layers() -> None:
    assert step_time(TOY, FIFO) == 14
    assert step_time(TOY, WHOLE) == 13
    assert step_time(TOY, cut(1)) == 12
    assert step_time(TOY, replace(FIFO, partition=1, credit=1)) == 14  # partitions alone are of no use


def test_the_steps_of_a_model_like_vgg() -> None:
    assert step_time(VGG_LIKE, FIFO) == 119
    assert step_time(VGG_LIKE, WHOLE) == 107
    assert step_time(VGG_LIKE, cut(2)) == 106
    assert step_time(VGG_LIKE, cut(2), overhead=0.2) == pytest.approx(116.4)  # 52 partitions


@pytest.mark.parametrize("layers", [TOY, VGG_LIKE])
@pytest.mark.parametrize("partition", [None, 1, 2])
def test_with_infinite_credit_all_is_sent_first_in_first_out(layers: list[Layer], partition: int | None) -> None:
    everything = replace(WHOLE, partition=partition, credit=None)
    assert step_time(layers, everything) == step_time(layers, FIFO)


@pytest.mark.parametrize(("classes", "seconds"), [(1, 119), (2, 107), (3, 106), (4, 106)])
def test_a_few_classes_are_nearly_as_good_as_one_for_each_layer(classes: int, seconds: int) -> None:
    policy = Policy("classes", "first use", classes=classes, partition=2)
    assert step_time(VGG_LIKE, policy, streams=True) == seconds
    assert step_time(VGG_LIKE, replace(policy, credit=2), streams=True) == seconds


def test_a_faster_link_shortens_what_is_sent_and_layers_without_gradients_only_compute() -> None:
    assert step_time(TOY, FIFO, bytes_per_second=2) == 9  # 1 + 10 / 2 + 3
    assert step_time([Layer(8, 1, 0), *TOY], FIFO) == 15


def test_every_byte_is_in_one_segment_and_classes_have_equal_bytes() -> None:
    sizes = [10, 100, 3, 87]
    classes = plan(Policy("", "first use", classes=4, partition=8), sizes, [3, 2, 1, 0], [0, 1, 2, 3], grain=4)
    segments = [segment for of_class in classes for segment in of_class]
    assert all(segment.start % 4 == 0 and 0 < segment.size <= 8 for segment in segments)
    for bucket, size in enumerate(sizes):
        places = sorted((s.start, s.start + s.size) for s in segments if s.bucket == bucket)
        assert [start for start, _ in places] == [0, *(end for _, end in places[:-1])]
        assert places[-1][1] == size
    assert [sum(segment.size for segment in of_class) for of_class in classes] == pytest.approx([50] * 4, abs=8)
    assert [s.bucket for s in classes[-1]] == [3] * len(classes[-1])


def test_segments_of_a_class_are_in_the_order_of_the_backward_pass() -> None:
    classes = plan(Policy("", "first use", classes=1, partition=4), [4, 8], [1, 0], [0, 1])
    assert classes == [[Segment(1, 0, 4, 0), Segment(1, 4, 4, 0), Segment(0, 0, 4, 0)]]
    assert plan(FIFO, [4, 8], [1, 0], []) == [[Segment(1, 0, 8, 0), Segment(0, 0, 4, 0)]]


def diamond(b: float, c: float) -> Graph:
    """Return four operations that need a transfer each: the first, two after it, and one after these two."""
    return Graph(
        transfers=dict.fromkeys("ABCD", 2.0),
        operations={
            "a": Operation(1.0, ("A",)),
            "b": Operation(b, ("a", "B")),
            "c": Operation(c, ("a", "C")),
            "d": Operation(1.0, ("b", "c", "D")),
        },
    )


def test_tic_and_tac_of_two_branches() -> None:
    graph = diamond(b=1.0, c=3.0)
    assert tic_costs(graph) == {"A": 1, "B": 2, "C": 2, "D": 4}  # A, then B = C, then D
    assert tic_order(graph) == ["A", "B", "C", "D"]
    assert tac_order(graph) == ["A", "C", "B", "D"]
    assert tac_order(diamond(b=3.0, c=1.0)) == ["A", "B", "C", "D"]


def test_tic_and_tac_of_a_chain_are_the_order_of_its_layers() -> None:
    names = [str(number) for number in range(6)]
    operations = {
        f"layer {name}": Operation(float(number % 3), (name,) if number == 0 else (name, f"layer {number - 1}"))
        for number, name in enumerate(names)
    }
    graph = Graph({name: 1.0 + int(name) % 2 for name in reversed(names)}, operations)
    assert tic_order(graph) == names
    assert tac_order(graph) == names


def test_policies_have_names_and_positive_numbers() -> None:
    assert list(POLICIES) == ["fifo", "p3", "bytescheduler", "tictac-tic", "tictac-tac"]
    assert policy_of("p3") is POLICIES["p3"]
    assert policy_of(WHOLE) is WHOLE
    with pytest.raises(ValueError, match="must be one of fifo, p3, bytescheduler, tictac-tic, tictac-tac"):
        policy_of("lifo")
    with pytest.raises(ValueError, match="partition is 0; it must be positive"):
        Policy("", "first use", partition=0)
    with pytest.raises(ValueError, match="order is 'last use'"):
        Policy("", "last use")  # type: ignore[arg-type]
