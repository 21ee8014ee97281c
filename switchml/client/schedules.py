"""In which order the gradients of a step are sent: policies, what they make of a model, and the orders of TicTac.

A model is a number of buckets. The backward pass completes them in one order, usually the last layers first; the next
forward pass needs them in another one. A policy cuts the buckets into segments and gives each segment a class. Within a
class, all ranks send the segments in one order that never changes; between classes, the more urgent one goes first.

`switchml.torch.scheduling` trains with these policies, and a study simulates them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from switchml.client.arguments import whole_number

__all__ = ["MOST_CLASSES", "POLICIES", "Graph", "Operation", "Order", "Policy", "Segment", "plan", "policy_of"]
__all__ += ["tac_order", "tic_costs", "tic_order"]

MOST_CLASSES: Final = 8
"""Classes of a policy for training: the priorities that a process group can have."""

Order = Literal["backward", "first use", "tic", "tac"]


@dataclasses.dataclass(frozen=True)
class Policy:
    """A policy.

    Attributes:
        name: for people.
        order: the urgency of buckets: as the backward pass completes them; as the forward pass first uses them; or as
            `tic_order` or `tac_order` say.
        classes: number of classes, of about equal bytes; None for one for each bucket.
        partition: bytes of the largest segment; None: buckets are not cut.
        credit: a segment is only started while fewer bytes than this are in flight; None: it is started at once.

    Raises:
        ValueError: a number is not positive, or `order` is unknown.
        TypeError: a number is not an integer.

    """

    name: str
    order: Order
    classes: int | None = 4
    partition: int | None = None
    credit: int | None = None

    def __post_init__(self) -> None:
        if self.order not in ("backward", "first use", "tic", "tac"):
            raise ValueError(f'order is {self.order!r}; it must be "backward", "first use", "tic" or "tac"')
        for name in ("classes", "partition", "credit"):
            value = getattr(self, name)
            if value is not None and whole_number(value, name) < 1:
                raise ValueError(f"{name} is {value}; it must be positive, or None")


POLICIES: Final = {
    policy.name: policy
    for policy in (
        Policy("fifo", "backward", classes=1),
        # P3 (Jayarajan et al., MLSys 2019): slices of 50,000 parameters.
        Policy("p3", "first use", partition=200_000, credit=200_000),
        # ByteScheduler (Peng et al., SOSP 2019): partitions of a million parameters.
        Policy("bytescheduler", "first use", partition=4_000_000, credit=4_000_000),
        # TicTac (Hashemi et al., MLSys 2019): whole tensors, one after another.
        Policy("tictac-tic", "tic", credit=1),
        Policy("tictac-tac", "tac", credit=1),
    )
}
"""The policies by name."""


def policy_of(policy: str | Policy) -> Policy:
    """Return the policy of this name, or the given one.

    Raises:
        ValueError: no policy has this name.

    """
    if isinstance(policy, Policy):
        return policy
    if policy not in POLICIES:
        raise ValueError(f"policy is {policy!r}; it must be one of {', '.join(POLICIES)}, or a Policy")
    return POLICIES[policy]


# ---- segments and classes -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Segment:
    """A part of a bucket that is sent as one call: `size` bytes from byte `start` on, in class `priority` (0 first)."""

    bucket: int
    start: int
    size: int
    priority: int


def plan(
    policy: Policy, sizes: Sequence[int], completion: Sequence[int], urgency: Sequence[int], grain: int = 1
) -> list[list[Segment]]:
    """Return the segments of each class, the most urgent class first, in the order in which all ranks send them.

    Args:
        policy: where to cut, and how many classes there are.
        sizes: bytes of each bucket.
        completion: the buckets in the order in which the backward pass completes them.
        urgency: the buckets in the order of the policy, the most urgent first; not used for "backward".
        grain: cuts are at multiples of this number of bytes.

    """
    if policy.order == "backward":
        urgency = completion
    longest = None if policy.partition is None else max(grain, policy.partition // grain * grain)
    count = len(sizes) if policy.classes is None else min(policy.classes, max(1, len(sizes)))
    total = max(1, sum(sizes))
    classes: list[list[Segment]] = [[] for _ in range(count)]
    before = 0  # bytes that are more urgent
    for place, bucket in enumerate(urgency):
        size = sizes[bucket]
        for start in range(0, size, longest or max(1, size)):
            part = min(longest or size, size - start)
            number = place if policy.classes is None else (before + start) * count // total
            classes[number].append(Segment(bucket, start, part, number))
        before += size
    rank = {bucket: place for place, bucket in enumerate(completion)}
    return [sorted(segments, key=lambda segment: (rank[segment.bucket], segment.start)) for segments in classes]


# ---- TicTac ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Operation:
    """A computation of `seconds` that needs the transfers and earlier operations named in `needs`."""

    seconds: float
    needs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Graph:
    """Transfers, by name with their seconds, and operations in an order in which they can be executed."""

    transfers: Mapping[str, float]
    operations: Mapping[str, Operation]

    def needed(self) -> list[tuple[Operation, frozenset[str]]]:
        """Return each operation with all transfers that must have ended before it, directly or not."""
        found: dict[str, frozenset[str]] = {name: frozenset([name]) for name in self.transfers}
        for name, operation in self.operations.items():
            found[name] = frozenset().union(*(found[need] for need in operation.needs))
        return [(operation, found[name]) for name, operation in self.operations.items()]


def tic_costs(graph: Graph) -> dict[str, int]:
    """Return for each transfer the smallest number of transfers that complete an operation that needs it.

    This is the priority of timing-independent communication scheduling: a small number is urgent. It is the number of
    all transfers, and one more, if no operation needs the transfer.
    """
    costs = dict.fromkeys(graph.transfers, len(graph.transfers) + 1)
    for _, transfers in graph.needed():
        for name in transfers:
            costs[name] = min(costs[name], len(transfers))
    return costs


def tic_order(graph: Graph) -> list[str]:
    """Return the transfers by `tic_costs`; among equal ones those that come first in the graph."""
    costs = tic_costs(graph)
    return sorted(graph.transfers, key=costs.__getitem__)


def tac_order(graph: Graph) -> list[str]:
    """Return the transfers in the order of timing-aware communication scheduling.

    Again and again it takes the transfer that is preferred to all others. A is preferred to B if
    min(P_B, M_A) < min(P_A, M_B), with M the time of the transfer and P the time of the operations that wait for this
    transfer alone; if both are equal, if the operation that it helps to complete first needs less transfer time.
    """
    operations, left, order = graph.needed(), list(graph.transfers), []
    while left:
        computing, impending = _outlook(graph, operations, set(left))

        def is_preferred(a: str, b: str) -> bool:
            of_a = min(computing[b], graph.transfers[a])  # noqa: B023 - called in this iteration only
            of_b = min(computing[a], graph.transfers[b])  # noqa: B023
            return of_a < of_b if of_a != of_b else impending[a] < impending[b]  # noqa: B023

        best = left[0]
        for name in left[1:]:
            if is_preferred(name, best):
                best = name
        left.remove(best)
        order.append(best)
    return order


def _outlook(
    graph: Graph, operations: Sequence[tuple[Operation, frozenset[str]]], left: set[str]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return for each transfer P, and the least transfer time that completes an operation that needs it."""
    computing = dict.fromkeys(left, 0.0)
    impending = dict.fromkeys(left, float("inf"))
    for operation, transfers in operations:
        missing = transfers & left
        if len(missing) == 1:
            [name] = missing
            computing[name] += operation.seconds
        cost = sum(graph.transfers[name] for name in missing)
        for name in missing:
            impending[name] = min(impending[name], cost)
    return computing, impending
