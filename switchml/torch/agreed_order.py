"""A common order of the partitions of gradients on all ranks, which a scheduler on rank 0 decides.

Every rank must stream the same partitions in the same order through the switch, but the gradients become ready at
different times on different ranks. So the ranks cannot choose the order independently. Rank 0 chooses among the buckets
that it has ready, and announces each choice one partition ahead, on the stream that carries the partitions themselves:

    rank 0 announces 1 | announces 2 | partition 1 | announces 3 | partition 2 | ... | announces the end | partition n

Each rank submits partition k once it has received its announcement and its own bucket is ready; until then its stream
waits. This wait ends, because the bucket becomes ready through the rank's own backward pass, which waits for no other
rank. The announcement of k+1 is sent before partition k, so no rank idles until it arrives. A bucket that becomes ready
on rank 0 can still go ahead of all others, except the one partition that was already announced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

from switchml.torch.scheduler import Bucket, Partition, Scheduler

__all__ = ["AgreedOrder"]

_NOTHING, _PARTITION, _END = range(3)  # kinds of announcement
_NO_PARTITION: Final = (0, 0, 0)
_HEARD: Final = (_NOTHING, *_NO_PARTITION)  # overwritten by rank 0's announcement


@dataclass
class _Ready:
    """A bucket whose gradients are ready on this rank."""

    buffer: torch.Tensor
    future: torch.futures.Future[torch.Tensor]
    averaged: int = 0  # elements whose average has arrived
    # CUDA events: one of the gradients, and those of the copies of averages into the buffer
    made: Any = None
    delivered: list[Any] = field(default_factory=list)


class AgreedOrder:
    """Averages the gradients of one DDP model in the order that a scheduler on rank 0 chooses.

    All ranks must make this object at the same time, because it makes a process group. The group has a separate stream
    in the switch, so no other traffic can come between. It becomes unusable if a backward pass raises on any rank.

    Args:
        process_group: the ranks that average; None for all.
        new_scheduler: makes the scheduler of one backward pass; called on rank 0 only.
        timeout: seconds that a rank waits for its own next bucket, or for the other ranks.

    """

    def __init__(
        self, process_group: dist.ProcessGroup | None, new_scheduler: Callable[[], Scheduler], timeout: float
    ) -> None:
        self.timeout = timeout
        ranks = dist.get_process_group_ranks(process_group)
        self.group = dist.new_group(ranks, timeout=timedelta(seconds=timeout))
        self.decides = dist.get_group_rank(self.group, dist.get_rank()) == 0
        self._new_scheduler = new_scheduler
        self._pass: _BackwardPass | None = None

    def submit(self, bucket: Bucket) -> torch.futures.Future[torch.Tensor]:
        """Queue a bucket; the future completes with its buffer, which then holds the average.

        Raises:
            RuntimeError: an earlier backward pass failed, or did not submit all of its buckets.

        """
        if self._pass is None or self._pass.complete:
            scheduler = self._new_scheduler() if self.decides else None
            self._pass = _BackwardPass(self.group, scheduler, self.timeout, self._pass)
        return self._pass.add(bucket)


class _BackwardPass:
    """The buckets of one backward pass, and the thread that submits their partitions.

    Args:
        group: the process group whose stream carries the partitions.
        scheduler: the scheduler on rank 0; None on the other ranks.
        timeout: seconds that each wait may take.
        previous: the previous pass, which may not have received the announcement of its end yet.

    """

    def __init__(
        self, group: dist.ProcessGroup, scheduler: Scheduler | None, timeout: float, previous: _BackwardPass | None
    ) -> None:
        self._group = group
        self._scheduler = scheduler
        self._timeout = timeout
        self._changed = threading.Condition()  # guards the members below
        self._buckets: dict[int, _Ready] = {}
        self._expected: int | None = None  # number of buckets, once the last has come
        self._in_flight: list[Partition] = []
        self._error: Exception | None = None
        before = None if previous is None else previous._thread
        self._thread: threading.Thread = threading.Thread(
            target=self._run, args=(before,), name="switchml-priority", daemon=True
        )
        self._thread.start()

    @property
    def complete(self) -> bool:
        """True if all buckets have come and hold their averages."""
        with self._changed:
            return self._all_came() and all(b.averaged == b.buffer.numel() for b in self._buckets.values())

    def add(self, bucket: Bucket) -> torch.futures.Future[torch.Tensor]:
        """Add a bucket that is ready on this rank."""
        index, buffer = bucket.index(), bucket.buffer()
        with self._changed:
            if self._error is not None:
                raise RuntimeError("averaging an earlier bucket failed; start the job again") from self._error
            if index in self._buckets:
                raise RuntimeError(
                    f"bucket {index} came again before its backward pass was complete: either that pass raised on this "
                    "rank (start the job again), or one PriorityState serves two models (make one for each)"
                )
        if self._scheduler is not None:
            self._scheduler.ready(bucket)  # without the lock, because it may ask the user for a priority
        devices = [buffer.device] if buffer.is_cuda else None
        ready = _Ready(buffer, torch.futures.Future(devices=devices))
        if buffer.is_cuda:
            ready.made = torch.cuda.current_stream(buffer.device).record_event()
        with self._changed:
            self._buckets[index] = ready
            if bucket.is_last():
                self._expected = index + 1
            error = self._error
            self._changed.notify_all()
        if error is not None:  # set after the check above
            ready.future.set_exception(error)
        elif buffer.numel() == 0:
            ready.future.set_result(buffer)
        return ready.future

    def _all_came(self) -> bool:
        return len(self._buckets) == self._expected

    def _run(self, before: threading.Thread | None) -> None:
        try:
            if before is not None:
                before.join(self._timeout)  # it may not have received the announcement of its end yet
            self._follow()
        except Exception as error:  # raised again where the gradients are waited for
            self._fail(error)

    def _follow(self) -> None:
        """Announce (rank 0) or receive, and submit, partition by partition: the same calls on every rank."""
        current: Partition | None = None
        kind = _NOTHING
        while kind != _END:
            chosen = self._decide(self._scheduler, current) if self._scheduler is not None else _HEARD
            announcement = torch.tensor(chosen, dtype=torch.int64)
            heard = dist.broadcast(announcement, group_src=0, group=self._group, async_op=True)
            if current is not None:
                self._average(current)
            heard.wait()
            kind, *place = announcement.tolist()
            current = Partition(*place) if kind == _PARTITION else None

    def _decide(self, scheduler: Scheduler, current: Partition | None) -> tuple[int, int, int, int]:
        """Choose the partition after `current`, which is submitted next; if there is neither, wait for a bucket.

        The choice is made as late as the stream allows, so that an urgent bucket that becomes ready by then goes first.
        """
        with self._changed:
            self._wait_until(lambda: scheduler.may_start(self._in_flight), "a place in the stream")
            if current is None:
                self._wait_until(lambda: self._all_came() or scheduler.waits, "the next bucket")
            partition = scheduler.next()
            if partition is None:
                return (_END if self._all_came() else _NOTHING, *_NO_PARTITION)
            return (_PARTITION, partition.bucket, partition.start, partition.elements)

    def _average(self, partition: Partition) -> None:
        """Submit a partition as soon as this rank has its bucket."""
        with self._changed:
            self._wait_until(lambda: partition.bucket in self._buckets, f"bucket {partition.bucket}")
            bucket = self._buckets[partition.bucket]
            self._in_flight.append(partition)
        end = partition.start + partition.elements
        if end > bucket.buffer.numel():
            raise RuntimeError(
                f"bucket {partition.bucket} has {bucket.buffer.numel()} elements on this rank, and {end} or more on "
                "rank 0: the ranks' models differ, or their buckets do (bucket_cap_mb)"
            )
        if bucket.made is not None:
            torch.cuda.current_stream(bucket.buffer.device).wait_event(bucket.made)
        piece = bucket.buffer[partition.start : end]
        work = dist.all_reduce(piece, op=dist.ReduceOp.AVG, group=self._group, async_op=True)
        work.get_future().add_done_callback(lambda future: self._take(future, bucket, partition))

    def _take(self, future: torch.futures.Future[object], bucket: _Ready, partition: Partition) -> None:
        """Record that a partition has ended (callback)."""
        try:
            future.wait()
        except Exception as error:  # raised again where the gradients are waited for
            self._fail(error)
            return
        with self._changed:
            self._in_flight.remove(partition)
            bucket.averaged += partition.elements
            if bucket.made is not None:
                bucket.delivered.append(torch.cuda.current_stream(bucket.buffer.device).record_event())
            whole = bucket.averaged == bucket.buffer.numel()
            self._changed.notify_all()
        if whole:
            for event in bucket.delivered:
                torch.cuda.current_stream(bucket.buffer.device).wait_event(event)
            bucket.future.set_result(bucket.buffer)

    def _fail(self, error: Exception) -> None:
        """Make every wait for gradients of this pass raise `error`."""
        with self._changed:
            if self._error is not None:
                return
            self._error = error
            self._changed.notify_all()
            unfinished = [b for b in self._buckets.values() if b.averaged < b.buffer.numel()]
        for bucket in unfinished:
            bucket.future.set_exception(error)

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for `condition` with the lock held; raise after the timeout or an error."""
        ended = self._changed.wait_for(lambda: self._error is not None or condition(), self._timeout)
        if self._error is not None:
            raise self._error
        if not ended:
            raise TimeoutError(f"after {self._timeout:g} s the priority hook still waits for {what}")
