"""All-reduces of sparse tensors: the ranks agree on the places that any of them has, then reduce the values there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from switchml.client.errors import UnsupportedTensor
from switchml.client.keyed_rows import checked_keys
from switchml.client.wire import Wire
from switchml.torch.collectives import Collective, Conditions
from switchml.torch.deadlines import Deadline
from switchml.torch.encodings import Encoding, encode
from switchml.torch.exact_network import ExactNetwork, Handle, Network
from switchml.torch.gloo_moves import broadcast_over_gloo, union_over_gloo
from switchml.torch.gloo_reductions import GlooReduction
from switchml.torch.operands import memory_of, require_device
from switchml.torch.reductions import Reduction

__all__ = ["SparseAllReduce"]


class SparseAllReduce(Collective):
    """An all-reduce of one tensor of the layout `torch.sparse_coo`, whose result is coalesced.

    A place is a number for the indices of the sparse dimensions, and has a row: the values of the dense dimensions. All
    ranks reduce a dense tensor with a row for each place that any rank has; zeros where a rank has none.
    """

    def __init__(self, tensor: Tensor, reduction: Reduction, conditions: Conditions) -> None:
        """Take the values of `tensor`; if they are `private`, keep a copy of them, as for other collectives.

        Raises:
            UnsupportedTensor: the tensor is complex, or on a device from which a collective cannot take it.
            ValueError: it claims to be coalesced, but is not.

        """
        require_device(tensor, conditions.options)
        if tensor.is_complex():
            raise UnsupportedTensor(
                f"the sparse tensor is {tensor.dtype}. It is unchanged; reduce its real and imaginary parts apart, "
                "or pass x.to_dense()."
            )
        super().__init__(f"all_reduce ({reduction.name})", [tensor], [], conditions)
        self._tensor = tensor
        self._reduction = reduction
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            self._ranges = [memory_of(tensor.detach()._values())]  # `deliver` gives the tensor other memory
            own = tensor.detach().coalesce().cpu()
            self._values = own.values().clone() if conditions.private else own.values()
            self._places = _numbered(own.indices(), own.shape)
        checked_keys(self._places)
        self.bytes = self._values.nbytes + self._places.nbytes
        self._union = self._places
        self._sums = self._values
        self._part: Encoding | GlooReduction | None = None

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The memory of the caller's values."""
        return self._ranges

    @property
    def waits(self) -> bool:
        """True: the ranks must agree on the places first."""
        return True

    def share(self, gloo: Any, giver: int, _exact: ExactNetwork | None, deadline: Deadline) -> None:
        """Give the result of rank `giver` to the ranks that lack it."""
        gives = self.conditions.rank == giver
        count = torch.tensor([len(self._union) if gives else 0])
        broadcast_over_gloo(gloo, count, giver, deadline.left).wait()
        union = self._union if gives else torch.empty(int(count), dtype=torch.int64)
        sums = self._sums if gives else self._values.new_empty((len(union), *self._values.shape[1:]))
        for part in (union, sums):
            broadcast_over_gloo(gloo, part, giver, deadline.left).wait()
        self._union, self._sums = union, sums

    def deliver(self) -> None:
        """Replace the values of the caller's tensor."""
        with torch.inference_mode(False), torch.no_grad():
            values = self._sums.clone() if self.conditions.private else self._sums
            indices = _indices_of(self._union, self._tensor.shape[: self._tensor.sparse_dim()])
            result = torch.sparse_coo_tensor(
                indices, values, self._tensor.shape, check_invariants=False, is_coalesced=True
            )
        with torch.inference_mode(self._tensor.is_inference()), torch.no_grad():
            self._tensor.copy_(result)

    def _start(self, network: Network, deadline: Deadline) -> Sequence[Handle]:
        tensor = self._tensor
        purpose = f"{self._reduction.name} of {tensor.sparse_dim()} of {tuple(tensor.shape)} {tensor.dtype}"
        self._place(torch.from_numpy(network.union_of_keys(self._places, purpose, deadline.seconds_left)))
        options = self.conditions.options
        skip = not isinstance(options.wire, Wire) or options.wire.skips_zeros
        self._part = encode(self._sums, self._reduction, self.conditions.world_size, options, skip_zeros=skip)
        return self._part.start(network, deadline)

    def _start_over_gloo(self, gloo: Any) -> Sequence[Any]:
        self._place(union_over_gloo(gloo, self._places, self.conditions.world_size, self.deadline))
        self._part = GlooReduction(self._sums, self._reduction, self.conditions.world_size)
        return [self._part.start(gloo, self.deadline.left)]

    def _place(self, union: Tensor) -> None:
        """Put the rows of this rank into a tensor with a row for each place of `union`."""
        with torch.inference_mode(False), torch.no_grad():
            self._union = union
            self._sums = self._values.new_zeros((len(union), *self._values.shape[1:]))
            self._sums[torch.searchsorted(union, self._places)] = self._values

    def _decode(self) -> None:
        if self._part is not None:
            self._part.finish()


def _numbered(indices: Tensor, shape: torch.Size) -> Tensor:
    """Return the place of each column of `indices`, whose order is that of the columns."""
    places = torch.zeros(indices.shape[1], dtype=torch.int64)
    for index, size in zip(indices, shape, strict=False):
        places = places * size + index
    return places


def _indices_of(places: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the columns of indices of `places`."""
    steps = [math.prod(sizes[dimension + 1 :]) for dimension in range(len(sizes))]
    rows = [places.div(step, rounding_mode="floor") % size for step, size in zip(steps, sizes, strict=True) if step]
    return torch.stack(rows) if len(rows) == len(sizes) > 0 else places.new_zeros((len(sizes), len(places)))
