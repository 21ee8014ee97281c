"""The collectives that a compressor can ask for. The kind of a request decides what happens to its values.

A sum of values that must not be summed cannot be written by mistake: values are summed only if they were put into a
`Sum`, an `Average` or a `Sparse`, and those of a `Gather` stay apart.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from switchml.client.wire import LANE_BITS, Blocks, Integers, Wire

__all__ = [
    "Average",
    "FromLeader",
    "Gather",
    "Largest",
    "Pending",
    "Request",
    "Sparse",
    "Sum",
    "join",
    "lane_bits",
    "split",
]

_LANE_TYPES: Final = {8: torch.int8, 16: torch.int16, 32: torch.int32}
_MOST: Final = 2**31 - 1
_BLOCKS: Final = Blocks()


class Pending(NamedTuple):
    """A collective in flight, and the tensor that holds its result at the end."""

    work: Any
    result: Tensor


@dataclass(frozen=True)
class Request(ABC):
    """One collective that all ranks make, each with one-dimensional `values` of the same length.

    Attributes:
        values: the contribution of this rank, which is not changed.

    """

    values: Tensor

    from_all: ClassVar[bool] = True
    """True if the values of every rank enter the result."""

    @abstractmethod
    def start(self, group: Any) -> Pending:
        """Start the collective in a `SwitchMLProcessGroup`."""

    def scatter(self, group: Any, bad: bool) -> Pending:
        """Start to reduce the values; the result is the part of this rank, with the flag of `flagged`.

        Raises:
            TypeError: requests of this kind have no parts.

        """
        raise TypeError(f"{type(self).__name__} cannot be scattered")

    def answer(self, result: Tensor) -> Tensor:
        """Return what the compressor gets, from the result of the collective."""
        return result

    def flagged(self, bad: bool) -> Request:
        """Return this request with one more value, which says whether this rank has a gradient that is not finite."""
        raised = math.nan if self.values.is_floating_point() else 1
        flag = self.values.new_tensor([raised if bad else 0])
        return replace(self, values=torch.cat([self.values, flag]))

    @staticmethod
    def without_flag(result: Tensor) -> tuple[Tensor, bool]:
        """Return the result of a flagged request without its last value, and whether any rank has raised the flag."""
        return result[..., :-1], bool((result[..., -1] != 0).any())


def _with_flags(values: Tensor, parts: int, flag: float) -> Tensor:
    """Return the equal parts of `values`, each with one more value, the flag."""
    rows = values.view(parts, -1)
    return torch.cat([rows, rows.new_full((parts, 1), flag)], dim=1).view(-1)


def join(requests: Sequence[Request]) -> Request:
    """Return one request with the values of several, which differ in nothing else.

    Raises:
        ValueError: they differ in something else.

    """
    first = requests[0]
    if any(replace(other, values=first.values) != first for other in requests):
        raise ValueError(f"requests of one round differ in more than their values: {requests!r}")
    return replace(first, values=torch.cat([request.values for request in requests]))


def split(result: Tensor, requests: Sequence[Request]) -> list[Tensor]:
    """Split a joined result into one tensor per request."""
    return list(result.split([request.values.numel() for request in requests], dim=-1))


def lane_bits(bound: int, world_size: int) -> int:
    """Return the bits of the lanes that hold a sum of integers up to `bound` over `world_size` ranks.

    Raises:
        ValueError: the widest lanes do not hold it.

    """
    most = world_size * bound
    if most > _MOST:
        raise ValueError(
            f"sums of integers up to {bound} over {world_size} ranks do not fit lanes of 32 bits; use fewer levels"
        )
    return min(bits for bits in LANE_BITS if most < 2 ** (bits - 1))


@dataclass(frozen=True)
class Sum(Request):
    """The exact sum of integers, in the narrowest lanes that hold it; the result is int32.

    Attributes:
        bound: the largest magnitude of a value on any rank.

    """

    bound: int

    def start(self, group: Any) -> Pending:
        """Start the sum."""
        bits = lane_bits(self.bound, group.size())
        sums = self.values.to(_LANE_TYPES[bits], copy=True)
        work = group.all_reduce_over(sums, "sum", Integers(bits, self.bound))
        return Pending(work, sums)

    def scatter(self, group: Any, bad: bool) -> Pending:
        """Start the sum."""
        bits = lane_bits(self.bound, group.size())
        given = _with_flags(self.values.to(_LANE_TYPES[bits]), group.size(), bad)
        part = given.new_empty(len(given) // group.size())
        return Pending(group.reduce_scatter_over(part, given, "sum", Integers(bits, self.bound)), part)


@dataclass(frozen=True)
class Average(Request):
    """The average of float32 values, within the bound of the wire: `Blocks` or `Codes`."""

    wire: Wire = _BLOCKS

    def start(self, group: Any) -> Pending:
        """Start the average."""
        averages = self.values.clone()
        return Pending(group.all_reduce_over(averages, "avg", self.wire), averages)

    def scatter(self, group: Any, bad: bool) -> Pending:
        """Start the average."""
        given = _with_flags(self.values, group.size(), math.nan if bad else 0)
        part = given.new_empty(len(given) // group.size())
        return Pending(group.reduce_scatter_over(part, given, "avg", self.wire), part)


@dataclass(frozen=True)
class Sparse(Request):
    """The average of float32 values that are mostly blocks of zeros, which are not sent.

    A block has up to 256 values, see `Communicator.all_reduce`.
    """

    def start(self, group: Any) -> Pending:
        """Start the average."""
        averages = self.values.clone()
        return Pending(group.all_reduce_over(averages, "avg", Blocks(), skip_zeros=True), averages)


@dataclass(frozen=True)
class Gather(Request):
    """The values of all ranks, bit for bit, as the rows of one tensor."""

    def start(self, group: Any) -> Pending:
        """Start the all-gather."""
        gathered = self.values.new_empty(group.size() * self.values.numel())
        work = dist.all_gather_single(gathered, self.values, group=group, async_op=True)
        return Pending(work, gathered.view(group.size(), self.values.numel()))


@dataclass(frozen=True)
class Largest(Gather):
    """The largest of all ranks' values at each place. The ranks exchange the values and compare them."""

    def answer(self, result: Tensor) -> Tensor:
        """Return the largest values; NaN is larger than all numbers."""
        return result.amax(0)


@dataclass(frozen=True)
class FromLeader(Request):
    """The values of the rank `leader`, bit for bit; those of the others only tell the number and the dtype."""

    leader: int
    from_all: ClassVar[bool] = False

    def start(self, group: Any) -> Pending:
        """Start the broadcast."""
        values = self.values.clone()
        return Pending(dist.broadcast(values, group_src=self.leader, group=group, async_op=True), values)
