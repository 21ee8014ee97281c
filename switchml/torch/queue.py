"""The network collectives of a process group, which start and end in the order of their calls.

A call is submitted by the thread that makes it, so that several calls stream back to back. If its start has to wait
(for a job that begins with the group's first collective, for a copy from a CUDA device, for an earlier sum that tells
its path, or for the rounds of an exact sum over Gloo), a second thread starts it, and later calls queue up behind it:
every rank keeps the order of the calls. Large sums of int64 may go over Gloo, in that order too (`long_sums`).
A third thread waits for results, without the GIL, and completes the calls in the same order.

No wait takes longer than the call has for which it is made: each looks at the deadline of that call, and a call that
has not ended shortly after its deadline is ended whatever those threads wait for (`deadlines`).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from typing import Any, Final

import torch

from switchml.client import lifetime
from switchml.client.errors import (
    CollectiveMismatch,
    CollectiveTimeout,
    CommunicatorClosed,
    JobEnded,
    NonFiniteError,
    RankClosed,
    SwitchMLError,
    UnsupportedTensor,
    with_remark,
)
from switchml.client.in_flight import MemoryInFlight
from switchml.client.work import Work
from switchml.torch.collectives import Collective
from switchml.torch.deadlines import GRACE_SECONDS, Deadline, look_at
from switchml.torch.disagreement import other_calls
from switchml.torch.errors import SwitchMLBackendError, backend_error, forked_error, remember
from switchml.torch.group import Group
from switchml.torch.joining import Unjoined
from switchml.torch.leaving import InNetworkWithFallback, RanksMissing
from switchml.torch.long_sums import LongSums
from switchml.torch.routes import Closed, Failed, Route, When
from switchml.torch.statistics import count

__all__ = ["NetworkQueue"]

_LOG = logging.getLogger("switchml.torch")
_JOIN_SECONDS: Final = 5.0  # for threads to end


class NetworkQueue:
    """The network collectives of one process group. Any thread may call `submit`, in the same order on all ranks."""

    def __init__(self, group: Group) -> None:
        """Make a queue that joins the network with its first collective, or with `join`."""
        self._group = group
        self._pid = os.getpid()
        self._state = threading.Condition()  # guards the members below
        self._route: Route = Unjoined(group)
        self._long_sums = LongSums()
        self._waiting: deque[Collective] = deque()  # not started yet
        self._starting = False
        self._in_flight: deque[Collective] = deque()
        self._memory: MemoryInFlight[Collective] = MemoryInFlight(lambda ended: bool(ended.work.is_completed()))
        self._threads: list[threading.Thread] = []
        lifetime.track(self)

    # ---- calls -------------------------------------------------------------------------------------------------------

    @property
    def route(self) -> Route:
        """The route of the group's collectives, which may change."""
        return self._route

    def join(self) -> None:
        """Join the network now, if the group has not done so.

        Raises:
            SwitchMLBackendError: the group cannot be a job, and there is no fallback.

        """
        route = self._route
        if not isinstance(route, Unjoined):
            return
        try:
            found = route.find(Deadline.after(self._group.timeout), required=self._group.options.fallback is None)
        except SwitchMLError as error:
            raise self._as_backend_error(error) from error
        self._change(found)
        with self._state:
            self._start_threads()

    def submit(self, collective: Collective, synchronous: bool = False) -> None:
        """Start a collective, or queue it behind those that wait.

        Args:
            collective: the collective.
            synchronous: the caller waits for it at once, so that its own thread can do all of the work.

        Raises:
            SwitchMLBackendError: an earlier collective has failed, or the group was destroyed.
            ValueError: a tensor shares memory with that of a collective that has not ended.

        """
        with self._state:
            route = self._route
            if route.error is not None:
                raise route.error
            collective.turn = turn = self._long_sums.next_turn(collective.long_bytes)
            at_once = route.when(collective) is When.NOW and not self._waiting
            here = at_once and synchronous and route.finishes_here and not self._in_flight
            self._start_threads()
            try:
                self._memory.claim(collective.ranges, collective, collective.reads)
                started = at_once and self._start(route, collective, here)
            except BaseException:
                if collective.handles:  # a signal handler raised after the start: the collective goes on
                    self._in_flight.append(collective)
                    self._state.notify_all()
                else:
                    self._memory.release(collective.ranges, collective)
                raise
            self._long_sums.take(turn)
            if not (here and started):
                (self._in_flight if started else self._waiting).append(collective)
                look_at(self, collective.deadline.at_last)
                self._state.notify_all()
                return
        self._finish_here(collective)

    def _finish_here(self, collective: Collective) -> None:
        """Complete the only collective in flight without the help of the other threads."""
        try:
            non_finite = _all_ended(collective)
        except BaseException as error:
            if isinstance(error, SwitchMLError):
                cause: BaseException = self._explained(error, collective)
            elif isinstance(error, Exception) and any(map(_has_failed, collective.handles)):
                cause = self._route.cause_of(error)
            else:  # of a signal handler: another thread waits in its place
                with self._state:
                    self._in_flight.append(collective)
                    self._state.notify_all()
                raise
            with self._state:
                failure = self._destroyed() if self._closed else self._as_backend_error(cause)
                self._fail_all(failure, collective)
        else:
            self._complete(collective, self._delivered(collective, non_finite))

    def end_late_calls(self) -> None:
        """End all calls if one of them is late, because its wait does not end by itself (thread of `deadlines`)."""
        with self._state:
            calls = [*self._in_flight, *self._waiting]
            if not calls:
                return
            late = min(calls, key=lambda collective: collective.deadline.at)
            if time.monotonic() < late.deadline.at_last:
                look_at(self, late.deadline.at_last)
                return
            timeout = CollectiveTimeout(
                f"{late.name} was not complete after {late.deadline.timeout:g} s, and after {GRACE_SECONDS:g} s more "
                "this process still waits for another rank, or for the process that holds the store of the group. "
                "Check whether all ranks run, or allow more time (the group's timeout)."
            )
            self._fail_all(self._as_backend_error(timeout))

    def _complete(self, collective: Collective, error: SwitchMLBackendError | None = None) -> None:
        with self._state:
            self._memory.release(collective.ranges, collective)
            if collective.turn is not None:
                collective.turn.ended(collective.wire_bytes)
                self._state.notify_all()
        if error is not None and not self._closed:
            remember(error)
        collective.complete(error)

    def _delivered(self, collective: Collective, non_finite: bool) -> SwitchMLBackendError | None:
        """Write the results of an ended collective; if that fails, return the error, which affects only this one."""
        try:
            with torch.inference_mode():
                collective.finish()
        except Exception as error:
            return self._as_backend_error(error)
        if non_finite:
            count("non_finite_results")
        return None

    def end(self, loss: str = "") -> None:
        """Leave the job; with a `loss`, report this rank as lost for that reason. Idempotent."""
        with self._state:
            route = self._route
            if not self._closed:
                self._route = Closed(route.error or self._destroyed(), route)
            self._state.notify_all()
        route.leave_job(loss)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_JOIN_SECONDS)
        with self._state:
            self._fail_all(self._destroyed())
        lifetime.forget(self)

    def disown(self) -> None:
        """Leave everything to the parent process, because the threads exist only there."""
        self._state = threading.Condition()  # a thread of the parent may have held the old one
        self._route = Closed(self._route.error or forked_error(str(self._group), self._pid), self._route)

    # ---- the route ---------------------------------------------------------------------------------------------------

    @property
    def _closed(self) -> bool:
        return isinstance(self._route, Closed)

    def _change(self, route: Route) -> None:
        """Take another route, or leave its job if the group has failed or was destroyed while it was looked for."""
        with self._state:
            ended = self._route.error
            if ended is None:
                self._route = route
                self._state.notify_all()
        if ended is not None:
            route.leave_job("" if self._closed else str(ended))
        elif isinstance(route, InNetworkWithFallback):
            route.comm.on_failure(self._note)

    def _note(self, error: SwitchMLError) -> None:
        """Handle a failure of the communicator, also while this rank has no collective in flight."""
        with self._state:
            if isinstance(self._route, InNetworkWithFallback):
                self._route.trouble = self._route.trouble or error
                self._state.notify_all()

    # ---- starting ----------------------------------------------------------------------------------------------------

    def _start_threads(self) -> None:
        if self._threads:
            return
        for name, target in (("starter", self._start_in_order), ("waiter", self._complete_in_order)):
            thread = threading.Thread(target=target, name=f"switchml-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _start(self, route: Route, collective: Collective, awaited: bool = False) -> bool:
        """Start a collective; return False if it has to wait, for another route or because this one is in trouble.

        If it is `awaited`, this thread must wait for it next.
        """
        try:
            found = route.start(collective, awaited)
        except UnsupportedTensor:
            raise
        except SwitchMLError as error:
            with self._state:
                route.trouble = route.trouble or error
            return False
        if found is not route:
            self._change(found)
        return found is route

    def _start_in_order(self) -> None:
        """Start the collectives that had to wait (thread)."""
        while True:
            with self._state:
                self._state.wait_for(lambda: self._closed or self._can_start_next())
                if self._closed:
                    return
                route, collective = self._route, self._waiting[0]
                self._starting = True
            error: Exception | None = None
            started = False
            try:
                with torch.inference_mode():
                    started = self._start(route, collective)
            except Exception as unexpected:  # of Gloo or CUDA
                error = unexpected
            with self._state:
                self._starting = False
                if self._waiting:  # otherwise `end_late_calls` has ended the collective
                    if started:
                        self._in_flight.append(self._waiting.popleft())
                    elif error is not None:
                        self._fail_all(self._as_backend_error(error))
                self._state.notify_all()

    def _can_start_next(self) -> bool:
        """Return whether the first collective that waits can be started; `_state` must be held."""
        return bool(self._waiting) and self._route.when(self._waiting[0]) is not When.LATER

    # ---- completing --------------------------------------------------------------------------------------------------

    def _complete_in_order(self) -> None:
        """Wait for the collectives in flight, one after the other (thread)."""
        while True:
            with self._state:
                self._state.wait_for(lambda: self._closed or self._in_flight or self._route.trouble is not None)
                collective = self._in_flight[0] if self._in_flight else None
                trouble = self._route.trouble
                if collective is None and self._closed and not self._starting:
                    self._fail_all(self._destroyed())
                    return
            try:
                if collective is not None:
                    self._finish(collective)
                elif trouble is not None:
                    self._deal_with(trouble)
                else:
                    with self._state:
                        self._state.wait_for(lambda: not self._starting)
            except SwitchMLError as error:
                if isinstance(error, CommunicatorClosed) and self._closed:
                    with self._state:
                        self._fail_all(self._destroyed())
                    return
                self._deal_with(error)
            except Exception as error:  # of Gloo, or of a copy into the caller's tensors
                cause = self._route.cause_of(error)
                with self._state:
                    self._fail_all(self._as_backend_error(cause))

    def _finish(self, collective: Collective) -> None:
        """Wait for the end of the first collective in flight, and complete it."""
        self._route.wait(collective)
        non_finite = _all_ended(collective)
        with self._state:
            if not self._in_flight:
                return  # `end_late_calls` has ended the collective
        error = self._delivered(collective, non_finite)
        with self._state:
            if not self._in_flight:
                return
            self._in_flight.popleft()
            self._route.ended(collective)
        self._complete(collective, error)

    # ---- failing -----------------------------------------------------------------------------------------------------

    def _as_backend_error(self, error: BaseException) -> SwitchMLBackendError:
        return backend_error(error, str(self._group), self._group.global_ranks)

    def _explained(self, error: SwitchMLError, collective: Collective) -> SwitchMLError:
        """Return the error of a collective; if it is out of time, with the calls of other ranks if they differ."""
        if not isinstance(error, CollectiveTimeout):
            return error
        group = self._group
        remark = other_calls(group.store, group.rank, group.size, f"{collective.name} in the network")
        return with_remark(error, remark) if remark else error

    def _destroyed(self) -> SwitchMLBackendError:
        return SwitchMLBackendError(
            f"switchml: {self._group} was destroyed before this collective had ended", reason="CommunicatorClosed"
        )

    def _fail_all(self, error: SwitchMLBackendError, first: Collective | None = None) -> None:
        """End all collectives with `error`, which later calls raise too; `_state` must be held."""
        if self._route.error is None:
            self._route = Failed(error, self._route)
        failed = [*([first] if first is not None else []), *self._in_flight, *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        for collective in failed:
            self._complete(collective, error)

    def _deal_with(self, error: SwitchMLError) -> None:
        """Handle a failure of the network: continue over Gloo, or fail."""
        with self._state:
            first = self._in_flight[0] if self._in_flight else None
        failure: BaseException = error if first is None else self._explained(error, first)
        not_network = isinstance(error, (CollectiveMismatch, CollectiveTimeout, RankClosed)) or (
            isinstance(error, JobEnded) and not error.failed
        )
        route = self._route
        if isinstance(route, InNetworkWithFallback) and not not_network:
            try:
                self._leave(route, error)
            except RanksMissing as missing:
                # The library's error is more precise if it names the lost ranks.
                failure = error if getattr(error, "ranks", ()) else missing
            except Exception as unexpected:
                _LOG.exception("%s cannot continue over Gloo", self._group)
                failure = unexpected
            else:
                return
        with self._state:
            self._fail_all(self._as_backend_error(failure))

    def _leave(self, network: InNetworkWithFallback, error: SwitchMLError) -> None:
        """Continue over Gloo, together with all ranks. It shares its results even while it is destroyed."""
        cause = network.comm.failure or error
        with self._state:
            network.trouble = error  # stops the thread that starts collectives
        network.leave_job(str(cause))
        with self._state:
            self._state.wait_for(lambda: not self._starting)
            if self._route.error is not None and not self._closed:
                return  # `end_late_calls` has ended the collectives
            calls = [*self._in_flight, *self._waiting]
        deadline = calls[0].deadline if calls else Deadline.after(self._group.timeout)
        over_gloo = network.leave(cause, calls, deadline, self._complete_shared)
        with self._state:
            # Collectives whose result no rank has are made over Gloo, in order, before those that wait.
            self._waiting.extendleft(reversed(self._in_flight))
            self._in_flight.clear()
            self._change(over_gloo)
            if self._route is not over_gloo:
                return
        count("fallbacks")
        if self._group.rank == 0:
            _LOG.warning("%s lost the network and continues over Gloo: %s", self._group, over_gloo.why)

    def _complete_shared(self, collective: Collective) -> None:
        """Complete the first collective in flight, whose result another rank has given."""
        with self._state:
            if not self._in_flight:
                return  # `end_late_calls` has ended the collective
            self._in_flight.popleft()
        self._complete(collective)


def _all_ended(collective: Collective) -> bool:
    """Wait for all calls, and return whether ranks contributed NaN or infinity to any of them."""
    non_finite = [_ended_non_finite(handle) for handle in collective.handles]
    count("wire_bytes", collective.wire_bytes)
    count("sparse_calls", sum(handle.is_sparse for handle in collective.handles if isinstance(handle, Work)))
    return any(non_finite)


def _has_failed(handle: Any) -> bool:
    """Return whether a call over Gloo has failed; those of the library raise its own errors."""
    return not isinstance(handle, Work) and handle.is_completed() and not handle.is_success()


def _ended_non_finite(handle: Any) -> bool:
    """Wait for a call, and return whether ranks contributed NaN or infinity, which is not an error here."""
    try:
        handle.wait()
    except NonFiniteError:
        return True
    return False
