"""Methods that send codes whose table or range differs between ranks, so that they cannot be summed."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from switchml.client.arguments import real_number, whole_number
from switchml.torch.compression.compressor import Compressor, Outcome, Place, Rounds
from switchml.torch.compression.payloads import as_bytes, gathered, mean_of, pack, unpack
from switchml.torch.compression.requests import Gather

__all__ = ["Dynamic8", "Inceptionn", "Natural", "SketchML"]

_DROPPED, _BYTE, _HALF, _WHOLE = range(4)  # tags of INCEPTIONN
_NEGATIVE, _ZERO = 128, 127  # the sign bit of natural compression, and its code of zero
_LARGEST_POWER = 127  # 2^127 is the largest power of two in float32


class Inceptionn(Compressor):
    """32, 16, 8 or 0 bits for an element, by its exponent, and a tag of two bits that says which (INCEPTIONN).

    Magnitudes of 1 and more are sent as they are. Below, there are two ranges of exponents of equal size: the upper one
    is sent as a sign and the first 15 bits behind the binary point; the lower one as a sign and the first 7 bits behind
    the point and the zeros that all of them have. Smaller elements are dropped.

    Args:
        error_bound: elements below 2^floor are dropped, where floor is log10(error_bound / 2) without its fraction.

    """

    name = "inceptionn"
    sent = "2, and 0, 8, 16 or 32"
    requests = (Gather, Gather)
    per = "parameter"

    def __init__(self, error_bound: float = 2e-10) -> None:
        self.error_bound = real_number(error_bound, "error_bound")
        if not 0 < self.error_bound <= 0.02:
            raise ValueError(f"error_bound is {error_bound!r}; it must be above 0 and at most 0.02")
        self._least = int(math.log10(self.error_bound / 2))  # the exponent of the smallest elements that are sent
        self._middle = -((-self._least + 1) // 2)

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Gather the sizes, then the codes."""
        payloads = yield from gathered(self._encoded(gradient))
        decoded = [self._decoded(payload, gradient.numel()) for payload in payloads]
        return Outcome(mean_of(decoded), decoded[place.rank])

    def _encoded(self, gradient: Tensor) -> Tensor:
        """Return the packed tags, then the elements of 32, of 16 and of 8 bits."""
        exponents = torch.frexp(gradient).exponent - 1
        tags = torch.full(gradient.shape, _DROPPED, dtype=torch.uint8)
        tags[(exponents >= self._least) & (gradient != 0)] = _BYTE
        tags[(exponents >= self._middle) & (gradient != 0)] = _HALF
        tags[exponents >= 0] = _WHOLE
        halves = self._fixed(gradient[tags == _HALF], 15, 0)
        # There is no unsigned type of 16 bits that all operations know; the bytes are the same.
        narrow = halves.sub(halves.ge(2**15) * 2**16).to(torch.int16)
        small = self._fixed(gradient[tags == _BYTE], 7, -self._middle).to(torch.uint8)
        return as_bytes(pack(tags, 2), gradient[tags == _WHOLE], narrow, small)

    def _decoded(self, payload: Tensor, elements: int) -> Tensor:
        packed = -(-2 * elements // 8)
        tags = unpack(payload[:packed], 2, elements)
        wholes, halves = int((tags == _WHOLE).sum()), int((tags == _HALF).sum())
        rest = payload[packed:].clone()
        first, second, third = rest.tensor_split((4 * wholes, 4 * wholes + 2 * halves))
        decoded = torch.zeros(elements)
        decoded[tags == _WHOLE] = first.clone().view(torch.float32)
        decoded[tags == _HALF] = self._from_fixed(second.clone().view(torch.int16).int() & 0xFFFF, 15, 0)
        decoded[tags == _BYTE] = self._from_fixed(third.int(), 7, -self._middle)
        return decoded

    @staticmethod
    def _fixed(x: Tensor, bits: int, shift: int) -> Tensor:
        """Return the sign, then `bits` bits of x * 2^shift behind the binary point."""
        return (x.abs() * 2.0 ** (bits + shift)).floor_().int() + (x < 0).int() * 2**bits

    @staticmethod
    def _from_fixed(codes: Tensor, bits: int, shift: int) -> Tensor:
        magnitudes = (codes & (2**bits - 1)) * 2.0 ** -(bits + shift)
        return torch.where(codes >= 2**bits, -magnitudes, magnitudes)


class SketchML(Compressor):
    """The number of the quantile that an element is in, and the mean of each quantile (SketchML).

    Args:
        quantiles: from 2 to 256; their numbers take ceil(log2 quantiles) bits.

    """

    name = "sketchml"
    sent = "log2(quantiles)"
    requests = (Gather,)
    per = "parameter"

    def __init__(self, quantiles: int = 64) -> None:
        if not 2 <= whole_number(quantiles, "quantiles") <= 256:
            raise ValueError(f"quantiles is {quantiles}; it must be from 2 to 256")
        self.quantiles = quantiles
        self._bits = (quantiles - 1).bit_length()

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Gather numbers and means."""
        shares = np.arange(1, self.quantiles) / self.quantiles
        edges = torch.from_numpy(np.quantile(gradient.numpy(), shares).astype(np.float32))
        codes = torch.bucketize(gradient, edges)
        sums = torch.bincount(codes, gradient.double(), minlength=self.quantiles)
        means = (sums / torch.bincount(codes, minlength=self.quantiles).clamp(min=1)).float()
        rows = yield Gather(as_bytes(pack(codes.to(torch.uint8), self._bits), means))
        decoded = [self._decoded(row, gradient.numel()) for row in rows]
        return Outcome(mean_of(decoded), decoded[place.rank])

    def _decoded(self, row: Tensor, elements: int) -> Tensor:
        size = 4 * self.quantiles
        return row[-size:].clone().view(torch.float32)[unpack(row[:-size], self._bits, elements).long()]


class Natural(Compressor):
    """A sign and one of the two powers of two around each element, at random (natural compression).

    The power 2^p or 2^(p + 1) is taken so that the expected value is the element (Horváth et al., 2022). A code has the
    sign and the distance from the largest power of the gradient, from 0 to 126; what is smaller becomes zero.
    """

    name = "natural"
    sent = "8"
    requests = (Gather,)
    per = "parameter"
    unbiased = True

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Gather codes and the largest powers."""
        fractions, exponents = torch.frexp(gradient.abs())  # fractions from 1/2 to 1
        up = torch.rand(gradient.numel(), generator=place.generator()) < 2 * fractions - 1
        powers = (exponents - 1 + up).clamp_(max=_LARGEST_POWER)
        largest = powers[gradient != 0].max() if bool(gradient.any()) else powers.new_zeros(())
        codes = (largest - powers).clamp_(max=_ZERO)
        codes[gradient == 0] = _ZERO
        codes += (gradient < 0) * _NEGATIVE
        rows = yield Gather(as_bytes(codes.to(torch.uint8), largest.int()))
        decoded = [self._decoded(row) for row in rows]
        return Outcome(mean_of(decoded), decoded[place.rank])

    @staticmethod
    def _decoded(row: Tensor) -> Tensor:
        largest = int(row[-4:].clone().view(torch.int32))
        magnitudes = np.append(np.ldexp(1.0, largest - np.arange(_ZERO)), 0.0).astype(np.float32)
        return torch.from_numpy(np.concatenate([magnitudes, -magnitudes]))[row[:-4].int()]


class Dynamic8(Compressor):
    """The nearest of 256 numbers of a dynamic tree, times the largest magnitude (8-bit approximation).

    A number has a decimal exponent from -6 to 0, and the more bits for its fraction the larger it is (Dettmers, 2016).
    """

    name = "dynamic8"
    sent = "8"
    requests = (Gather,)
    per = "parameter"

    def __init__(self) -> None:
        self._numbers = _dynamic_tree()
        self._between = (self._numbers[1:] + self._numbers[:-1]) / 2

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Gather codes and the largest magnitudes."""
        largest = gradient.abs().amax()
        shares = gradient / largest if float(largest) > 0 else gradient
        codes = torch.bucketize(shares, self._between)
        rows = yield Gather(as_bytes(codes.to(torch.uint8), largest))
        decoded = [self._numbers[row[:-4].int()] * row[-4:].clone().view(torch.float32) for row in rows]
        return Outcome(mean_of(decoded), decoded[place.rank])

    def settings(self) -> dict[str, object]:
        """Return the arguments: none."""
        return {}


def _dynamic_tree() -> Tensor:
    """Return the numbers in their order: for each exponent twice as many as for the one below, then 0 and 1."""
    numbers = [0.0, 1.0]
    for bits in range(7):
        edges = np.linspace(0.1, 1, 2**bits + 1)
        middles = (edges[1:] + edges[:-1]) / 2 * 10.0 ** (bits - 6)
        numbers += [*middles, *-middles]
    return torch.tensor(sorted(numbers), dtype=torch.float32)
