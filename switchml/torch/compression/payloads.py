"""The payloads that ranks gather: bytes, and codes of a few bits packed into them."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
import torch
from torch import Tensor

from switchml.torch.compression.requests import Gather

__all__ = ["as_bytes", "gathered", "mean_of", "pack", "unpack"]


def as_bytes(*tensors: Tensor) -> Tensor:
    """Return the bytes of contiguous tensors, one after the other."""
    return torch.cat([tensor.reshape(-1).view(torch.uint8) for tensor in tensors])


def pack(codes: Tensor, bits: int) -> Tensor:
    """Return codes below 2^bits, of uint8, packed into as few bytes as hold their bits."""
    places = np.unpackbits(codes.numpy()[:, None], axis=1, bitorder="little")[:, :bits]
    return torch.from_numpy(np.packbits(places.ravel(), bitorder="little"))


def unpack(packed: Tensor, bits: int, codes: int) -> Tensor:
    """Return the codes that `pack` has packed."""
    places = np.unpackbits(packed.numpy(), count=bits * codes, bitorder="little").reshape(codes, bits)
    return torch.from_numpy(np.packbits(places, axis=1, bitorder="little")[:, 0])


def gathered(payload: Tensor) -> Generator[Gather, Tensor, list[Tensor]]:
    """Gather bytes, of which each rank may have another number; return those of each rank. Takes two rounds."""
    sizes = (yield Gather(torch.tensor([payload.numel()], dtype=torch.int32))).flatten().tolist()
    rows = yield Gather(torch.nn.functional.pad(payload, (0, max(sizes) - payload.numel())))
    return [row[:size] for row, size in zip(rows, sizes, strict=True)]


def mean_of(decoded: Sequence[Tensor]) -> Tensor:
    """Return the mean of the ranks' gradients, added up in the order of the ranks."""
    total = decoded[0].clone()
    for other in decoded[1:]:
        total += other
    return total.div_(len(decoded))
