"""The order in which gradients travel: rank 0 decides, all ranks follow.

The backward pass makes the gradients of the last layers first; the next forward pass needs those of the first layers
first. So buckets are cut into partitions, few of which are in flight at a time, and of those that wait the most urgent
goes next (P3, Jayarajan et al., MLSys 2019; ByteScheduler, Peng et al., SOSP 2019; TicTac, Hashemi et al., MLSys 2019).

In the switch every rank must stream the same partitions in the same order, and no two ranks have the same gradients
ready at the same time. So no rank orders by itself. Rank 0 chooses among the buckets that it has ready, and publishes
each choice one partition ahead, on the stream that carries the partitions themselves:

    rank 0 announces 1 | announces 2 | partition 1 | announces 3 | partition 2 | ... | announces the end | partition n

Each rank submits partition k when it has heard of it and has that bucket ready itself; until then its stream waits.
That wait ends: the bucket becomes ready by the rank's own backward pass, which waits for nobody. The announcement of
k+1 travels before partition k, so nobody idles for it, and a change of priority takes effect one partition later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist

__all__ = ["Bucket", "PriorityState"]

_IN_FLIGHT: Final = 2  # partitions: one on the wire, one behind it so that the wire does not run dry
_ALIGNMENT: Final = (
    2048  # elements, a multiple of any packet: cutting a bucket leaves its quantization blocks as they are
)
_NOTHING, _PARTITION, _END = range(3)  # what an announcement says


class Bucket(Protocol):
    """The part of `torch.distributed.GradBucket` that is used here."""

    def index(self) -> int:
        """Return the bucket's number, the same on all ranks."""

    def buffer(self) -> torch.Tensor:
        """Return the flat tensor of its gradients."""

    def is_last(self) -> bool:
        """Tell whether no bucket of this backward pass has a higher number."""


@dataclass(frozen=True)
class _Partition:
    """A piece of a bucket, as rank 0 announces it."""

    bucket: int
    start: int  # element
    elements: int


@dataclass
class _Ready:
    """A bucket whose gradients this rank has."""

    buffer: torch.Tensor
    priority: int  # means something on rank 0 only
    future: torch.futures.Future[torch.Tensor]
    assigned: int = 0  # elements that have their place in the order; on rank 0 only
    averaged: int = 0  # elements whose average is there
    # CUDA events: of the gradients, and of the copies of averages into the buffer
    made: Any = None
    delivered: list[Any] = field(default_factory=list)


class PriorityState:
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
        self.timeout = timeout
        self.priority = priority
        ranks = dist.get_process_group_ranks(process_group)
        self.group = dist.new_group(ranks, timeout=timedelta(seconds=timeout))
        self.decides = dist.get_group_rank(self.group, dist.get_rank()) == 0
        self._pass: _BackwardPass | None = None

    def submit(self, bucket: Bucket) -> torch.futures.Future[torch.Tensor]:
        """Queue a bucket; the future holds its buffer when that is the average.

        Raises:
            RuntimeError: an earlier backward pass failed, or did not hand over all of its buckets.

        """
        if self._pass is None or self._pass.complete:
            self._pass = _BackwardPass(self, self._pass)
        return self._pass.add(bucket)


