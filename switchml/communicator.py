"""The communicator, whose methods a training process calls."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final, Literal, overload

from switchml import _native
from switchml.arguments import positive_seconds, whole_number
from switchml.calls import REDUCTIONS, Operation
from switchml.errors import SwitchMLError, UnsupportedTensor, WorldChanged
from switchml.lanes import WIDE, Lanes, lanes_for
from switchml.membership import Membership
from switchml.tensors import Buffer, Tensor, buffer_of
from switchml.work import Work

__all__ = ["DEFAULT_TIMEOUT", "Communicator", "Work"]

DEFAULT_TIMEOUT: Final = 300.0  # seconds that a collective may take


class Communicator:
    """A process's rank in a job: collectives over all ranks, summed in the switch. Made by `switchml.connect`.

    All ranks must make the same calls in the same order; any number may be in flight (``async_op=True``), and they end
    in that order. Several threads may use a communicator as long as they keep that order, but a forked child may not.

    Sums of integers are exact modulo the range of their type. Sums of float32 are exact up to a bound: with N ranks,
    and M the power of two above the largest magnitude in a block (the values of one packet) of any rank, a sum differs
    from the exact one by at most N/2 * M * 2^-(31 - ceil(log2 N)) plus half a unit in the last place of the float32
    result; a sum beyond float32 is infinite. An average is computed from the sum before that is rounded, so it is
    finite if float32 can hold the average. The same is true of float16 and bfloat16, with their last place and their
    range: a sum or an average of them is rounded to 16 bits once, at its end. The same contributions give the same
    bits, regardless of the order in which packets arrive. With narrow lanes (`all_reduce`) the bound is larger.

    After a `NonFiniteError` the communicator remains usable. After `WorldChanged` it is usable too, in a new epoch with
    other ranks; every rank gets this error from the calls that were unfinished, or else from its next call. After any
    other failure every later call raises the same error. `close` ends the rank's part in the job; a process that exits
    normally without it is closed at exit. A rank is reported as lost if its process crashes, if it leaves a ``with``
    block by an exception, or if it is closed with unfinished calls or after its own timeout; the other ranks would
    otherwise wait for it.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    @property
    def rank(self) -> int:
        """The rank of this process, 0 to `world_size` - 1; it may change with the epoch."""
        return self._membership.attachment.rank

    @property
    def world_size(self) -> int:
        """The number of ranks of the job; it may change with the epoch."""
        return self._membership.attachment.world_size

    @property
    def name(self) -> str:
        """The name of the job."""
        return self._membership.attachment.name

    @property
    def epoch(self) -> int:
        """The epoch that the job is in; it changes with each loss that the job survives."""
        return self._membership.attachment.epoch

    @property
    def generation(self) -> int:
        """The number of changes of epoch before the current epoch: 0 in the job's first epoch."""
        return self._membership.attachment.generation

    @property
    def joined(self) -> tuple[int, ...]:
        """The ranks whose processes are new in this epoch, and so lack what the others have trained so far."""
        return self._membership.attachment.joined

    @property
    def failure_policy(self) -> str:
        """The policy for the loss of a rank: "abort", "shrink" or "restart"."""
        return self._membership.attachment.on_failure

    @property
    def slots(self) -> int:
        """The slots of the job's pool: the number of chunks by which a rank can be ahead of another one, at most."""
        return self._membership.native.slots

    @property
    def values_per_packet(self) -> int:
        """The 32-bit values of a chunk. A call is cut into chunks of this size, and has at least one."""
        return self._membership.native.values_per_packet

    @property
    def position(self) -> int:
        """The number of chunks in this epoch whose results this rank has; it grows as long as calls progress."""
        return self._membership.native.position

    @property
    def failure(self) -> SwitchMLError | None:
        """The error that the next call will raise; None while the communicator is usable."""
        return self._membership.failure

    def on_failure(self, callback: Callable[[SwitchMLError], None]) -> None:
        """Call `callback` with `failure` as soon as there is one, even while this process makes no calls.

        The callback runs on any thread, must neither wait nor raise, and should not keep this communicator alive.
        """
        self._membership.on_failure(callback)

    def on_change(self, callback: Callable[[WorldChanged], None]) -> None:
        """Call `callback`, under the rules of `on_failure`, after each change of epoch, with the next call's error."""
        self._membership.on_change(callback)

    @overload
    def all_reduce(
        self,
        x: Tensor,
        op: str = "sum",
        async_op: Literal[False] = False,
        timeout: float | None = None,
        *,
        wire_bits: int = 32,
        rounding: str = "nearest",
        seed: int = 0,
        bound: int | None = None,
    ) -> None: ...

    @overload
    def all_reduce(
        self,
        x: Tensor,
        op: str = "sum",
        *,
        async_op: Literal[True],
        timeout: float | None = None,
        wire_bits: int = 32,
        rounding: str = "nearest",
        seed: int = 0,
        bound: int | None = None,
    ) -> Work: ...

    @overload
    def all_reduce(
        self,
        x: Tensor,
        op: str = "sum",
        async_op: bool = False,
        timeout: float | None = None,
        *,
        wire_bits: int = 32,
        rounding: str = "nearest",
        seed: int = 0,
        bound: int | None = None,
    ) -> Work | None: ...

    def all_reduce(
        self,
        x: Tensor,
        op: str = "sum",
        async_op: bool = False,
        timeout: float | None = None,
        *,
        wire_bits: int = 32,
        rounding: str = "nearest",
        seed: int = 0,
        bound: int | None = None,
    ) -> Work | None:
        """Replace `x` on every rank by the sum or the average over all ranks.

        Args:
            x: C-contiguous, writable numpy array or torch CPU tensor of float32, float16, bfloat16 (numpy's is that
                of the package ml_dtypes), int64, int32, int16, int8, uint8 or bool, of any shape; the same number of
                elements on every rank. An int64 takes one to three words of a packet, as the largest magnitude that
                any rank has in the same packet needs.
            op: "sum" (integers wrap around as in numpy; a sum of bool is true if one of them is), or "avg" (for
                floating-point numbers only).
            async_op: return a `Work` at once instead of waiting.
            timeout: seconds from now; None for `DEFAULT_TIMEOUT`.
            wire_bits: the bits of a value in packets: 32, 16 or 8. With 16 or 8 two or four values share a word, so
                that a call takes a half or a quarter of the packets. Floating-point numbers then have Q =
                floor((2^(wire_bits - 1) - 1) / N) levels on both sides of 0 for N ranks, and a sum differs from the
                exact one by at most N/2 * M/Q, with M as above. Sums of integers stay exact, and are refused where they
                might not fit.
            rounding: "nearest", or "stochastic" for floating-point numbers with a `wire_bits` of 16 or 8: up or down at
                random, so that the expected result is the exact one. The error is then below N * M/Q.
            seed: chooses the numbers of stochastic rounding, together with the rank, the place in the array, and the
                number of calls before this one. The same seed gives the same bits.
            bound: the largest magnitude of the integers in `x` on any rank, if it is smaller than that of the dtype;
                the product of `bound` and the number of ranks must fit `wire_bits`, sign included.

        Raises:
            UnsupportedTensor: `x` cannot be reduced; nothing was sent, and it is unchanged.
            NonFiniteError: a rank contributed NaN or infinity. The result is NaN at the indices named (on every rank)
                and correct everywhere else.
            CollectiveTimeout: not all ranks took part in time; `x` is undefined.
            CollectiveMismatch: another rank called with another size, dtype or operation, or other `wire_bits`,
                `rounding`, `seed` or `bound`; `x` is undefined.
            SwitchMLError: the job cannot continue (`WorkerLost`, `JobEnded`, `SwitchLost`, `AgentLost`,
                `IntegrityError`, `CommunicatorClosed`); the message says what `x` holds.
            ValueError: `op` or `rounding` is unknown, `wire_bits` is not 8, 16 or 32, the sums of all ranks do not
                fit their lanes, a value of `x` is beyond `bound`, `timeout` is not a positive number, or `x` shares
                memory with the array of a call that has not ended. Nothing was sent.
            TypeError: `wire_bits`, `seed` or `bound` is not an integer.

        """
        if op not in ("sum", "avg"):
            raise ValueError(f'op is {op!r}; it must be "sum" or "avg". The array is unchanged')
        buffer = buffer_of(x)
        kind = REDUCTIONS.get((buffer.dtype, op))
        if kind is None:
            integers = ", bfloat16, int64, int32, int16, int8, uint8 or bool"
            allowed = f"float32, float16{' or bfloat16' if op == 'avg' else integers}"
            raise UnsupportedTensor(
                f'all_reduce with op="{op}" takes {allowed}, not {buffer.dtype}. The array is unchanged; '
                "convert it first."
            )
        lanes = lanes_for(buffer.dtype, self.world_size, wire_bits, rounding, seed, bound)
        if lanes.bound is not None and not _native.all_within(kind, buffer.address, buffer.elements, lanes.bound):
            raise ValueError(f"the array holds a value beyond the bound {lanes.bound}. It is unchanged")
        return self._start(kind, "all_reduce", op, buffer, 0, async_op, timeout, lanes)

    @overload
    def broadcast(
        self, x: Tensor, root: int, async_op: Literal[False] = False, timeout: float | None = None
    ) -> None: ...

    @overload
    def broadcast(self, x: Tensor, root: int, async_op: Literal[True], timeout: float | None = None) -> Work: ...

    @overload
    def broadcast(self, x: Tensor, root: int, async_op: bool = False, timeout: float | None = None) -> Work | None: ...

    def broadcast(self, x: Tensor, root: int, async_op: bool = False, timeout: float | None = None) -> Work | None:
        """Replace `x` on every rank by the array of rank `root`, bit for bit (also NaN payloads).

        Args:
            x: C-contiguous, writable numpy array or torch CPU tensor of any fixed-size dtype and shape; the same
                dtype and number of elements on every rank.
            root: the rank whose array all ranks get.
            async_op: return a `Work` at once instead of waiting.
            timeout: seconds from now; None for `DEFAULT_TIMEOUT`.

        Raises:
            UnsupportedTensor: `x` cannot be used; nothing was sent, and it is unchanged.
            CollectiveTimeout: not all ranks took part in time; `x` is undefined (on the root too).
            CollectiveMismatch: another rank called with another size, dtype or root; `x` is undefined.
            SwitchMLError: the job cannot continue, as for `all_reduce`.
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
        """Wait until every rank has called `barrier`, at most `timeout` seconds (None for `DEFAULT_TIMEOUT`).

        With `async_op`, return a `Work` at once, whose `wait` waits for the ranks.

        Raises:
            CollectiveTimeout: not all ranks called it in time.
            SwitchMLError: the job cannot continue, as for `all_reduce`.

        """
        return self._start(_native.KIND_BARRIER, "barrier", "", None, 0, async_op, timeout)

    def close(self) -> None:
        """End this rank's part in the job; the job completes when all ranks have done so. Idempotent.

        Calls in flight fail: waiting for them raises `CommunicatorClosed`, and their arrays are undefined.
        """
        self.end()

    def end(self, loss: str = "") -> None:
        """Close the communicator; with a `loss`, this rank is reported as lost for that reason. Idempotent."""
        self._membership.end(loss)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end("" if kind is None else f"it left the block that uses its communicator by {kind.__name__}")

    def __repr__(self) -> str:
        return (
            f"<switchml.Communicator job {self.name!r} rank {self.rank} of {self.world_size}, "
            f"epoch {self.epoch}, {self._membership.condition}>"
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
        lanes: Lanes = WIDE,
    ) -> Work | None:
        timeout = DEFAULT_TIMEOUT if timeout is None else positive_seconds(timeout)
        work = Work(self._membership, *self._membership.submit(kind, operation, op, buffer, root, timeout, lanes))
        if async_op:
            return work
        work.wait()
        return None
