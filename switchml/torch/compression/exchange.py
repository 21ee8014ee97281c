"""Runs the rounds of many gradients over a group, in one order on all ranks.

Each round has a separate process group, whose stream in the switch carries the requests of that round in the order in
which the gradients were submitted. A thread for each round waits for a gradient's result of the round before, continues
the compressor with it, and submits its next request; then it takes the next gradient. So the order of the calls of
every group depends on nothing but the order of the gradients, and gradients in different rounds overlap.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Generator, Sequence
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from switchml.client.arguments import positive_seconds
from switchml.torch.compression.compressor import Compressor, next_of
from switchml.torch.compression.requests import Pending, Request
from switchml.torch.device_backend import switchml_group

__all__ = ["Exchange", "end_threads"]

_END: Final = None
_END_SECONDS: Final = 5.0


class Exchange:
    """The groups and threads of one compressor.

    All ranks of the group must make this object at the same time, because it makes process groups: one for each round.
    It becomes unusable if a gradient fails on any rank.

    Attributes:
        compressor: the compressor.
        rank, size: this rank of the group, and the number of its ranks.
        groups: the process groups of the rounds.

    Args:
        compressor: its requests are the rounds.
        group: the ranks; None for all.
        timeout: seconds that a collective may take.

    Raises:
        ValueError: the compressor cannot serve this group.
        TypeError: the group is not one of SwitchML.

    """

    def __init__(self, compressor: Compressor, group: dist.ProcessGroup | None = None, timeout: float = 300.0) -> None:
        parent = dist.group.WORLD if group is None else group
        part = switchml_group(parent)
        if part is None:
            raise TypeError(
                f"compression needs a process group of the switchml backend, not {parent!r}: call "
                'init_process_group("switchml")'
            )
        compressor.check(parent.size())
        self.compressor = compressor
        self.rank, self.size = int(parent.rank()), int(parent.size())
        ranks, limit = dist.get_process_group_ranks(parent), timedelta(seconds=positive_seconds(timeout))
        # Other ranks, such as those of other columns of a mesh, make other groups at the same time, or none.
        self.groups = [
            dist.new_group(ranks, limit, "switchml", part.options, use_local_synchronization=True)
            for _ in compressor.requests
        ]
        compressor.attach(self.groups)
        self._pid = os.getpid()
        self._queues: list[SimpleQueue[_Job | None]] = []
        self._order = threading.Lock()
        self._failure = _Failure()

    def submit(
        self, rounds: Generator[Request, Tensor, Any], requests: tuple[type[Request], ...] | None = None
    ) -> Future[Any]:
        """Queue a gradient behind earlier ones; the future completes with the result of `rounds`.

        Args:
            rounds: started and continued by other threads.
            requests: the kinds of its requests; None for those of the compressor.

        Raises:
            RuntimeError: an earlier gradient failed, or this is a forked child.

        """
        if os.getpid() != self._pid:
            raise RuntimeError("this compression belongs to the parent process; make one after the fork")
        failure = self._failure.error
        if failure is not None:
            raise RuntimeError(
                f"compression of an earlier gradient failed ({failure}); start the job again"
            ) from failure
        job = _Job(rounds, self.compressor.requests if requests is None else requests, self._failure)
        with self._order:
            if not self._queues:
                self._start_threads()
            self._queues[0].put(job)
        # C++ code that waits (DDP's reducer) gets an error as such only if a callback raises it.
        return job.future.then(_value)

    def _start_threads(self) -> None:
        self._queues = [SimpleQueue() for _ in range(len(self.groups) + 1)]
        threads = [
            threading.Thread(
                target=_run_round,
                args=(number, self.groups, self._queues),
                name=f"switchml-compression-{number}",
                daemon=True,
            )
            for number in range(len(self._queues))
        ]
        for thread in threads:
            thread.start()
        # Also at the exit of the program: the interpreter would stop threads that still run inside PyTorch's C++ code,
        # which ends the process with SIGABRT.
        weakref.finalize(self, end_threads, self._queues[0], threads)


class _Failure:
    """The first error of an exchange."""

    def __init__(self) -> None:
        self.error: Exception | None = None


class _Job:
    """One gradient on its way through the rounds."""

    def __init__(
        self, rounds: Generator[Request, Tensor, Any], requests: tuple[type[Request], ...], failure: _Failure
    ) -> None:
        self.future: Future[Any] = Future()
        self._rounds = rounds
        self._requests = requests
        self._failure = failure
        self._asked: tuple[Request, Pending] | None = None
        self._ended = False

    def advance(self, number: int, groups: list[Any]) -> None:
        """Wait for the round before `number`, and start this one."""
        if self._ended:
            return
        try:
            if self._failure.error is not None:
                raise self._failure.error
            answer = None
            if self._asked is not None:
                asked, pending = self._asked
                pending.work.wait()
                answer = asked.answer(pending.result)
            request = next_of(self._rounds, answer)
            if isinstance(request, Request):
                self._start(request, number, groups)
                return
        except Exception as error:
            self._ended = True
            self._failure.error = self._failure.error or error
            self.future.set_exception(error)
        else:
            self._ended = True
            self.future.set_result(request)

    def _start(self, request: Request, number: int, groups: list[Any]) -> None:
        if number >= len(self._requests) or type(request) is not self._requests[number]:
            declared = ", ".join(kind.__name__ for kind in self._requests)
            raise TypeError(
                f"request {number} of a gradient is of the kind {type(request).__name__}; the compressor's requests "
                f"are declared as ({declared})"
            )
        self._asked = (request, request.start(groups[number]))


def _run_round(number: int, groups: list[Any], queues: list[SimpleQueue[_Job | None]]) -> None:
    """Continue each gradient from the round before `number` to this one (thread)."""
    with torch.no_grad():
        while True:
            job = queues[number].get()
            if job is not _END:
                job.advance(number, groups)
            if number + 1 < len(queues):
                queues[number + 1].put(job)
            if job is _END:
                return
            del job  # and its tensors, which would otherwise stay until the next one


def end_threads(first: SimpleQueue[Any], threads: Sequence[threading.Thread]) -> None:
    """Let the threads end, and wait until they have; one that waits for a lost rank is left behind."""
    first.put(_END)
    deadline = time.monotonic() + _END_SECONDS
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))


def _value(future: Future[Any]) -> Any:
    return future.value()
