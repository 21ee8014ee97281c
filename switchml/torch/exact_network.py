"""The calls of a communicator over Gloo, with the bits that the switch would give.

The native code makes the same integers of a tensor as for packets, with the largest exponents of the same blocks. Gloo
finds these exponents and sums the integers, which is exact in any order. So a training that has lost its switch ends
with the same parameters as one that has not.
"""

# ruff: noqa: ARG002 - the parameters are those of Communicator

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Union

import torch
import torch.distributed as dist
from torch import Tensor

from switchml import _native
from switchml.client.calls import Call, SkipZeros
from switchml.client.communicator import DEFAULT_TIMEOUT, Communicator
from switchml.client.errors import NonFiniteError
from switchml.client.keyed_rows import Keys
from switchml.client.tensors import buffer_of
from switchml.client.wire import Wire
from switchml.client.work import Work
from switchml.torch.deadlines import Deadline
from switchml.torch.gloo_moves import all_gather_over_gloo, barrier_over_gloo, broadcast_over_gloo, union_over_gloo

__all__ = ["Ended", "ExactNetwork", "Handle", "NetworkJob", "Network"]

_EVERY_FORMAT: Final = 2**32 - 1  # no switch has to know it


@dataclass(frozen=True)
class NetworkJob:
    """A job of the switch: what the bits of its results depend on.

    Attributes:
        rank, world_size: this rank, and the number of ranks.
        values: 32-bit values of a packet.
        optional_values: see `Communicator.optional_values`.

    """

    rank: int
    world_size: int
    values: int
    optional_values: bool


class Ended:
    """The handle of a call that has ended."""

    def __init__(self, indices: tuple[int, ...] = (), count: int = 0) -> None:
        self._indices = indices
        self._count = count

    def wait(self) -> None:
        """Return at once.

        Raises:
            NonFiniteError: a rank contributed NaN or infinity.

        """
        if self._count:
            raise NonFiniteError(f"{self._count} elements are NaN or infinite", self._indices, self._count)


class ExactNetwork:
    """The part of `Communicator` that collectives use. A call returns when it has ended; handles say how.

    All ranks make the same calls in the same order.

    Attributes:
        calls: the number of calls before the next one, on which the random numbers of stochastic rounding depend.

    """

    def __init__(self, gloo: Any, job: NetworkJob, calls: int = 0) -> None:
        """Continue a job after `calls` calls, over the group `gloo` of all of its ranks."""
        self._gloo = gloo
        self._job = job
        self.calls = calls

    def all_reduce(
        self,
        x: Tensor,
        op: str = "sum",
        async_op: bool = False,
        timeout: float | None = None,
        *,
        wire: Wire | None = None,
        skip_zeros: SkipZeros = False,
    ) -> Ended:
        """Do what `Communicator.all_reduce` does."""
        buffer = buffer_of(x)
        return self._sum(Call("all_reduce", op, buffer, 0, wire, skip_zeros), timeout)

    def reduce_scatter(
        self,
        input: Tensor,  # noqa: A002 - as of Communicator
        output: Tensor,
        op: str = "sum",
        async_op: bool = False,
        timeout: float | None = None,
        *,
        wire: Wire | None = None,
    ) -> Ended:
        """Do what `Communicator.reduce_scatter` does."""
        given, result = buffer_of(input, written=False), buffer_of(output)
        return self._sum(Call("reduce_scatter", op, given, 0, wire, output=result), timeout)

    def all_gather(
        self,
        input: Tensor,  # noqa: A002 - as of Communicator
        output: Tensor,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Ended:
        """Do what `Communicator.all_gather` does."""
        all_gather_over_gloo(self._gloo, output, input, _deadline(timeout).left).wait()
        self.calls += 1
        return Ended()

    def union_of_keys(self, keys: Tensor, purpose: str = "", timeout: float | None = None) -> Keys:
        """Do what `Communicator.union_of_keys` does."""
        union: Keys = union_over_gloo(self._gloo, keys, self._job.world_size, _deadline(timeout)).numpy()
        self.calls += 2  # the numbers of keys, and the keys
        return union

    def broadcast(self, x: Tensor, root: int, async_op: bool = False, timeout: float | None = None) -> Ended:
        """Do what `Communicator.broadcast` does."""
        broadcast_over_gloo(self._gloo, x, root, _deadline(timeout).left).wait()
        self.calls += 1
        return Ended()

    def barrier(self, timeout: float | None = None, async_op: bool = False) -> Ended:
        """Do what `Communicator.barrier` does."""
        barrier_over_gloo(self._gloo, _deadline(timeout).left).wait()
        self.calls += 1
        return Ended()

    def _sum(self, call: Call, timeout: float | None) -> Ended:
        """Make a sum in rounds: in each, Gloo replaces exponents and words as the switch would."""
        job, deadline = self._job, _deadline(timeout)
        rounds = _native.Lockstep(
            call.described(job.world_size, _EVERY_FORMAT),
            *call.addresses,
            sequence=self.calls,
            rank=job.rank,
            world_size=job.world_size,
            values=job.values,
            optional_values=job.optional_values,
        )
        self.calls += 1
        while not rounds.ended:
            exponents, words = rounds.contribute()
            self._reduce(torch.from_numpy(exponents), dist.ReduceOp.MAX, deadline)
            self._reduce(torch.from_numpy(words), dist.ReduceOp.SUM, deadline)
            rounds.take()
        return Ended(tuple(rounds.non_finite_indices), rounds.non_finite_count)

    def _reduce(self, values: Tensor, op: Any, deadline: Deadline) -> None:
        if len(values) == 0:  # at all ranks
            return
        options = dist.AllreduceOptions()
        options.reduceOp = op
        options.timeout = deadline.left
        self._gloo.allreduce([values], options).wait()


def _deadline(timeout: float | None) -> Deadline:
    return Deadline.after(timedelta(seconds=DEFAULT_TIMEOUT if timeout is None else timeout))


Network = Union[Communicator, ExactNetwork]  # noqa: UP007 - evaluated at import, also on Python 3.10
Handle = Union[Work, Ended]  # noqa: UP007
