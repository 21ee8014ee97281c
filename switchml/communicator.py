"""The communicator: what a training process calls."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Literal, overload

from switchml import _native, lifetime
from switchml.agent_connection import AgentConnection, Attachment, Failure
from switchml.arguments import positive_seconds, whole_number
from switchml.calls import REDUCTIONS, Call, Operation
from switchml.errors import (
    CollectiveTimeout,
    CommunicatorClosed,
    IntegrityError,
    NonFiniteError,
    SwitchMLError,
    UnsupportedTensor,
    WorldChanged,
    with_remark,
)
from switchml.failures import error_of, world_changed
from switchml.generation import Generation
from switchml.membership import Membership
from switchml.tensors import Buffer, Tensor, buffer_of
from switchml.work import Work

__all__ = ["DEFAULT_TIMEOUT", "Communicator", "Work"]

DEFAULT_TIMEOUT: Final = 300.0  # seconds that a collective may take
_ASK_SECONDS: Final = 1.0  # for the names of the missing ranks, once a collective is out of time
_VERDICT_SECONDS: Final = 12.0  # more than the control thread waits for the reason of a failure
_LEAVE_SECONDS: Final = 5.0  # for other threads to leave their waits when the communicator is closed


class Communicator(Membership):
    """A process's rank in a job: collectives over all of its ranks, summed in the switch. Made by `switchml.connect`.

    All ranks make the same calls in the same order; any number may be in flight (``async_op=True``), and they end in
    that order. A communicator may be used from several threads as long as these keep that order, but not from a
    forked child.

    Sums of int32 are exact modulo 2^32. Sums of float32 are exact up to a bound: with N ranks, and M the power of two
    above the largest magnitude in a block (the values of one packet) of any rank, a sum differs from the exact one by
    at most N/2 * M * 2^-(31 - ceil(log2 N)) plus half a unit in the last place of the float32 result; a sum beyond
    float32 is infinite. An average is that of the sum before it is rounded, so it is finite where the average is a
    float32. The same holds for float16 and bfloat16, with their last place and their range: a sum or an
    average of them is rounded to 16 bits once, at its end. The same contributions give the same bits, in whatever order
    packets arrive.

    After a `NonFiniteError` the communicator remains usable. After `WorldChanged` it is usable too, in a new epoch with
    other ranks; every rank gets it from the calls that were under way, else from its next call. After any other failure
    every later call raises the same error. `close` ends the rank in order; a process that ends normally without it is
    closed at exit. A rank whose process crashes, that leaves a ``with`` block by an exception, or that is closed while
    calls are unfinished or after its own timeout, is reported as lost to the others, who would otherwise wait for it.
    """

    def __init__(self, connection: AgentConnection, attachment: Attachment, native: _native.Communicator) -> None:
        self._connection = connection
        self._pid = os.getpid()
        # It guards what follows. What every call does takes the lock itself: a condition passes it on in Python.
        self._lock = threading.RLock()
        self._state = threading.Condition(self._lock)
        self._generation = Generation(attachment, native)
        self._error: SwitchMLError | None = None
        self._unseen: WorldChanged | None = None  # a change that no call has raised yet
        self._on_change: list[Callable[[WorldChanged], None]] = []
        self._asking = 0  # threads whose call is out of time and that ask for the missing ranks
        self._deferred: SwitchMLError | None = None  # what came meanwhile
        self._on_failure: list[Callable[[SwitchMLError], None]] = []
        self._failed_here = False  # by a timeout or an interrupt, which the other ranks know nothing of
        self._closed = False
        self._waiters = 0
        this = weakref.ref(self)  # the control thread must not keep the communicator alive
        connection.start(
            native.attention_fd,
            lambda failure: _fail(this, failure),
            lambda: _report_check(this),
            lambda attachment, descriptors, loss: _move(this, attachment, descriptors, loss),
        )
        lifetime.track(self)

    @property
    def failure(self) -> SwitchMLError | None:
        """Why the next call will raise; None while it is usable."""
        with self._state:
            return self._error or self._unseen

    def on_failure(self, callback: Callable[[SwitchMLError], None]) -> None:
        """Call `callback` with `failure` as soon as there is one, even while this process makes no calls.

        It comes from any thread, must neither wait nor raise, and should not keep this communicator alive.
        """
        with self._state:
            if self._error is None:
                self._on_failure.append(callback)
                return
        callback(self._error)

    def on_change(self, callback: Callable[[WorldChanged], None]) -> None:
        """Call `callback` after each change to another epoch, with what the next call will raise. As `on_failure`."""
        with self._state:
            self._on_change.append(callback)

    @overload
    def all_reduce(
        self, x: Tensor, op: str = "sum", async_op: Literal[False] = False, timeout: float | None = None
    ) -> None: ...

    @overload
    def all_reduce(
        self, x: Tensor, op: str = "sum", *, async_op: Literal[True], timeout: float | None = None
    ) -> Work: ...

    @overload
    def all_reduce(
        self, x: Tensor, op: str = "sum", async_op: bool = False, timeout: float | None = None
    ) -> Work | None: ...

    def all_reduce(
        self, x: Tensor, op: str = "sum", async_op: bool = False, timeout: float | None = None
    ) -> Work | None:
        """Replace `x` on every rank by the sum or the average over all ranks.

        Args:
            x: C-contiguous, writable numpy array or torch CPU tensor of float32, float16, bfloat16 (numpy's is that
                of the package ml_dtypes) or int32, of any shape; the same number of elements on every rank.
            op: "sum" (int32 wraps as numpy's does), or "avg" (of floating-point numbers only).
            async_op: return a `Work` at once instead of waiting.
            timeout: seconds from now; None for `DEFAULT_TIMEOUT`.

        Raises:
            UnsupportedTensor: `x` cannot be reduced; nothing was sent, and it is unchanged.
            NonFiniteError: a rank contributed NaN or infinity. The result is NaN in the places named (on every rank)
                and right everywhere else.
            CollectiveTimeout: not all ranks took part in time; `x` is undefined.
            CollectiveMismatch: another rank called with another size, dtype or operation; `x` is undefined.
            SwitchMLError: the job cannot go on (`WorkerLost`, `JobEnded`, `SwitchLost`, `AgentLost`,
                `IntegrityError`, `CommunicatorClosed`); the message says what `x` holds.
            ValueError: `op` is unknown, `timeout` is not a positive number, or `x` shares memory with the array of a
                call that has not ended.

        """
        if op not in ("sum", "avg"):
            raise ValueError(f'op is {op!r}; it must be "sum" or "avg". The array is unchanged')
        buffer = buffer_of(x)
        kind = REDUCTIONS.get((buffer.dtype, op))
        if kind is None:
            allowed = "float32, float16 or bfloat16" if op == "avg" else "float32, float16, bfloat16 or int32"
            raise UnsupportedTensor(
                f'all_reduce with op="{op}" takes {allowed}, not {buffer.dtype}. The array is unchanged; '
                "convert it first."
            )
        return self._start(kind, "all_reduce", op, buffer, 0, async_op, timeout)

    @overload
    def broadcast(
        self, x: Tensor, root: int, async_op: Literal[False] = False, timeout: float | None = None
    ) -> None: ...

    @overload
    def broadcast(self, x: Tensor, root: int, async_op: Literal[True], timeout: float | None = None) -> Work: ...

    @overload
    def broadcast(self, x: Tensor, root: int, async_op: bool = False, timeout: float | None = None) -> Work | None: ...

    def broadcast(self, x: Tensor, root: int, async_op: bool = False, timeout: float | None = None) -> Work | None:
        """Replace `x` on every rank by that of rank `root`, bit for bit (NaN payloads included).

        Args:
            x: C-contiguous, writable numpy array or torch CPU tensor of any fixed-size dtype and shape; the same
                dtype and number of elements on every rank.
            root: the rank whose array is taken.
            async_op: return a `Work` at once instead of waiting.
            timeout: seconds from now; None for `DEFAULT_TIMEOUT`.

        Raises:
            UnsupportedTensor: `x` cannot be used; nothing was sent, and it is unchanged.
            CollectiveTimeout: not all ranks took part in time; `x` is undefined (on the root too).
            CollectiveMismatch: another rank called with another size, dtype or root; `x` is undefined.
            SwitchMLError: the job cannot go on, as for `all_reduce`.
            ValueError: `root` is not a rank of the job, `timeout` is not a positive number, or `x` shares memory with
                the array of a call that has not ended.
            TypeError: `root` is not an integer.

        """
        root = whole_number(root, "root")
        if not 0 <= root < self.world_size:
            raise ValueError(f"root is {root!r}; the ranks are 0 to {self.world_size - 1}. The array is unchanged")
        return self._start(_native.KIND_BYTES, "broadcast", "", buffer_of(x), root, async_op, timeout)

    @overload
    def barrier(self, timeout: float | None = None, async_op: Literal[False] = False) -> None: ...

    @overload
    def barrier(self, timeout: float | None = None, *, async_op: Literal[True]) -> Work: ...

    def barrier(self, timeout: float | None = None, async_op: bool = False) -> Work | None:
        """Wait until every rank has called it, at most `timeout` seconds (None for `DEFAULT_TIMEOUT`).

        With `async_op`, a `Work` is returned at once, and its `wait` does the waiting.

        Raises:
            CollectiveTimeout: not all ranks did.
            SwitchMLError: the job cannot go on, as for `all_reduce`.

        """
        return self._start(_native.KIND_BARRIER, "barrier", "", None, 0, async_op, timeout)

    def close(self) -> None:
        """End this rank's part in the job; the job completes when all ranks have done so. Idempotent.

        Calls in flight end: waiting for them raises `CommunicatorClosed` and their arrays are undefined.
        """
        self.end()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end("" if kind is None else f"it left the block that uses its communicator by {kind.__name__}")

    def __del__(self) -> None:
        if hasattr(self, "_waiters"):  # construction came to its end
            self.end()

    def __repr__(self) -> str:
        state = "closed" if self._closed else type(self._error).__name__ if self._error else "ready"
        return (
            f"<switchml.Communicator job {self.name!r} rank {self.rank} of {self.world_size}, "
            f"epoch {self.epoch}, {state}>"
        )

    def _start(
        self,
        kind: int,
        operation: Operation,
        op: str,
        buffer: Buffer | None,
        root: int,
        async_op: bool,
        timeout: float | None,
    ) -> Work | None:
        timeout = DEFAULT_TIMEOUT if timeout is None else positive_seconds(timeout)
        self._require_own_process()
        with self._lock:
            error, self._unseen = self._error or self._unseen, None
            if error is not None:
                raise with_remark(error, f"This {operation} was not started, and its array is unchanged.")
            now = self._generation
            now.forget_orphans()
            call = Call(now.sequence, operation, op, buffer, root)
            size = 0 if buffer is None else buffer.size if kind == _native.KIND_BYTES else buffer.elements
            now.memory.claim(call.ranges, call)
            now.calls[call.sequence] = call
            try:
                contributes = operation != "broadcast" or root == self.rank
                ticket = now.native.submit(kind, buffer.address if buffer else 0, size, contributes, call.fingerprint)
                assert ticket == call.sequence
                now.sequence += 1
            except BaseException as interruption:
                self._interrupted(interruption)
                raise
            work = Work(self, now, call, time.monotonic() + timeout, timeout)
            now.works[call.sequence] = work
        if async_op:
            return work
        work.wait()
        return None

    def _require_own_process(self) -> None:
        if os.getpid() != self._pid:
            raise CommunicatorClosed(f"{_forked_from(self._pid)} No array was changed.")

    def _interrupted(self, error: BaseException) -> None:
        """An exception out of nowhere (KeyboardInterrupt) leaves the communicator failed, never half-way."""
        self._fail(
            CommunicatorClosed(
                f"an earlier call of {self._who()} was interrupted by {type(error).__name__}; start the job again."
            ),
            here=True,
        )

    def _has_ended(self, work: Work) -> bool:
        self._require_own_process()
        with self._state:
            return work._outcome is not None or work._generation.has_ended(work._call.sequence)

    def _ends_within(self, work: Work, seconds: float) -> bool:
        self._require_own_process()
        self._begin_waiting()
        try:
            return work._outcome is not None or work._generation.native.wait(work._call.sequence, seconds)
        finally:
            self._end_waiting()

    def _wait(self, work: Work) -> None:
        self._require_own_process()
        call = work._call
        self._begin_waiting()
        try:
            if work._outcome is None:
                remaining = max(0.0, work._deadline - time.monotonic())
                if not work._generation.native.wait(call.sequence, remaining):
                    self._time_out(work)
                with self._lock:
                    work._generation.finish(work)
        except BaseException as error:
            self._interrupted(error)
            raise
        finally:
            self._end_waiting()
        outcome = work._outcome
        assert outcome is not None
        if outcome.status == "failed":
            raise with_remark(
                self._reason(work._generation), f"The array of {call}, which did not complete, is undefined."
            )
        if outcome.status == "non_finite":
            indices, count = tuple(outcome.non_finite_indices), outcome.non_finite_count
            places = ", ".join(map(str, indices)) + (
                f" and {count - len(indices)} more" if count > len(indices) else ""
            )
            raise NonFiniteError(
                f"a rank contributed NaN or infinity to {call}, at index {places} of the flattened array. "
                "The array is NaN in these places and right in all others; the communicator remains usable.",
                indices,
                count,
            )

    def _time_out(self, work: Work) -> None:
        """Fail the communicator, unless the call ends while the agent is asked who is missing."""
        with self._state:
            self._asking += 1
        ranks = self._connection.missing(_ASK_SECONDS)
        ended = work._generation.native.wait(work._call.sequence, 0.0)
        with self._state:
            self._asking -= 1
            deferred, self._deferred = self._deferred, None
        if deferred is not None and (ended or not ranks):
            self._fail(deferred)
        if ended:
            return
        late = f"rank {', '.join(map(str, ranks))} had not taken part"
        missing = late if ranks else "which ranks were missing is not known"
        self._fail(
            CollectiveTimeout(
                f"{work._call} of {self._who()} was not complete after {work._timeout:g} s; {missing}. See what became "
                "of them (`switchml-ctl job show`), allow more time, or start the job again.",
                ranks,
            ),
            here=True,
        )

    # The native code is not closed in between. These are no context manager, which would be a tenth of a call's Python.
    def _begin_waiting(self) -> None:
        with self._lock:
            self._waiters += 1

    def _end_waiting(self) -> None:
        with self._lock:
            self._waiters -= 1
            if self._waiters == 0:
                self._state.notify_all()

    def _fail(self, error: SwitchMLError, here: bool = False) -> None:
        """End all calls; the first error is the one that all later calls raise."""
        with self._state:
            if self._error is None:
                self._error, self._failed_here = error, here
            callbacks, self._on_failure = self._on_failure, []
            self._state.notify_all()
            native = self._generation.native
        native.abandon()
        for callback in callbacks:
            callback(error)

    def _reason(self, generation: Generation) -> SwitchMLError:
        """Return why calls of a generation fail; it may come a little later than the failure itself."""
        with self._state:
            if not self._state.wait_for(lambda: generation.error or self._error, _VERDICT_SECONDS):
                self._fail(IntegrityError(f"a result of {self._who()} is not right; start the job again."), here=True)
            if generation.error is not None:
                if self._unseen is generation.error:
                    self._unseen = None
                return generation.error
            assert self._error is not None
            return self._error

    def _report_check(self) -> None:
        """Ask the controller, through the agent, what is behind a failed check (control thread)."""
        with self._state:
            now = self._generation
        failure = now.native.check_failure()
        if failure is None:
            return
        position, ticket = failure
        with self._state:
            call = now.suspect = now.calls.get(ticket)
        if call is not None:
            self._connection.check_failed(position, call.to_message())

    def _take_failure(self, failure: Failure) -> None:
        """Turn what the agent says into the error of all calls (control thread)."""
        with self._state:
            now = self._generation
            call = now.suspect or next(iter(now.calls.values()), None)
            error = error_of(failure, self._who(), call)
            if self._asking:  # out of time already: that another rank gave up is a consequence, not the cause
                self._deferred = error
                return
        self._fail(error)

    def _move(self, attachment: Attachment, descriptors: Sequence[int], loss: Failure) -> int:
        """Go on in another epoch (control thread); return the attention descriptor of its native end.

        Calls of the old one that are not complete fail with `WorldChanged`: at all ranks the same ones.
        """
        native = _native.Communicator(*descriptors)
        with self._state:
            old, self._generation = self._generation, Generation(attachment, native)
            completed = old.settle()
            error = world_changed(loss, f"rank {old.attachment.rank} of job {attachment.name!r}", attachment, completed)
            old.error = error
            if self._error is None:
                self._unseen = error
            else:
                native.abandon()
            self._state.notify_all()
        for callback in list(self._on_change):
            callback(error)
        return native.attention_fd

    def end(self, loss: str = "") -> None:
        """Close the communicator; with a `loss`, this rank is reported as lost for that reason. Idempotent."""
        if os.getpid() != self._pid:
            return
        with self._state:
            if self._closed:
                return
            self._closed = True
            if self._failed_here:
                loss = str(self._error)
            elif self._error is None:
                if not all(self._generation.has_ended(ticket) for ticket in self._generation.calls):
                    loss = loss or "it closed its communicator with calls unfinished"
                self._error = CommunicatorClosed(f"the communicator of {self._who()} was closed; connect to a new job.")
            now = self._generation
        now.native.abandon()
        with self._state:
            self._state.wait_for(lambda: self._waiters == 0, _LEAVE_SECONDS)
            for work in list(now.works.values()):
                now.finish(work)
            now.calls.clear()
        self._connection.close(loss)
        self._generation.native.close()
        lifetime.forget(self)

    def disown(self) -> None:
        """Leave the communicator to the process that this one was forked from."""
        self._connection.disown()
        self._lock = threading.RLock()  # a thread of the parent may have held the old one
        self._state = threading.Condition(self._lock)
        self._error = self._error or CommunicatorClosed(_forked_from(self._pid))

    def _who(self) -> str:
        return f"rank {self.rank} of job {self.name!r}"


def _fail(this: weakref.ref[Communicator], failure: Failure) -> None:
    communicator = this()
    if communicator is not None:
        communicator._take_failure(failure)


def _report_check(this: weakref.ref[Communicator]) -> None:
    communicator = this()
    if communicator is not None:
        communicator._report_check()


def _move(
    this: weakref.ref[Communicator], attachment: Attachment, descriptors: Sequence[int], loss: Failure
) -> int | None:
    communicator = this()
    return None if communicator is None else communicator._move(attachment, descriptors, loss)


def _forked_from(pid: int) -> str:
    return (
        f"this communicator belongs to process {pid}, from which this one was forked; a rank is one process: connect "
        "in the child instead (start it with the spawn method)."
    )
