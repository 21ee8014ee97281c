"""The order in which the next forward pass needs gradients.

The backward pass makes the gradients of the last layers first; the next forward pass needs those of the first layers
first. So buckets are cut into partitions, few of which are in flight at a time, and of those that wait the most urgent
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

_IN_FLIGHT: Final = 2  # partitions: one on the wire, one behind it so that the wire does not run dry
_ALIGNMENT: Final = (
    2048  # elements, a multiple of any packet: cutting a bucket leaves its quantization blocks as they are
)


class _Waiting:
    """A bucket of which something has yet to be chosen."""

    def __init__(self, bucket: Bucket, priority: int) -> None:
        buffer = bucket.buffer()
        self.index = bucket.index()
        self.priority = priority
        self.elements = buffer.numel()
        self.element_size = buffer.element_size()
        self.assigned = 0  # elements that have been chosen


class PriorityScheduler:
    """Chooses the bucket with the highest priority, a partition of at most `partition_bytes` at a time."""

    def __init__(self, partition_bytes: int, priority: Callable[[Bucket], int]) -> None:
        self._partition_bytes = partition_bytes
        self._priority = priority
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []

    def ready(self, bucket: Bucket) -> None:
        """Take a bucket, and ask for its priority."""
        waiting = _Waiting(bucket, self._priority(bucket))
        if waiting.elements:
            with self._lock:
                self._waiting.append(waiting)

    @property
    def waits(self) -> bool:
        """Whether anything of the buckets that are ready has yet to be chosen."""
        return bool(self._waiting)

    def may_start(self, in_flight: Collection[Partition]) -> bool:
        """Tell whether fewer than two partitions are in flight."""
        return len(in_flight) < _IN_FLIGHT

    def next(self) -> Partition | None:
        """Choose the next piece of the most urgent bucket; of equals, of that which came first."""
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
    """What `hooks.priority_hook` keeps for one DDP model. All ranks make one at the same time: it makes a group.

    That group is a stream of its own in the switch, so nothing else can get in between. A backward pass that raises
    on any rank leaves the state unusable.

    Args:
        process_group: the ranks that average; None for all.
        partition_bytes: the most that is submitted at once; an urgent bucket waits for two partitions at most. Rank
            0's value counts.
        priority: urgency of a bucket, the highest travels first. By default its number: DDP numbers buckets in the
            order in which the backward pass makes them, so the last holds the layers that are needed first. It is
            called on rank 0 only, once for each bucket and backward pass; all ranks follow.
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
