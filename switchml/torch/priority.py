"""The order in which the next forward pass needs gradients.

The backward pass makes the gradients of the last layers first; the next forward pass needs those of the first layers
first. So buckets are cut into partitions, of which only a few are in flight at a time, and the most urgent waiting one
goes next (P3, Jayarajan et al., MLSys 2019; ByteScheduler, Peng et al., SOSP 2019; TicTac, Hashemi et al., MLSys 2019).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Final

import torch.distributed as dist

from switchml.torch.agreed_order import AgreedOrder
from switchml.torch.scheduler import Bucket, Partition

__all__ = ["PriorityScheduler", "PriorityState"]

_IN_FLIGHT: Final = 2  # partitions: one being sent, and a second one so that there is always something to send
_ALIGNMENT: Final = (
    2048  # elements, a multiple of any packet: cutting a bucket leaves its quantization blocks as they are
)


class _Waiting:
    """A bucket that is not completely assigned to partitions yet."""

    def __init__(self, bucket: Bucket, priority: int) -> None:
        buffer = bucket.buffer()
        self.index = bucket.index()
        self.priority = priority
        self.elements = buffer.numel()
        self.element_size = buffer.element_size()
        self.assigned = 0  # elements assigned to partitions so far


class PriorityScheduler:
    """Chooses the bucket with the highest priority, a partition of at most `partition_bytes` at a time."""

    def __init__(self, partition_bytes: int, priority: Callable[[Bucket], int]) -> None:
        self._partition_bytes = partition_bytes
        self._priority = priority
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []

    def ready(self, bucket: Bucket) -> None:
        """Add a bucket, and ask for its priority."""
        waiting = _Waiting(bucket, self._priority(bucket))
        if waiting.elements:
            with self._lock:
                self._waiting.append(waiting)

    @property
    def waits(self) -> bool:
        """True if there is a ready bucket that is not completely assigned to partitions yet."""
        return bool(self._waiting)

    def may_start(self, in_flight: Collection[Partition]) -> bool:
        """Return whether fewer than two partitions are in flight."""
        return len(in_flight) < _IN_FLIGHT

    def next(self) -> Partition | None:
        """Return the next partition of the most urgent bucket; among equally urgent ones, of the first that came."""
        with self._lock:
            if not self._waiting:
                return None
            chosen = max(self._waiting, key=lambda waiting: waiting.priority)
            start = chosen.assigned
            most = self._partition_bytes // chosen.element_size // _ALIGNMENT * _ALIGNMENT
            chosen.assigned = min(start + max(most, _ALIGNMENT), chosen.elements)
            if chosen.assigned == chosen.elements:
                self._waiting.remove(chosen)
            return Partition(chosen.index, start, chosen.assigned - start)


class PriorityState(AgreedOrder):
    """The state of `hooks.priority_hook` for one DDP model. All ranks must make it at the same time: it makes a group.

    The group has a separate stream in the switch, so no other traffic can come between. The state becomes unusable if a
    backward pass raises on any rank.

    Args:
        process_group: the ranks that average; None for all.
        partition_bytes: the largest size of a partition; an urgent bucket waits for at most two partitions. The value
            on rank 0 is used.
        priority: returns the urgency of a bucket; the highest goes first. The default is its number: DDP numbers
            buckets in the order in which the backward pass completes them, so the last one holds the layers that are
            needed first. It is called on rank 0 only, once for each bucket and backward pass.
        timeout: seconds that a rank waits for its own next bucket, or for the other ranks.

    Raises:
        ValueError: `partition_bytes` or `timeout` is not positive.

    """

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        partition_bytes: int = 8 << 20,
        priority: Callable[[Bucket], int] = lambda bucket: bucket.index(),
        timeout: float = 300.0,
    ) -> None:
        if partition_bytes <= 0 or timeout <= 0:
            raise ValueError(f"partition_bytes is {partition_bytes}, timeout {timeout}; both must be positive")
        self.partition_bytes = partition_bytes
        self.priority = priority
        super().__init__(process_group, lambda: PriorityScheduler(self.partition_bytes, self.priority), timeout)
