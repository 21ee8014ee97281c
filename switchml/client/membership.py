"""A process's membership in a job: the current epoch, the error that calls raise, and the threads that wait for calls.

A training process uses it through `Communicator` and `Work`.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Final, ParamSpec, TypeVar

from switchml import _native
from switchml.client import lifetime
from switchml.client.agent_connection import AgentConnection, Attachment, JobFailure
from switchml.client.calls import Call
from switchml.client.epoch_calls import EpochCalls, Submitted, communicator_over
from switchml.client.errors import (
    CollectiveTimeout,
    CommunicatorClosed,
    IntegrityError,
    NonFiniteError,
    RankClosed,
    SwitchMLError,
    WorldChanged,
    with_remark,
)
from switchml.client.failures import error_of, world_changed
from switchml.common.job_numbers import rank_numbers

__all__ = ["Membership"]

P = ParamSpec("P")
T = TypeVar("T")

_ASK_SECONDS: Final = 4.0  # for the agent to name the missing ranks after a timeout
_VERDICT_SECONDS: Final = 12.0  # more than the control thread waits for the reason of a failure
_LEAVE_SECONDS: Final = 5.0  # for other threads to stop waiting when the membership ends


class Membership:
    """A rank of a job, from its attachment to its end. No callback is called while the lock is held."""

    def __init__(self, connection: AgentConnection, attachment: Attachment, native: _native.Communicator) -> None:
        self._connection = connection
        self._pid = os.getpid()
        # Guards the members below. Frequent operations take this lock instead of `_state`, because entering a condition
        # takes an additional call in Python.
        self._lock = threading.RLock()
        self._state = threading.Condition(self._lock)
        self._calls = EpochCalls(attachment, native)
        self._error: SwitchMLError | None = None
        self._unseen: WorldChanged | None = None  # a change that no call has raised yet
        self._on_change: list[Callable[[WorldChanged], None]] = []
        self._asking = 0  # threads whose call has timed out and that ask for the missing ranks
        self._deferred: SwitchMLError | None = None  # the error that arrived while they asked
        self._on_failure: list[Callable[[SwitchMLError], None]] = []
        self._failed_here = False  # by a timeout, which the other ranks do not notice
        self._closed = False
        self._waiters = 0
        connection.start(
            native.attention_fd,
            # The control thread must not keep the membership alive.
            _weakly(self._take_failure),
            _weakly(self._report_check),
            _weakly(self._ranks_closed),
            _weakly(self._move),
        )
        lifetime.track(self)

    # ---- the current epoch -------------------------------------------------------------------------------------------

    @property
    def attachment(self) -> Attachment:
        """The job and the rank in the current epoch."""
        return self._calls.attachment

    @property
    def native(self) -> _native.Communicator:
        """The native communicator of the current epoch."""
        return self._calls.native

    @property
    def calls(self) -> EpochCalls:
        """The calls of the current epoch."""
        return self._calls

    @property
    def failure(self) -> SwitchMLError | None:
        """The error that the next call will raise; None while the membership is usable."""
        with self._state:
            return self._error or self._unseen or self._calls.lacks_ranks(self._calls.made)

    @property
    def description(self) -> str:
        """The rank and the job, in words."""
        return f"rank {self.attachment.rank} of job {self.attachment.name!r}"

    @property
    def condition(self) -> str:
        """The state in one word: "ready", "closed" or the name of an error."""
        return "closed" if self._closed else type(self._error).__name__ if self._error else "ready"

    def on_failure(self, callback: Callable[[SwitchMLError], None]) -> None:
        """Call `callback` with the error that ends all calls: now if there is one, or as soon as there is."""
        with self._state:
            error = self._error
            if error is None:
                self._on_failure.append(callback)
        if error is not None:
            callback(error)

    def on_change(self, callback: Callable[[WorldChanged], None]) -> None:
        """Call `callback` after each change to another epoch."""
        with self._state:
            self._on_change.append(callback)

    # ---- calls -------------------------------------------------------------------------------------------------------

    def submit(self, call: Call, timeout: float, awaited: bool) -> tuple[EpochCalls, Submitted]:
        """Submit a call, which may take `timeout` seconds; return it and its epoch.

        If it is `awaited`, this thread must wait for it next: it may begin only there.

        Raises:
            SwitchMLError: the job cannot continue.
            ValueError: some of the memory belongs to a call that has not ended.

        """
        self._require_own_process()
        with self._lock:
            calls = self._calls
            error, self._unseen = self._error or self._unseen or calls.lacks_ranks(calls.made), None
            if error is not None:
                raise with_remark(error, f"This {call.operation} was not started, and its array is unchanged.")
            return calls, calls.submit(call, timeout, awaited)

    def has_ended(self, calls: EpochCalls, submitted: Submitted) -> bool:
        """Return, without waiting, whether a call has ended, with success or failure."""
        if submitted.outcome is not None:
            return True
        self._require_own_process()
        with self._lock:
            return submitted.outcome is not None or calls.has_ended(submitted.call.sequence)

    def ends_within(self, calls: EpochCalls, submitted: Submitted, seconds: float) -> bool:
        """Wait at most `seconds`, and return whether a call has ended."""
        self._require_own_process()
        self._begin_waiting()
        try:
            return submitted.outcome is not None or calls.native.wait(submitted.call.sequence, seconds)
        finally:
            self._end_waiting()

    def wait(self, calls: EpochCalls, submitted: Submitted) -> None:
        """Wait for the end of a call, until its timeout.

        An exception of a signal handler ends only this wait: the call goes on, and can be waited for again.

        Raises:
            NonFiniteError: a rank contributed NaN or infinity.
            SwitchMLError: the call has failed.

        """
        self._require_own_process()
        call = submitted.call
        self._begin_waiting()
        try:
            if submitted.outcome is None:
                remaining = max(0.0, submitted.deadline - time.monotonic())
                if not calls.native.wait(call.sequence, remaining):
                    self._time_out(calls, submitted)
                with self._lock:
                    calls.finish(submitted)
        finally:
            self._end_waiting()
        outcome = submitted.outcome
        assert outcome is not None
        if outcome.status == "failed":
            raise with_remark(self._reason(calls, call), f"The array of {call}, which did not complete, is undefined.")
        if outcome.status == "non_finite":
            indices, count = tuple(outcome.non_finite_indices), outcome.non_finite_count
            places = ", ".join(map(str, indices)) + (
                f" and {count - len(indices)} more" if count > len(indices) else ""
            )
            raise NonFiniteError(
                f"a rank contributed NaN or infinity to {call}, at index {places} of the flattened array. "
                "The result is NaN in these places and right in all others; the communicator remains usable.",
                indices,
                count,
            )

    # The native code is not closed between these two. They are not a context manager, because that would take a tenth
    # of a call's time in Python.
    def _begin_waiting(self) -> None:
        with self._lock:
            self._waiters += 1

    def _end_waiting(self) -> None:
        with self._lock:
            self._waiters -= 1
            if self._closed and self._waiters == 0:
                self._state.notify_all()

    def _require_own_process(self) -> None:
        if os.getpid() != self._pid:
            raise CommunicatorClosed(f"{_forked_from(self._pid)} No array was changed.")

    # ---- failing -----------------------------------------------------------------------------------------------------

    def _time_out(self, calls: EpochCalls, submitted: Submitted) -> None:
        """Fail, unless the call ends while the agent is asked who is missing."""
        with self._state:
            self._asking += 1
        ranks = self._connection.missing(_ASK_SECONDS)
        ended = calls.native.wait(submitted.call.sequence, 0.0)
        with self._state:
            self._asking -= 1
            deferred, self._deferred = self._deferred, None
        if deferred is not None and (ended or not ranks):
            self._fail(deferred)
        if ended:
            return
        late = f"rank {rank_numbers(ranks)} had not taken part"
        missing = late if ranks else "which ranks were missing is not known"
        seconds = round(submitted.timeout, 2)
        self._fail(
            CollectiveTimeout(
                f"{submitted.call} of {self.description} was not complete after {seconds:g} s; {missing}. "
                "Check the state of the ranks (`switchml-ctl job show`), allow more time, or start the job again.",
                ranks,
            ),
            here=True,
        )

    def _fail(self, error: SwitchMLError, here: bool = False) -> None:
        """End all calls; all later calls raise the first error. The lock must not be held."""
        with self._state:
            if self._error is None:
                self._error, self._failed_here = error, here
            callbacks, self._on_failure = self._on_failure, []
            self._state.notify_all()
            native = self._calls.native
        native.abandon()
        for callback in callbacks:
            callback(error)

    def _reason(self, calls: EpochCalls, call: Call) -> SwitchMLError:
        """Return the error of a failed call; wait for it, because it may arrive after the failure itself."""
        with self._state:
            closed = calls.lacks_ranks(call.sequence)
            if closed is not None:
                return closed
            known = self._state.wait_for(lambda: calls.error or self._error, _VERDICT_SECONDS)
        if not known:
            self._fail(IntegrityError(f"a result of {self.description} is wrong; start the job again."), here=True)
        with self._state:
            if calls.error is not None:
                if self._unseen is calls.error:
                    self._unseen = None
                return calls.error
            assert self._error is not None
            return self._error

    def _report_check(self) -> None:
        """Ask the controller, through the agent, for the cause of a failed check (control thread)."""
        with self._state:
            calls = self._calls
        failure = calls.native.check_failure()
        if failure is None:
            return
        position, ticket = failure
        with self._state:
            call = calls.suspect = calls.find(ticket)
        if call is not None:
            self._connection.check_failed(position, call.to_message())

    def _ranks_closed(self, ranks: tuple[int, ...], made: int) -> None:
        """Let the calls fail in which ranks do not take part that have closed (control thread)."""
        with self._state:
            error = RankClosed(
                f"{self.description}: rank {rank_numbers(ranks)} has closed its communicator after {made} calls, so no "
                "later call can end. Make the same number of calls on all ranks: one may have had fewer batches than "
                "the others, or have left its loop early.",
                ranks,
            )
            self._calls.ranks_closed(error, made)

    def _take_failure(self, failure: JobFailure) -> None:
        """Set the error of all calls from the agent's report (control thread)."""
        with self._state:
            error = error_of(failure, self.description, self._calls.suspect or self._calls.first)
            if (
                self._asking
            ):  # a call has timed out already: the loss of a rank that gave up is a consequence, not the cause
                self._deferred = error
                return
        self._fail(error)

    # ---- another epoch, and the end ----------------------------------------------------------------------------------

    def _move(self, attachment: Attachment, descriptors: Sequence[int], loss: JobFailure) -> int:
        """Continue in another epoch (control thread); return the attention descriptor of its native communicator.

        Unfinished calls of the old epoch fail with `WorldChanged`: the same ones on all ranks.
        """
        native = communicator_over(attachment, descriptors)
        with self._state:
            old, self._calls = self._calls, EpochCalls(attachment, native)
            completed = old.settle()
            error = world_changed(loss, f"rank {old.attachment.rank} of job {attachment.name!r}", attachment, completed)
            old.error = error
            if self._error is None:
                self._unseen = error
            else:
                native.abandon()
            self._state.notify_all()
            callbacks = list(self._on_change)
        for callback in callbacks:
            callback(error)
        return native.attention_fd

    def end(self, loss: str = "") -> None:
        """End the membership; with a `loss`, report this rank as lost for that reason. Idempotent."""
        if os.getpid() != self._pid:
            return
        with self._state:
            if self._closed:
                return
            self._closed = True
            if self._failed_here:
                loss = str(self._error)
            elif self._error is None:
                if not self._calls.all_ended:
                    loss = loss or "it closed its communicator with calls unfinished"
                self._error = CommunicatorClosed(
                    f"the communicator of {self.description} was closed; connect to a new job."
                )
            calls = self._calls
        calls.native.abandon()
        with self._state:
            self._state.wait_for(lambda: self._waiters == 0, _LEAVE_SECONDS)
            calls.finish_all()
        self._connection.close(calls.attachment.epoch, calls.made, loss)
        self._calls.native.close()
        lifetime.forget(self)

    def disown(self) -> None:
        """Leave the membership to the parent process."""
        self._connection.disown()
        self._lock = threading.RLock()  # a thread of the parent may have held the old one
        self._state = threading.Condition(self._lock)
        self._error = self._error or CommunicatorClosed(_forked_from(self._pid))

    def __del__(self) -> None:
        if hasattr(self, "_waiters"):  # construction has finished
            self.end()


def _weakly(method: Callable[P, T]) -> Callable[P, T | None]:
    """Return a function that calls a method as long as its object lives, and does not keep that alive."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: P.args, **options: P.kwargs) -> T | None:
        alive = reference()
        return None if alive is None else alive(*arguments, **options)

    return call


def _forked_from(pid: int) -> str:
    return (
        f"this communicator belongs to process {pid}, from which this one was forked; a rank is one process: connect "
        "in the child instead (start it with the spawn method)."
    )
