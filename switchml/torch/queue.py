"""The network collectives of a process group, which start and end in the order of their calls.

A call is submitted by the thread that makes it, so that several calls stream back to back. If its start has to wait
(for a job that begins with the group's first collective, for a copy from a CUDA device, for the exponent of a float64
tensor, for an earlier sum that tells its path, or for the rounds of an exact sum over Gloo), a second thread starts it,
and later calls queue up behind it: every rank keeps the order of the calls. Large sums of int64 may go over Gloo, in
that order too (`long_sums`).
A third thread waits for results, without the GIL, and completes the calls in the same order.

No wait takes longer than the call has for which it is made: each looks at the deadline of that call, and a call that
has not ended shortly after its deadline is ended whatever those threads wait for (`deadlines`).
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import torch

from switchml import lifetime
from switchml._native import MAX_WORLD_SIZE
from switchml.communicator import Communicator
from switchml.errors import (
    CollectiveMismatch,
    CollectiveTimeout,
    CommunicatorClosed,
    ConnectError,
    JobEnded,
    NonFiniteError,
    RankClosed,
    SwitchLost,
    SwitchMLError,
    UnsupportedTensor,
    WorkerLost,
    with_remark,
)
from switchml.in_flight import MemoryInFlight
from switchml.torch.collectives import Collective
from switchml.torch.deadlines import GRACE_SECONDS, Deadline, look_at
from switchml.torch.disagreement import other_calls
from switchml.torch.errors import SwitchMLBackendError, backend_error, forked_error, remember
from switchml.torch.exact_network import ExactNetwork, Job
from switchml.torch.joining import Group, NotJoined, RanksAbsent, RanksDisagree, join
from switchml.torch.leaving import RanksMissing, Stall, Standing, agree_to_leave
from switchml.torch.long_sums import LongSums
from switchml.torch.options import Fallback
from switchml.torch.paths import EMBEDDED, Link
from switchml.torch.statistics import count
from switchml.work import Work

__all__ = ["NetworkQueue"]

_LOG = logging.getLogger("switchml.torch")
_LOOK_SECONDS: Final = 1.0  # between two checks whether results come, if there is a fallback
_STALL_LOOKS: Final = 5  # checks without a result after which this rank reports that it gets none
_JOIN_SECONDS: Final = 5.0  # for threads to end
_REPORT_SECONDS: Final = 3.0  # for the job to report the loss that made Gloo fail


class NetworkQueue:
    """The network collectives of one process group. Any thread may call `submit`, in the same order on all ranks."""

    def __init__(
        self,
        group: Group,
        fallback: Fallback,
        make_gloo: Callable[[timedelta], Any],
        default_link: Callable[[], Link],
        priority: int = 0,
    ) -> None:
        """Make a queue that joins the network with its first collective, or with `join`.

        Args:
            group: the process group.
            fallback: continue over Gloo if the network is lost.
            make_gloo: makes a Gloo group for this queue only, within a time; all ranks call it at the same point.
            default_link: returns the link of the default group.
            priority: of the group's job.

        """
        self._group = group
        self._priority = priority
        self._fallback = fallback is not None
        self._fallback_is_exact = fallback == "gloo-exact" and group.size <= MAX_WORLD_SIZE
        self._make_gloo = make_gloo
        self._default_link = default_link
        self._pid = os.getpid()
        self._state = threading.Condition()  # guards the members below
        self._comm: Communicator | None = None
        self._gloo: Any = None
        self._exact: ExactNetwork | None = None  # over this Gloo group
        self._error: SwitchMLBackendError | None = None
        self._trouble: SwitchMLError | None = None  # noticed, but not handled yet
        self._why_gloo = ""
        self._job = ""
        self._link = Link()
        self._long_sums = LongSums(group.size)
        self._sums_gloo: Any = None  # for long sums only, so that their order does not depend on that of other calls
        self._waiting: deque[Collective] = deque()  # not started yet
        self._starting = False
        self._in_flight: deque[Collective] = deque()
        self._memory: MemoryInFlight[Collective] = MemoryInFlight(lambda ended: bool(ended.work.is_completed()))
        self._finished = 0  # number of collectives that have ended
        self._kept: deque[tuple[int, Collective]] = deque()  # ended, but other ranks may lack their results
        self._chunks = 0  # chunks of all ended collectives
        self._closed = False
        self._looked_at = math.inf  # the time at which late calls are ended next
        self._threads: list[threading.Thread] = []
        lifetime.track(self)

    # ---- calls -------------------------------------------------------------------------------------------------------

    def join(self) -> None:
        """Join the network now.

        Raises:
            SwitchMLBackendError: the group cannot be a job, and there is no fallback.

        """
        self._establish(Deadline.after(self._group.timeout), required=not self._fallback)
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
            if self._error is not None:
                raise self._error
            if self._closed:
                raise SwitchMLBackendError(f"switchml: {self._group} was destroyed", reason="CommunicatorClosed")
            self._start_threads()
            # The ranks behind may need results from the network again, so a group with a fallback stays there.
            turn = None if self._fallback else self._long_sums.next_turn(collective.long_bytes)
            collective.turn = turn
            established = self._comm is not None or self._gloo is not None
            waits = collective.waits or self._waiting or self._trouble is not None or self._exact is not None
            at_once = established and not waits and self._has_path(collective) and not self._lacks_gloo(collective)
            alone = self._comm is not None and not self._fallback and not self._in_flight
            here = at_once and synchronous and alone
            try:
                self._memory.claim(collective.ranges, collective, collective.reads)
                started = at_once and self._start(collective, here)
            except BaseException:
                if collective.handles:  # a signal handler raised after the start: the collective goes on
                    self._in_flight.append(collective)
                    self._state.notify_all()
                else:
                    self._memory.release(collective.ranges, collective)
                raise
            self._long_sums.take(turn)
            if not here and collective.deadline.at + GRACE_SECONDS < self._looked_at:
                self._look_at(collective.deadline.at + GRACE_SECONDS)
            if not started:
                self._waiting.append(collective)
            elif not here:
                self._in_flight.append(collective)
            here = here and started
            if not here:
                self._state.notify_all()
        if here:
            self._finish_here(collective)

    def _finish_here(self, collective: Collective) -> None:
        """Complete the only collective in flight without the help of the other threads."""
        try:
            non_finite = _all_ended(collective)
        except BaseException as error:
            if isinstance(error, SwitchMLError):
                cause: BaseException = self._explained(error, collective)
            elif isinstance(error, Exception) and any(map(_has_failed, collective.handles)):
                cause = self._cause_of(error)
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
            self._looked_at = math.inf
            if not calls:
                return
            late = min(calls, key=lambda collective: collective.deadline.at)
            when = late.deadline.at + GRACE_SECONDS
            if time.monotonic() < when:
                self._look_at(when)
                return
            timeout = CollectiveTimeout(
                f"{late.name} was not complete after {late.deadline.timeout:g} s, and after {GRACE_SECONDS:g} s more "
                "this process still waits for another rank, or for the process that holds the store of the group. "
                "Check whether all ranks run, or allow more time (the group's timeout)."
            )
            self._fail_all(self._as_backend_error(timeout))

    def _look_at(self, when: float) -> None:
        self._looked_at = when
        look_at(self, when)

    def _complete(self, collective: Collective, error: SwitchMLBackendError | None = None) -> None:
        with self._state:
            self._memory.release(collective.ranges, collective)
            if collective.turn is not None:
                self._long_sums.ended(collective.turn, collective.wire_bytes)
                self._state.notify_all()
        if error is not None and not self._closed:
            remember(error)
        collective.complete(error)

    def _delivered(self, collective: Collective, non_finite: bool) -> SwitchMLBackendError | None:
        """Write the results of an ended collective; if that fails, return the error, which affects only this one."""
        try:
            with torch.inference_mode():
                non_finite |= collective.finish()
        except Exception as error:
            return self._as_backend_error(error)
        if non_finite:
            count("non_finite_results")
        return None

    @property
    def fallback(self) -> bool:
        """True if results are kept and contributions copied, so that Gloo can continue if the network is lost."""
        return self._fallback

    @property
    def link(self) -> Link:
        """Properties of the path to the switch that all ranks share; unknown before the queue has joined."""
        return self._link

    @property
    def round_trips(self) -> tuple[float, int]:
        """See `Communicator.round_trips`; 0 and 0 without one."""
        with self._state:
            return self._comm.round_trips if self._comm is not None else (0.0, 0)

    @property
    def state(self) -> str:
        """See `SwitchMLProcessGroup.state`."""
        with self._state:
            if self._error is not None:
                return f"failed: {self._error}"
            if self._gloo is not None:
                return f"{'gloo' if self._exact is None else 'gloo-exact'}: {self._why_gloo}"
            return "not joined yet" if self._comm is None else "network"

    @property
    def error(self) -> SwitchMLBackendError | None:
        """The error that later calls will raise; None while the queue is usable."""
        with self._state:
            return self._error

    @property
    def job(self) -> str:
        """The name of the group's job; empty if it has none."""
        return self._job

    def end(self, loss: str = "") -> None:
        """Leave the job; with a `loss`, report this rank as lost for that reason. Idempotent."""
        with self._state:
            self._closed = True
            comm = self._comm
            self._state.notify_all()
        if comm is not None:
            comm.end(loss)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_JOIN_SECONDS)
        with self._state:
            self._comm = None  # torch keeps groups that were not destroyed beyond the end of the interpreter
            self._fail_all(self._destroyed())
        lifetime.forget(self)

    def disown(self) -> None:
        """Leave everything to the parent process, because the threads exist only there."""
        self._state = threading.Condition()  # a thread of the parent may have held the old one
        self._closed, self._comm = True, None
        self._error = self._error or forked_error(str(self._group), self._pid)

    # ---- joining -----------------------------------------------------------------------------------------------------

    def _establish(self, deadline: Deadline, required: bool) -> None:
        """Join the job of the group; if that fails, use Gloo if it is allowed."""
        try:
            comm, self._link = join(self._group, deadline, self._priority)
        except NotJoined as error:
            if required:
                raise self._as_backend_error(error) from error
            count("gloo_groups")
            self._use_gloo(str(error), deadline)
            if self._group.rank == 0:
                _LOG.warning("%s uses Gloo for everything: %s", self._group, error)
            return
        except (RanksAbsent, RanksDisagree, ConnectError) as error:
            raise self._as_backend_error(error) from error
        count("network_groups")
        with self._state:
            self._comm, self._job = comm, comm.name
            self._long_sums.begin(self._link.medium)
            closed, failed = self._closed, self._error
        if closed or failed is not None:
            comm.end(str(failed or ""))
        elif self._fallback:
            comm.on_failure(self._note)

    def _use_gloo(self, why: str, deadline: Deadline) -> None:
        gloo = self._make_gloo(deadline.left)
        exact = self._exact_network(gloo)
        with self._state:
            self._gloo, self._exact, self._why_gloo = gloo, exact, why
            self._state.notify_all()

    def _exact_network(self, gloo: Any) -> ExactNetwork | None:
        """Return what continues the group's job, or one like that of the default group; None if it is not wanted."""
        if not self._fallback_is_exact:
            return None
        links = (self._link, self._default_link(), EMBEDDED)
        values, optional_values = next((link.values, link.optional_values) for link in links if link.values)
        return ExactNetwork(gloo, Job(self._group.rank, self._group.size, values, optional_values))

    def _note(self, error: SwitchMLError) -> None:
        """Handle a failure of the communicator, also while this rank has no collective in flight."""
        with self._state:
            if self._comm is not None and not self._closed:
                self._trouble = self._trouble or error
                self._state.notify_all()

    # ---- starting ----------------------------------------------------------------------------------------------------

    def _start_threads(self) -> None:
        if self._threads:
            return
        for name, target in (("starter", self._start_in_order), ("waiter", self._complete_in_order)):
            thread = threading.Thread(target=target, name=f"switchml-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _has_path(self, collective: Collective) -> bool:
        """Return whether the path of a collective is known; `_state` must be held."""
        return self._comm is None or self._long_sums.path(collective.turn) is not None

    def _lacks_gloo(self, collective: Collective) -> bool:
        """Return whether a collective of a job goes over a Gloo group that has to be made; `_state` must be held."""
        over_gloo = self._comm is not None and self._long_sums.path(collective.turn) == "gloo"
        return over_gloo and self._sums_gloo is None

    def _start(self, collective: Collective, awaited: bool = False) -> bool:
        """Start a collective over the network or Gloo, as the group does now; return whether that was possible.

        If it is `awaited`, this thread must wait for it next.
        """
        with self._state:
            comm, gloo, exact = self._comm, self._gloo, self._exact
            over_gloo = comm is not None and self._long_sums.path(collective.turn) == "gloo"
        try:
            if over_gloo:
                collective.start_over_gloo(self._sums_gloo)
                count("gloo_calls")
                count("long_sums_over_gloo")
                return True
            if comm is not None:
                collective.start(comm.awaited if awaited else comm)
                count("network_calls")
                count("network_bytes", collective.bytes)
                return True
            if gloo is not None:
                if exact is not None:
                    collective.start_again(exact)
                else:
                    collective.start_over_gloo(gloo)
                count("gloo_calls")
                return True
        except UnsupportedTensor:
            raise
        except SwitchMLError as error:
            with self._state:
                self._trouble = self._trouble or error
        return False

    def _start_in_order(self) -> None:
        """Start the collectives that had to wait (thread)."""
        while True:
            with self._state:
                self._state.wait_for(lambda: self._closed or self._can_start_next())
                if self._closed:
                    return
                collective = self._waiting[0]
                established = self._comm is not None or self._gloo is not None
                lacks_gloo = self._lacks_gloo(collective)
                self._starting = True
            error: Exception | None = None
            started = False
            try:
                if not established:
                    self._establish(collective.deadline, required=False)
                if lacks_gloo:
                    made = self._make_gloo(collective.deadline.left)
                    with self._state:
                        self._sums_gloo = made
                with torch.inference_mode():
                    started = self._start(collective)
            except Exception as unexpected:  # of Gloo or CUDA: it ends only this collective
                error = unexpected
            with self._state:
                self._starting = False
                if self._error is not None:  # `end_late_calls` has ended the collective
                    error = None
                elif started:
                    self._in_flight.append(self._waiting.popleft())
                elif error is not None:
                    self._waiting.popleft()
                    self._fail_all(self._as_backend_error(error), collective)
                self._state.notify_all()

    def _can_start_next(self) -> bool:
        """Return whether the first collective that waits can be started; `_state` must be held."""
        return bool(self._waiting) and self._trouble is None and self._has_path(self._waiting[0])

    # ---- completing --------------------------------------------------------------------------------------------------

    def _complete_in_order(self) -> None:
        """Wait for the collectives in flight, one after the other (thread)."""
        while True:
            with self._state:
                self._state.wait_for(lambda: self._closed or self._in_flight or self._trouble is not None)
                collective = self._in_flight[0] if self._in_flight else None
                trouble = self._trouble
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
                cause = self._cause_of(error)
                with self._state:
                    self._fail_all(self._as_backend_error(cause))

    def _finish(self, collective: Collective) -> None:
        """Wait for the end of the first collective in flight, and complete it."""
        over_network = self._comm is not None
        if over_network and self._fallback:
            for handle in collective.handles:
                self._watch(handle, collective.deadline)
        non_finite = _all_ended(collective)
        with self._state:
            if self._error is not None:
                return  # `end_late_calls` has ended the collective
        error = self._delivered(collective, non_finite)
        with self._state:
            if self._error is not None:
                return
            self._in_flight.popleft()
            self._finished += 1
            if over_network and self._fallback:
                self._keep(collective)
        self._complete(collective, error)

    def _keep(self, collective: Collective) -> None:
        """Keep the result for ranks that may lack it, which are less than a pool of chunks behind."""
        comm = self._comm
        if comm is None:
            return
        # A lower bound, because a word in a packet holds at most four float32; so no result is dropped too early.
        self._chunks += max(1, -(-collective.bytes // (4 * 4 * comm.values_per_packet)))
        collective.end = self._chunks
        self._kept.append((self._finished - 1, collective))
        while self._kept and self._kept[0][1].end <= self._chunks - comm.slots:
            self._kept.popleft()

    def _watch(self, handle: Any, deadline: Deadline) -> None:
        """Wait until a call of the library has ended, or all ranks find that the switch sends no results any more.

        At the deadline, `handle` itself raises the error.
        """
        comm = self._comm
        if comm is None or handle.ends_within(_LOOK_SECONDS):
            return
        stall = Stall(self._group.store, self._group.size)
        position, looks = comm.position, 0
        try:
            while not handle.ends_within(min(_LOOK_SECONDS, deadline.seconds_left)) and not deadline.passed:
                if comm.position != position:
                    position, looks = comm.position, 0
                    stall.moved()
                looks += 1
                if looks >= _STALL_LOOKS and stall.all_stand_still():
                    raise SwitchLost(
                        f"nothing came from the switch for {looks * _LOOK_SECONDS:g} s although every rank waits for it"
                    )
        finally:
            stall.moved()

    # ---- failing -----------------------------------------------------------------------------------------------------

    def _as_backend_error(self, error: BaseException) -> SwitchMLBackendError:
        return backend_error(error, str(self._group), self._group.global_ranks)

    def _cause_of(self, error: Exception) -> Exception:
        """Return the failure of the job that made Gloo fail, because it names lost ranks; otherwise `error` itself."""
        comm = self._comm
        if comm is None or isinstance(error, SwitchMLError):
            return error
        reported = threading.Event()
        comm.on_failure(lambda _: reported.set())
        reported.wait(_REPORT_SECONDS)
        return comm.failure or error

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
        self._error = self._error or error
        self._trouble = None
        failed = [*([first] if first is not None else []), *self._in_flight, *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        self._kept.clear()
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
        if self._fallback and self._comm is not None and not self._closed and not not_network:
            try:
                self._leave_network(error)
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

    def _leave_network(self, error: SwitchMLError) -> None:
        """Agree with all ranks to continue over Gloo, and give all of them the same results up to now."""
        with self._state:
            self._trouble = error  # stops the thread that starts collectives
            comm, self._comm = self._comm, None
            assert comm is not None
            calls = [*self._in_flight, *self._waiting]
            deadline = calls[0].deadline if calls else Deadline.after(self._group.timeout)
        cause = comm.failure or error
        comm.end(str(cause))
        with self._state:
            self._state.wait_for(lambda: not self._starting)
            if self._error is not None:
                return  # `end_late_calls` has ended them
        group = self._group
        mine = Standing(self._finished, f"{type(cause).__name__}: {cause}")
        suspects = [rank for rank in getattr(error, "ranks", ()) if rank != group.rank]
        standings = agree_to_leave(group.store, group.rank, group.size, mine, suspects, deadline)
        gloo = self._make_gloo(deadline.left)
        exact = self._exact_network(gloo)
        behind = min(standing.first_unfinished for standing in standings)
        ahead = max(standing.first_unfinished for standing in standings)
        _LOG.info("%s: rank %d shares the results of calls %d to %d", group, group.rank, behind, ahead - 1)
        for number in range(behind, ahead):
            giver = next(rank for rank, standing in enumerate(standings) if standing.first_unfinished > number)
            self._share(gloo, exact, number, giver, deadline)
        with self._state:
            if self._error is not None:
                return
            self._kept.clear()
            # Collectives whose result no rank has are made over Gloo, in order, before those that wait.
            self._waiting.extendleft(reversed(self._in_flight))
            self._in_flight.clear()
            if exact is not None:
                attempted = self._waiting[0].first_call if self._waiting else None
                exact.calls = comm.calls if attempted is None else attempted
            self._trouble = None
            self._gloo, self._exact, self._why_gloo = gloo, exact, _first_cause(standings)
            self._state.notify_all()
        count("fallbacks")
        if group.rank == 0:
            _LOG.warning("%s lost the network and continues over Gloo: %s", group, self._why_gloo)

    def _share(self, gloo: Any, exact: ExactNetwork | None, number: int, giver: int, deadline: Deadline) -> None:
        """Give the result of the collective `number`, which rank `giver` has, to all ranks."""
        kept = dict(self._kept).get(number)
        collective = kept or self._in_flight[0]
        collective.share(gloo, giver, exact, deadline)
        if kept is None:
            with torch.inference_mode():
                collective.deliver()
            with self._state:
                self._in_flight.popleft()
                self._finished += 1
            self._complete(collective)


def _all_ended(collective: Collective) -> bool:
    """Wait for all calls, and return whether ranks contributed NaN or infinity to any of them."""
    non_finite = [_ended_non_finite(handle) for handle in collective.handles]
    calls = [handle for handle in collective.handles if isinstance(handle, Work)]
    collective.wire_bytes = sum(call.wire_bytes for call in calls)
    count("wire_bytes", collective.wire_bytes)
    count("sparse_calls", sum(call.is_sparse for call in calls))
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


def _first_cause(standings: list[Standing]) -> str:
    """Return the reason for leaving the network; prefer others to "ranks were lost", which is mostly a consequence."""
    own = [rank for rank, standing in enumerate(standings) if not standing.reason.startswith(WorkerLost.__name__)]
    rank = own[0] if own else 0
    return f"rank {rank}: {standings[rank].reason}"
