"""The process groups of the classes, and the calls that are submitted to them."""

from __future__ import annotations

import dataclasses
import threading
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from switchml.client.schedules import MOST_CLASSES, Segment
from switchml.torch.device_backend import switchml_group

__all__ = ["Round", "Streams"]


class Round:
    """The calls of one step. `Streams.begin` makes it."""

    def __init__(self, classes: Sequence[Sequence[Segment]]) -> None:
        self.ready: set[int] = set()  # buckets whose gradients are complete on this rank
        self.left: dict[int, int] = {}  # by bucket: its segments whose results have not arrived
        for segment in (segment for of_class in classes for segment in of_class):
            self.left[segment.bucket] = self.left.get(segment.bucket, 0) + 1


@dataclasses.dataclass(frozen=True)
class _Call:
    of: Round
    segment: Segment
    tensor: Tensor
    op: Any


class Streams:
    """One process group for each class, over the same ranks, and the calls that wait for their turn.

    A call is started once all calls before it in its class are started, its bucket is ready, and the calls of its class
    and of more urgent ones that are in flight have fewer bytes than the credit. Less urgent calls are not counted: else
    two ranks could wait for each other, each with its credit taken by what the other one has not started.

    Args:
        parent: the ranks; all of them make this object at the same time.
        classes: the number of classes.
        timeout: seconds that a wait may take.

    """

    def __init__(self, parent: dist.ProcessGroup, classes: int, timeout: float) -> None:
        self._timeout = timeout
        self._groups = [_new_group(parent, number, timeout) for number in range(classes)]
        self._changed = threading.Condition()  # guards the members below
        self._waiting: list[deque[_Call]] = [deque() for _ in range(classes)]
        self._in_flight = [0] * classes  # bytes
        self._works: set[Any] = set()
        self._credit: int | None = None
        self._busy = False  # a thread is in `_start`
        self.error: Exception | None = None

    @property
    def groups(self) -> list[dist.ProcessGroup]:
        """The process groups, the most urgent first."""
        return list(self._groups)

    def begin(self, classes: Sequence[Sequence[Segment]], buffers: Sequence[Tensor], credit: int | None) -> Round:
        """Queue the calls of the next step behind those of earlier ones.

        Args:
            classes: the segments of each class; the same on all ranks.
            buffers: flat tensors, by bucket. The elements of integers are summed, others averaged.
            credit: bytes; None for no limit.

        """
        made = Round(classes)
        with self._changed:
            self._credit = credit
            for waiting, segments in zip(self._waiting, classes, strict=False):
                waiting.extend(_call(made, segment, buffers[segment.bucket]) for segment in segments)
        return made

    def ready(self, of: Round, bucket: int) -> None:
        """Say that the gradients of a bucket are complete on this rank."""
        with self._changed:
            of.ready.add(bucket)
        self._start()

    def wait(self, of: Round, bucket: int) -> None:
        """Wait until the results of a bucket are in its buffer.

        Raises:
            RuntimeError: a call of this or an earlier step has failed.
            TimeoutError: the results have not arrived in time.

        """
        with self._changed:
            ended = self._changed.wait_for(lambda: self.error is not None or not of.left.get(bucket), self._timeout)
            if self.error is not None:
                raise RuntimeError(
                    f"averaging gradients failed ({self.error}); start the job again from a checkpoint"
                ) from self.error
            if not ended:
                raise TimeoutError(f"after {self._timeout:g} s the averages of a bucket of gradients have not arrived")

    def close(self) -> None:
        """Leave the process groups; the other ranks must do this as well."""
        for group in self._groups:
            dist.destroy_process_group(group)
        self._groups = []

    def _start(self) -> None:
        """Start all calls whose turn it is.

        Calls may end within `add_done_callback`, which comes here again: then, or if another thread is here, that one
        goes on.
        """
        with self._changed:
            if self._busy:
                return
            self._busy = True
            try:
                call = self._next()
                while call is not None and self.error is None:
                    self._submit(call)
                    call = self._next()
            except Exception as error:
                self._fail(error)
                raise
            finally:
                self._busy = False

    def _next(self) -> _Call | None:
        ahead = 0
        for number, waiting in enumerate(self._waiting):
            ahead += self._in_flight[number]
            if self._credit is not None and ahead >= self._credit:
                return None
            if waiting and waiting[0].segment.bucket in waiting[0].of.ready:
                return waiting.popleft()
        return None

    def _submit(self, call: _Call) -> None:
        priority = call.segment.priority
        self._in_flight[priority] += call.segment.size
        work = dist.all_reduce(call.tensor, op=call.op, group=self._groups[priority], async_op=True)
        self._works.add(work)
        work.get_future().add_done_callback(lambda future: self._take(future, work, call))

    def _take(self, future: torch.futures.Future[object], work: Any, call: _Call) -> None:
        """Record that a call has ended (callback)."""
        try:
            future.wait()
        except Exception as error:  # raised again where the averages are waited for
            with self._changed:
                self._fail(error)
            return
        with self._changed:
            self._works.discard(work)
            self._in_flight[call.segment.priority] -= call.segment.size
            call.of.left[call.segment.bucket] -= 1
            self._changed.notify_all()
        self._start()

    def _fail(self, error: Exception) -> None:
        self.error = self.error or error
        self._changed.notify_all()


def _call(of: Round, segment: Segment, buffer: Tensor) -> _Call:
    size = buffer.element_size()
    tensor = buffer[segment.start // size : (segment.start + segment.size) // size]
    return _Call(of, segment, tensor, dist.ReduceOp.AVG if buffer.is_floating_point() else dist.ReduceOp.SUM)


def _new_group(parent: dist.ProcessGroup, number: int, timeout: float) -> dist.ProcessGroup:
    part = switchml_group(parent)
    assert part is not None, "the optimizer has asked for a group of the switchml backend"
    options = dataclasses.replace(part.options, priority=MOST_CLASSES - 1 - number)
    ranks = dist.get_process_group_ranks(parent)
    # The ranks may come here at different times: making a group has the time that its parent's collectives have.
    group = dist.new_group(ranks, part.timeout, "switchml", options)
    group.set_timeout(timedelta(seconds=timeout))
    return group
