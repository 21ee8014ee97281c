"""The record of a training's first step, from which the urgency of buckets follows."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Final

from switchml.client.schedules import Graph, Operation, Order, tac_order, tic_order

__all__ = ["Trace"]


class Trace:
    """The modules that the first step called, in this order with the time, and the buckets that it completed."""

    def __init__(self) -> None:
        self._calls: Final[list[tuple[str, float]]] = []
        self._forward_end: float | None = None
        self.completed: list[int] = []

    @property
    def called(self) -> set[str]:
        """The names of the modules that were called."""
        return {name for name, _ in self._calls}

    def call(self, module: str) -> None:
        """Record that a module is called now."""
        if self._forward_end is None:
            self._calls.append((module, time.perf_counter()))

    def complete(self, bucket: int) -> None:
        """Record that the gradients of a bucket are complete now."""
        if self._forward_end is None:
            self._forward_end = time.perf_counter()
        self.completed.append(bucket)

    def completion(self, buckets: int) -> list[int]:
        """Return all buckets in the order in which the backward pass completes them; those it did not are last."""
        return self.completed + [number for number in reversed(range(buckets)) if number not in self.completed]

    def urgency(self, order: Order, buckets_of: Mapping[str, Sequence[int]], sizes: Sequence[int]) -> list[int]:
        """Return all buckets, the most urgent first; those that no module uses are last.

        Eager execution is a chain: a module is called after the one before it. Its operation takes until the next call.
        To be called at the end of the step: a transfer takes its share of the time since the end of the forward pass.

        Args:
            order: of the policy.
            buckets_of: the buckets that a module of this name waits for.
            sizes: bytes of each bucket.

        """
        first_use = dict.fromkeys(number for name, _ in self._calls for number in buckets_of.get(name, ()))
        if order in ("tic", "tac"):
            now = time.perf_counter()
            forward_end = now if self._forward_end is None else self._forward_end
            for_byte = (now - forward_end) / max(1, sum(sizes))
            transfers = {str(number): sizes[number] * for_byte for number in first_use}
            graph = self._graph(buckets_of, transfers, forward_end)
            ordered = tic_order(graph) if order == "tic" else tac_order(graph)
            first_use = dict.fromkeys(int(name) for name in ordered)
        return list(first_use) + [number for number in range(len(sizes)) if number not in first_use]

    def _graph(
        self, buckets_of: Mapping[str, Sequence[int]], transfers: Mapping[str, float], forward_end: float
    ) -> Graph:
        uses = [(name, moment) for name, moment in self._calls if buckets_of.get(name)]
        operations: dict[str, Operation] = {}
        before: tuple[str, ...] = ()
        for (name, begin), (_, end) in itertools.pairwise([*uses, ("", forward_end)]):
            operation = f"call {len(operations)}"
            needs = (*before, *(str(number) for number in buckets_of[name]))
            operations[operation] = Operation(end - begin, needs)
            before = (operation,)
        return Graph(transfers, operations)