class _BackwardPass:
    """The buckets of one backward pass, and the thread that submits their partitions."""

    def __init__(self, state: PriorityState, previous: _BackwardPass | None) -> None:
        self._state = state
        self._changed = threading.Condition()  # guards what follows
        self._buckets: dict[int, _Ready] = {}
        self._expected: int | None = None  # number of buckets, once the last has come
        self._in_flight = 0  # partitions
        self._error: Exception | None = None
        before = None if previous is None else previous._thread
        self._thread: threading.Thread = threading.Thread(
            target=self._run, args=(before,), name="switchml-priority", daemon=True
        )
        self._thread.start()

    @property
    def complete(self) -> bool:
        """Whether all buckets have come and hold their averages."""
        with self._changed:
            return self._all_came() and all(b.averaged == b.buffer.numel() for b in self._buckets.values())

    def add(self, bucket: Bucket) -> torch.futures.Future[torch.Tensor]:
        """Take a bucket that is ready on this rank."""
        index, buffer = bucket.index(), bucket.buffer()
        priority = self._state.priority(bucket) if self._state.decides else 0
        devices = [buffer.device] if buffer.is_cuda else None
        with self._changed:
            if self._error is not None:
                raise RuntimeError("averaging an earlier bucket failed; start the job again") from self._error
            if index in self._buckets:
                raise RuntimeError(
                    f"bucket {index} came again before its backward pass was complete: either that pass raised on this "
                    "rank (start the job again), or one PriorityState serves two models (make one for each)"
                )
            ready = self._buckets[index] = _Ready(buffer, priority, torch.futures.Future(devices=devices))
            if buffer.is_cuda:
                ready.made = torch.cuda.current_stream(buffer.device).record_event()
            if bucket.is_last():
                self._expected = index + 1
            self._changed.notify_all()
        if buffer.numel() == 0:
            ready.future.set_result(buffer)
        return ready.future

    def _all_came(self) -> bool:
        return len(self._buckets) == self._expected

    def _run(self, before: threading.Thread | None) -> None:
        try:
            if before is not None:
                before.join(self._state.timeout)  # it may still have to hear of its end
            self._follow()
        except Exception as error:  # raised again where the gradients are waited for
            self._fail(error)

    def _follow(self) -> None:
        """Announce (rank 0) or hear, and submit, partition by partition: the same calls on every rank."""
        current: _Partition | None = None
        kind = _NOTHING
        while kind != _END:
            announcement = self._decide(current) if self._state.decides else torch.zeros(4, dtype=torch.int64)
            heard = dist.broadcast(announcement, group_src=0, group=self._state.group, async_op=True)
            if current is not None:
                self._average(current)
            heard.wait()
            kind, *place = announcement.tolist()
            current = _Partition(*place) if kind == _PARTITION else None

    def _decide(self, current: _Partition | None) -> torch.Tensor:
        """Choose what follows `current`, which is submitted next; where there is neither, wait for a bucket.

        It is decided as late as the stream allows, so that a bucket that becomes ready meanwhile can still overtake.
        """
        with self._changed:
            self._wait_until(lambda: self._in_flight < _IN_FLIGHT, "a place in the stream")
            if current is None:
                self._wait_until(lambda: self._all_came() or bool(self._waiting()), "the next bucket")
            waiting = self._waiting()
            if not waiting:
                return torch.tensor([_END if self._all_came() else _NOTHING, 0, 0, 0])
            index = max(waiting, key=lambda index: self._buckets[index].priority)
            bucket = self._buckets[index]
            start = bucket.assigned
            most = self._state.partition_bytes // bucket.buffer.element_size() // _ALIGNMENT * _ALIGNMENT
            bucket.assigned = min(start + max(most, _ALIGNMENT), bucket.buffer.numel())
            return torch.tensor([_PARTITION, index, start, bucket.assigned - start])

    def _waiting(self) -> list[int]:
        """Return the buckets of which rank 0 has something to give away."""
        return [index for index, bucket in self._buckets.items() if bucket.assigned < bucket.buffer.numel()]

    def _average(self, partition: _Partition) -> None:
        """Submit a partition as soon as this rank has its bucket."""
        with self._changed:
            self._wait_until(lambda: partition.bucket in self._buckets, f"bucket {partition.bucket}")
            bucket = self._buckets[partition.bucket]
            self._in_flight += 1
        end = partition.start + partition.elements
        if end > bucket.buffer.numel():
            raise RuntimeError(
                f"bucket {partition.bucket} has {bucket.buffer.numel()} elements on this rank, and {end} or more on "
                "rank 0: the ranks' models differ, or their buckets do (bucket_cap_mb)"
            )
        if bucket.made is not None:
            torch.cuda.current_stream(bucket.buffer.device).wait_event(bucket.made)
        piece = bucket.buffer[partition.start : end]
        work = dist.all_reduce(piece, op=dist.ReduceOp.AVG, group=self._state.group, async_op=True)
        work.get_future().add_done_callback(lambda future: self._take(future, bucket, partition.elements))

    def _take(self, future: torch.futures.Future[object], bucket: _Ready, elements: int) -> None:
        """Note that a partition has come to its end (callback)."""
        try:
            future.wait()
        except Exception as error:  # raised again where the gradients are waited for
            self._fail(error)
            return
        with self._changed:
            self._in_flight -= 1
            bucket.averaged += elements
            if bucket.made is not None:
                bucket.delivered.append(torch.cuda.current_stream(bucket.buffer.device).record_event())
            whole = bucket.averaged == bucket.buffer.numel()
            self._changed.notify_all()
        if whole:
            for event in bucket.delivered:
                torch.cuda.current_stream(bucket.buffer.device).wait_event(event)
            bucket.future.set_result(bucket.buffer)

    def _fail(self, error: Exception) -> None:
        """Let everybody who waits for gradients of this pass raise `error`."""
        with self._changed:
            if self._error is not None:
                return
            self._error = error
            self._changed.notify_all()
            unfinished = [b for b in self._buckets.values() if b.averaged < b.buffer.numel()]
        for bucket in unfinished:
            bucket.future.set_exception(error)

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, with the lock held, or raise."""
        ended = self._changed.wait_for(lambda: self._error is not None or condition(), self._state.timeout)
        if self._error is not None:
            raise self._error
        if not ended:
            raise TimeoutError(f"after {self._state.timeout:g} s the priority hook still waits for {what}")
