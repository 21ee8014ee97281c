"""The communicator, whose methods a training process calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, overload

import numpy as np

from switchml import _native
from switchml.client.arguments import positive_seconds, whole_number
from switchml.client.calls import Call, SkipZeros, checked_skipping
from switchml.client.errors import SwitchMLError, WorldChanged
from switchml.client.keyed_rows import Keys, checked_keys, checked_rows, like, merged, placed
from switchml.client.membership import Membership
from switchml.client.tensors import Buffer, Tensor, buffer_of
from switchml.client.wire import CODES, FORMATS, CodeName, Wire, refuse_old_keywords
from switchml.client.work import Work

__all__ = ["DEFAULT_TIMEOUT", "Communicator", "Statistics", "Work"]

DEFAULT_TIMEOUT: Final = 300.0  # seconds that a collective may take


@dataclass(frozen=True)
class Statistics:
    """The progress of a rank in the current epoch, and the round trips of its packets.

    A round trip is the time from the sending of a packet to its result. The agent measures those of packets that were
    sent once and were the last of all ranks' in their slot; other packets wait for another rank. So bytes / seconds of
    many round trips is the rate of the path while it was in use.

    Attributes:
        position: the number of chunks whose results the rank has; it grows as long as calls progress.
        round_trip_seconds: total time of the measured round trips; 0 if the rank `shares_memory` with the switch, or if
            other ranks were always the last.
        round_trip_bytes: total bytes of the packets whose results came in that time.

    """

    position: int
    round_trip_seconds: float
    round_trip_bytes: int


class Communicator:
    """A process's rank in a job: collectives over all ranks, summed in the switch. Made by `switchml.connect`.

    All ranks must make the same calls in the same order; any number may be in flight (``async_op=True``), and they end
    in that order. Several threads may use a communicator as long as they keep that order, but a forked child may not.

    Sums of integers are exact modulo the range of their type. Sums of float32 are exact up to a bound: with N ranks,
    and M the power of two above the largest magnitude in a block (the values of one packet) of any rank, a sum differs
    from the exact one by at most N/2 * M * 2^-(31 - ceil(log2 N)) plus half a unit in the last place of the float32
    result; a sum beyond float32 is infinite. An average is computed from the sum before that is rounded, so it is
    finite if float32 can hold the average. The same is true of float16 and bfloat16, with their last place and their
    range: a sum or an average of them is rounded to 16 bits once, at its end. A sum of float64 differs from the exact
    one by at most N/2 * M * 2^(8 - T), where T is 92 with 2 ranks, 86 with 8 and 59 with 4096
    (docs/understand/protocol.md). The same contributions give the same bits, regardless of the order in which packets
    arrive. With fewer bits (`Blocks`) the bound is larger, and results are rounded to float32 before they are rounded
    to 16 bits.

    After a `NonFiniteError` the communicator remains usable. It also does after an exception of a signal handler
    (such as `KeyboardInterrupt`) in a call that waits: the call itself goes on, and its array belongs to it until a
    later call has ended. After `WorldChanged` it is usable too, in a new epoch with other ranks; every rank gets this
    error from the calls that were unfinished, or else from its next call. After `RankClosed` it can only be closed.
    After any other failure every later call raises the same error. `close` ends the rank's part in the job; a process
    that exits normally without it is closed at exit. Calls that other ranks make beyond those of a closed rank fail
    at once, with `RankClosed`. A rank is reported as lost if its process crashes, if it leaves a ``with`` block by an
    exception, or if it is closed with unfinished calls or after its own timeout; the other ranks would otherwise wait
    for it.
    """

    def __init__(self, membership: Membership, awaited: bool = False) -> None:
        self._membership = membership
        self._awaited = awaited  # calls with async_op are waited for next, too

    @property
    def awaited(self) -> Communicator:
        """A view for low latency: the caller must wait for each call with ``async_op`` before it makes another.

        Short calls are then faster, because no other thread is woken for them. One may begin only in `Work.wait`.
        """
        return Communicator(self._membership, awaited=True)

    @property
    def rank(self) -> int:
        """The rank of this process, 0 to `world_size` - 1; it may change with the epoch."""
        return self._membership.native.rank

    @property
    def world_size(self) -> int:
        """The number of ranks of the job; it may change with the epoch."""
        return self._membership.native.world_size

    @property
    def name(self) -> str:
        """The name of the job."""
        return self._membership.native.name

    @property
    def epoch(self) -> int:
        """The epoch that the job is in; it changes with each loss that the job survives."""
        return self._membership.native.epoch

    @property
    def generation(self) -> int:
        """The number of changes of epoch before the current epoch: 0 in the job's first epoch."""
        return self._membership.native.generation

    @property
    def joined(self) -> tuple[int, ...]:
        """The ranks whose processes are new in this epoch, and so lack what the others have trained so far."""
        return self._membership.native.joined

    @property
    def failure_policy(self) -> str:
        """The policy for the loss of a rank: "abort", "shrink" or "restart"."""
        return self._membership.native.on_failure

    @property
    def priority(self) -> int:
        """The job's priority, from 0 to 7: higher ones are served first (docs/understand/protocol.md, "Priorities")."""
        return self._membership.native.priority

    @property
    def slots(self) -> int:
        """The slots of the job's pool: the number of chunks by which a rank can be ahead of another one, at most."""
        return self._membership.native.slots

    @property
    def values_per_packet(self) -> int:
        """The 32-bit values of a chunk. A call is cut into chunks of this size, and has at least one."""
        return self._membership.native.values_per_packet

    @property
    def optional_values(self) -> bool:
        """True if the switches accept packets without values; otherwise ranks send zeros."""
        return self._membership.native.optional_values

    @property
    def codes(self) -> tuple[CodeName, ...]:
        """The names of the `Codes` that the switches of the job expand and sum."""
        formats = self._membership.native.formats
        return tuple(name for name in CODES if formats >> FORMATS[name] & 1)

    @property
    def adds_floats(self) -> bool:
        """True if the switches of the job add floating-point numbers as such: ``wire=Floats()``."""
        return bool(self._membership.native.formats >> _native.FORMAT_FLOAT32 & 1)

    def wire_problem(self, wire: Wire) -> str:
        """Return why the switches of the job cannot sum what comes over `wire`; an empty string if they can."""
        return _native.wire_problem(wire.text, self._membership.native.formats)

    @property
    def shares_memory(self) -> bool:
        """True if the switch is on this host and reads this rank's values where they are, without packets."""
        return self._membership.native.shares_memory

    def statistics(self) -> Statistics:
        """Return what the network has done for this rank in this epoch, at the cost of a few reads of memory."""
        native = self._membership.native
        nanoseconds, nbytes = native.round_trips
        return Statistics(native.position, nanoseconds * 1e-9, nbytes)

    @property
    def calls(self) -> int:
        """The number of calls that this process has made in this epoch."""
        return self._membership.native.calls

    @property
    def failure(self) -> SwitchMLError | None:
        """The error that the next call will raise; None while the communicator is usable."""
        return self._membership.failure

    def on_failure(self, callback: Callable[[SwitchMLError], None]) -> None:
        """Call `callback` with `failure` as soon as there is one, even while this process makes no calls.

        `RankClosed` is not reported so: it concerns only calls that this process makes.

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
        wire: Wire | None = None,
        skip_zeros: SkipZeros = False,
    ) -> None: ...

    @overload
    def all_reduce(
        self,
        x: Tensor,
        op: str = "sum",
        *,
        async_op: Literal[True],
        timeout: float | None = None,
        wire: Wire | None = None,
        skip_zeros: SkipZeros = False,
    ) -> Work: ...

    @overload
    def all_reduce(
        self,
        x: Tensor,
        op: str = "sum",
        async_op: bool = False,
        timeout: float | None = None,
        *,
        wire: Wire | None = None,
        skip_zeros: SkipZeros = False,
    ) -> Work | None: ...

    def all_reduce(
        self,
        x: Tensor,
        op: str = "sum",
        async_op: bool = False,
        timeout: float | None = None,
        *,
        wire: Wire | None = None,
        skip_zeros: SkipZeros = False,
        **old: object,
    ) -> Work | None:
        """Replace `x` on every rank by the sum or the average over all ranks.

        Args:
            x: C-contiguous, writable numpy array or torch CPU tensor of float64, float32, float16, bfloat16
                (numpy's is that of the package ml_dtypes), integers of 8 to 64 bits or bool, of any shape; the same
                number of elements on every rank. A float64 takes three words of a packet, and an integer of 64 bits one
                to three, as the largest magnitude that any rank has in the same packet needs.
            op: "sum" (integers wrap around as in numpy; a sum of bool is true if one of them is), or "avg" (for
                floating-point numbers only).
            async_op: return a `Work` at once instead of waiting.
            timeout: seconds from now; None for `DEFAULT_TIMEOUT`.
            wire: how values travel: `Blocks` or `Integers`, which are also what is used without it, with fewer bits
                than 32 or other choices; `Codes`, of which `codes` has those of the switches; or `Floats`, where the
                switches `add_floats`. These classes are in `switchml`, and each says how exact its sums are.
            skip_zeros: send only the blocks of `x` that are not zero; a block has `values_per_packet` words, but at
                most 256. The result has the same bits as without, except for floating-point numbers in packets of more
                than 256 values, whose last bits may differ (docs/guides/sparse.md). It pays if most blocks are zero
                at most ranks, and costs little otherwise. `Work.blocks` tells what was sent. All blocks are sent if a
                switch of the job cannot do it, if the dtype is int64, or if the array has too many blocks: 2^23 - 1 for
                each of `slots`, or in large packets 60 % of them. "auto" sends all blocks where earlier calls of the
                same size and dtype have shown that most of them have values, and never changes bits
                (docs/guides/sparse.md). Not with `Codes` or `Floats`.
            old: no other arguments; those of version 0.1 are refused with what to write instead.

        Raises:
            UnsupportedTensor: `x` cannot be reduced; nothing was sent, and it is unchanged.
            NonFiniteError: a rank contributed NaN or infinity. The result is NaN at the indices named (on every rank)
                and correct everywhere else.
            CollectiveTimeout: not all ranks took part in time; `x` is undefined.
            CollectiveMismatch: another rank called with another size, dtype, operation, `wire` or `skip_zeros`; `x` is
                undefined.
            SwitchMLError: the job cannot continue (`WorkerLost`, `JobEnded`, `SwitchLost`, `AgentLost`,
                `RankClosed`, `IntegrityError`, `CommunicatorClosed`); the message says what `x` holds.
            ValueError: `op` or `skip_zeros` is unknown, the switches of the job do not expand such codes or add floats,
                the wire is not for this dtype, the sums of all ranks do not fit its bits, a value of `x` is beyond its
                bound, `timeout` is not a positive number, or `x` shares memory with the array of a call that has not
                ended. Nothing was sent.
            TypeError: `wire` is not a wire, or there is another argument.

        """
        refuse_old_keywords("all_reduce", old)
        buffer = buffer_of(x)
        skip_zeros = checked_skipping(skip_zeros, wire)
        return self._start(Call("all_reduce", op, buffer, 0, wire, skip_zeros), async_op, timeout)

    @overload
    def reduce_scatter(
        self,
        input: Tensor,
        output: Tensor,
        op: str = "sum",
        async_op: Literal[False] = False,
        timeout: float | None = None,
        *,
        wire: Wire | None = None,
    ) -> None: ...

    @overload
    def reduce_scatter(
        self,
        input: Tensor,
        output: Tensor,
        op: str = "sum",
        *,
        async_op: Literal[True],
        timeout: float | None = None,
        wire: Wire | None = None,
    ) -> Work: ...

    @overload
    def reduce_scatter(
        self,
        input: Tensor,
        output: Tensor,
        op: str = "sum",
        async_op: bool = False,
        timeout: float | None = None,
        *,
        wire: Wire | None = None,
    ) -> Work | None: ...

    def reduce_scatter(
        self,
        input: Tensor,  # noqa: A002 - the names of torch.distributed
        output: Tensor,
        op: str = "sum",
        async_op: bool = False,
        timeout: float | None = None,
        *,
        wire: Wire | None = None,
        **old: object,
    ) -> Work | None:
        """Replace `output` on rank r by the r-th part of the sum or the average of `input` over all ranks.

        The flattened `input` is one part after the other, of equal length, for each rank. It is only read. The bound of
        a sum is that of `all_reduce`, and a sum has the same bits as in an `all_reduce` of the part alone, except with
        stochastic rounding: packets have elements of one part only, so the blocks differ from those of an `all_reduce`
        of the whole `input`, unless the elements of a part fill whole packets. Integers are exact in either case.

        Args:
            input: C-contiguous numpy array or torch CPU tensor of a dtype that `all_reduce` takes; the same number of
                elements on every rank. It may be read-only.
            output: array of the same dtype with the elements of one part. It may be the view of this rank's part of
                `input`, which is then overwritten; other memory of `input` is refused.
            op: see `all_reduce`, here and below.
            async_op: return a `Work` at once instead of waiting.
            timeout: seconds from now; None for `DEFAULT_TIMEOUT`.
            wire: with stochastic rounding, the random numbers depend on the place of a value in `input`; with `Codes`,
                both directions have fewer bytes on switches that send results only to their owner.
            old: no other arguments.

        Raises:
            UnsupportedTensor: the arrays cannot be used; nothing was sent, and they are unchanged.
            NonFiniteError: a rank contributed NaN or infinity, to any part. The error names the indices in `input` on
                every rank; the parts are NaN there and correct everywhere else.
            ValueError: the lengths or dtypes of the arrays do not match, they share memory in another way than above,
                or an argument is wrong, as in `all_reduce`. Nothing was sent.
            TypeError: `wire` is not a wire, or there is another argument.
            SwitchMLError: all other errors are those of `all_reduce`.

        """
        refuse_old_keywords("reduce_scatter", old)
        given, result = buffer_of(input, written=False), buffer_of(output)
        self._require_parts("input", given, "output", result)
        return self._start(Call("reduce_scatter", op, given, 0, wire, output=result), async_op, timeout)

    @overload
    def all_gather(
        self,
        input: Tensor,
        output: Tensor,
        async_op: Literal[False] = False,
        timeout: float | None = None,
    ) -> None: ...

    @overload
    def all_gather(
        self,
        input: Tensor,
        output: Tensor,
        async_op: Literal[True],
        timeout: float | None = None,
    ) -> Work: ...

    @overload
    def all_gather(
        self,
        input: Tensor,
        output: Tensor,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Work | None: ...

    def all_gather(
        self,
        input: Tensor,  # noqa: A002 - the names of torch.distributed
        output: Tensor,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Work | None:
        """Replace `output` on every rank by the arrays `input` of all ranks, one after the other, bit for bit.

        Args:
            input: C-contiguous numpy array or torch CPU tensor of any fixed-size dtype and shape; the same dtype and
                number of elements on every rank. It may be read-only.
            output: array of the same dtype with as many elements as all inputs together. `input` may be the view of
                this rank's part of it; other memory of `output` is refused.
            async_op: return a `Work` at once instead of waiting.
            timeout: seconds from now; None for `DEFAULT_TIMEOUT`.

        Raises:
            UnsupportedTensor: the arrays cannot be sent; nothing was sent, and they are unchanged.
            CollectiveTimeout: not all ranks took part in time; `output` is undefined.
            SwitchMLError: the job cannot continue, as for `all_reduce`.
            ValueError: the lengths or dtypes of the arrays do not match, they share memory in another way than above,
                or `output` shares memory with the array of a call that has not ended. Nothing was sent.

        """
        given, result = buffer_of(input, written=False), buffer_of(output)
        self._require_parts("output", result, "input", given)
        return self._start(Call("all_gather", "", given, output=result), async_op, timeout)

    def sparse_all_reduce(
        self, ids: Tensor, rows: Tensor, op: str = "sum", timeout: float | None = None
    ) -> tuple[Any, Any]:
        """Return the union of all ranks' keys, and for each the sum or the average of its rows over all ranks.

        A rank without a key counts as one with a row of zeros. The ranks agree on the keys, then make one `all_reduce`
        with ``skip_zeros=True`` over the rows of the union, whose bound holds here too.

        Args:
            ids: C-contiguous int64 numpy array or torch CPU tensor of n keys, which are not negative, sorted and
                unique; n may differ between ranks and may be 0. It is only read, like `rows`.
            rows: array of shape [n, dimension] of float32, float16, bfloat16 or int32, with the row of each key; the
                same dimension and dtype on every rank.
            op: "sum" (int32 wraps around), or "avg" (the sum divided by the number of all ranks; not for int32).
            timeout: seconds from now; None for `DEFAULT_TIMEOUT`.

        Returns:
            The keys that at least one rank has, sorted, and their rows: new arrays of the kinds of `ids` and `rows`,
            with the same bits on every rank.

        Raises:
            UnsupportedTensor: the arrays cannot be reduced; nothing was sent.
            ValueError: `ids` are negative, unsorted or not unique, the shapes do not match, or an argument is wrong.
                Nothing was sent.
            NonFiniteError: a rank contributed NaN or infinity. The indices are those in the flattened rows of the
                union, which are not returned.
            CollectiveMismatch: another rank called with another dimension, dtype or `op`.
            SwitchMLError: all other errors are those of `all_reduce`.

        """
        keys = checked_keys(ids)
        buffer, dimension = checked_rows(rows, len(keys))
        Call("all_reduce", op, buffer).described(self.world_size, self._membership.native.formats)  # or raises
        ends = _end(timeout)
        union = self.union_of_keys(keys, f"{op} of rows of {dimension} {buffer.dtype}", _left(ends))
        sums = placed(rows, keys, union)
        self.all_reduce(sums, op, timeout=_left(ends), skip_zeros=True)
        return like(ids, union), sums

    def union_of_keys(self, keys: Tensor, purpose: str = "", timeout: float | None = None) -> Keys:
        """Return the sorted union of the keys of all ranks.

        Args:
            keys: as the `ids` of `sparse_all_reduce`.
            purpose: any text that is the same on every rank.
            timeout: seconds from now; None for `DEFAULT_TIMEOUT`.

        Raises:
            UnsupportedTensor: `keys` are not int64 in contiguous CPU memory; nothing was sent.
            ValueError: they are negative, unsorted or not unique. Nothing was sent.
            CollectiveMismatch: another rank has another `purpose`.
            SwitchMLError: all other errors are those of `all_gather`.

        """
        own = checked_keys(keys)
        ends = _end(timeout)
        counts = np.empty(self.world_size, np.int64)
        given, result = buffer_of(np.array([len(own)])), buffer_of(counts)
        self._start(Call("all_gather", f"keys for {purpose}", given, output=result), False, _left(ends))
        table = np.empty((self.world_size, int(counts.max())), np.int64)
        part = table[self.rank]
        part[: len(own)] = own
        part[len(own) :] = -1
        self.all_gather(part, table, timeout=_left(ends))
        return merged(table, counts)

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
        return self._start(Call("broadcast", "", buffer_of(x), root), async_op, timeout)

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
        return self._start(Call("barrier"), async_op, timeout)

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

    def _start(self, call: Call, async_op: bool, timeout: float | None) -> Work | None:
        timeout = DEFAULT_TIMEOUT if timeout is None else positive_seconds(timeout)
        native = self._membership.submit(call, timeout, self._awaited or not async_op)
        if async_op:
            return Work(self._membership, call, native)
        try:
            native.wait()
        except BaseException:  # of a signal handler, if the call has not ended: nothing will wait for it again
            self._membership.drop(native, call)
            raise
        return None

    def _require_parts(self, whole_name: str, whole: Buffer, part_name: str, part: Buffer) -> None:
        """Check that `part` can be the part of this rank of `whole`.

        Raises:
            ValueError: the dtypes or the lengths do not match, or they share memory that is not this part.

        """
        if whole.dtype != part.dtype:
            raise ValueError(
                f"{part_name} is {part.dtype} and {whole_name} is {whole.dtype}; both must have one dtype. "
                "The arrays are unchanged"
            )
        if whole.elements != self.world_size * part.elements:
            raise ValueError(
                f"{whole_name} has {whole.elements} elements; it must have a part like {part_name}, of "
                f"{part.elements}, for each of {self.world_size} ranks. The arrays are unchanged"
            )
        overlap = part.address < whole.address + whole.size and whole.address < part.address + part.size
        if overlap and part.address != whole.address + self.rank * part.size:
            raise ValueError(
                f"{part_name} shares memory with {whole_name} that is not the part of rank {self.rank}, so results "
                "would replace values that are still needed; pass a copy. The arrays are unchanged"
            )


def _end(timeout: float | None) -> float:
    """Return the monotonic time at which a call of several collectives must have ended."""
    return time.monotonic() + (DEFAULT_TIMEOUT if timeout is None else positive_seconds(timeout))


def _left(end: float) -> float:
    """Return the seconds until `end`; at least one millisecond, after which a collective times out."""
    return max(end - time.monotonic(), 0.001)
