"""Methods whose values are summed in the switch, so the bytes that a rank receives do not grow with their number.

Integers are summed exactly if all ranks have one scale, on which they agree in a round before. Floating-point values
are summed as in every all-reduce of the switch.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from switchml.client.arguments import whole_number
from switchml.client.wire import CODES, MOST_RANKS_OF_DYNAMIC8, Blocks, CodeName, Codes, Rounding, Wire
from switchml.torch.compression.compressor import (
    Compressor,
    MemoryName,
    Outcome,
    Place,
    Rounds,
    density_of,
    kept_elements,
    positive,
)
from switchml.torch.compression.requests import Average, FromLeader, Largest, Sparse, Sum
from switchml.torch.compression.selection import largest_places, magnitudes_of

__all__ = [
    "BlockTopK",
    "Dense",
    "EFSign",
    "Int8",
    "Lanes",
    "Qsgd",
    "RandomK",
    "SharedTopK",
    "Sign",
    "SummedCodes",
    "TernGrad",
    "placed",
]


class Dense(Compressor):
    """The average in lanes of 32 bits: no compression."""

    name = "none"
    sent = "32"
    requests = (Average,)
    positional = True
    unbiased = True

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Average the gradient."""
        return Outcome((yield Average(gradient)), gradient)


class Lanes(Compressor):
    """The average in lanes of 16 or 8 bits, whose rounding the native code does.

    Args:
        bits: of a value in packets.
        rounding: "stochastic", or with 16 bits also "nearest".

    """

    name = "lanes"
    sent = "16 or 8"
    requests = (Average,)
    positional = True
    unbiased = True
    knows_own = False  # the unit of the lanes is agreed for each packet

    def __init__(self, bits: int = 16, rounding: Rounding = "stochastic") -> None:
        if whole_number(bits, "bits") not in (16, 8):
            raise ValueError(f"bits is {bits}; it must be 16 or 8")
        if rounding != "stochastic" and (rounding != "nearest" or bits == 8):
            raise ValueError(
                f'rounding is {rounding!r}; it must be "stochastic", or "nearest" with 16 bits. The method "int8" '
                "rounds to the nearest of 8 bits, with error feedback"
            )
        self.bits = bits
        self.rounding = rounding
        self.unbiased = rounding == "stochastic"

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Average the gradient."""
        return Outcome((yield Average(gradient, self._wire(place))))

    def _wire(self, place: Place) -> Wire:
        if self.rounding == "nearest":
            return Blocks(self.bits)
        return Blocks(self.bits, self.rounding, place.shared_seed)

    def check(self, world_size: int) -> None:
        """Check that the lanes have a level for each rank."""
        if world_size > 2 ** (self.bits - 1) - 1:
            raise ValueError(f"lanes: {self.bits} bits hold no sum of {world_size} ranks")

    def settings(self) -> dict[str, object]:
        """Return the arguments."""
        return {"bits": self.bits, "rounding": self.rounding}


class SummedCodes(Compressor):
    """The average of codes of 8 bits, natural8 or dynamic8, which the switch expands before it adds them up.

    All ranks have one unit for each packet. The switch must be able to do this: `Communicator.codes`.

    Args:
        codes: "natural8" for a sign and one of the two powers of two around each element, at random; "dynamic8" for
            the nearest of 255 numbers of a dynamic tree.

    """

    name = "codes"
    sent = "8; over shared memory 32"
    requests = (Average,)
    positional = True
    unbiased = True
    knows_own = False  # the unit of the codes is agreed for each packet

    def __init__(self, codes: CodeName = "natural8") -> None:
        if codes not in CODES:
            raise ValueError(f"codes is {codes!r}; it must be {' or '.join(map(repr, CODES))}")
        self.codes = codes
        self.unbiased = codes == "natural8"

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Average the gradient."""
        return Outcome((yield Average(gradient, Codes(self.codes, place.shared_seed))))

    def check(self, world_size: int) -> None:
        """Check that the sums of the codes fit words."""
        if self.codes == "dynamic8" and world_size > MOST_RANKS_OF_DYNAMIC8:
            raise ValueError(
                f"codes: words hold the sums of dynamic8 codes of at most {MOST_RANKS_OF_DYNAMIC8} ranks, and this "
                f"group has {world_size}; use natural8"
            )

    def settings(self) -> dict[str, object]:
        """Return the arguments."""
        return {"codes": self.codes}


class Int8(Compressor):
    """The nearest of floor(127 / N) levels on both sides of 0, summed in lanes of 8 bits.

    The largest magnitude of any rank in a block is the unit of all of them.

    Args:
        block: elements with one unit.

    """

    name = "int8"
    sent = "8 + 32 / block"
    requests = (Largest, Sum)
    memory = "error feedback"

    def __init__(self, block: int = 256) -> None:
        self.block = _block(block)

    def check(self, world_size: int) -> None:
        """Check that there is a level for each rank."""
        if world_size > 127:
            raise ValueError(f"int8: lanes of 8 bits hold no sum of {world_size} ranks")

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Agree on the units, then sum levels."""
        elements, most = gradient.numel(), 127 // place.size
        unit = _spread((yield Largest(_in_blocks(gradient, self.block).abs().amax(1))), self.block, elements) / most
        levels = _over(gradient, unit).round_().clamp_(-most, most)
        sums = yield Sum(levels.to(torch.int32), most)
        return Outcome(sums * unit / place.size, levels * unit)


class Qsgd(Compressor):
    """Stochastic levels between 0 and the norm of a block, summed as integers (QSGD with one norm for all ranks).

    The largest norm of any rank is the norm of all of them, so that the sum of the levels is the sum of the values.

    Args:
        levels: between 0 and the norm.
        norm: "l2", or "max" for the largest magnitude.
        block: elements with one norm.

    """

    name = "qsgd"
    sent = "8, 16 or 32, as N · levels needs, + 32 / block"
    requests = (Largest, Sum)
    unbiased = True

    def __init__(self, levels: int = 127, norm: Literal["l2", "max"] = "l2", block: int = 128) -> None:
        if whole_number(levels, "levels") < 1:
            raise ValueError(f"levels is {levels}; it must be at least 1")
        if norm not in ("l2", "max"):
            raise ValueError(f'norm is {norm!r}; it must be "l2" or "max"')
        self.levels = levels
        self.norm = norm
        self.block = _block(block)

    @property
    def bound(self) -> int:  # type: ignore[override]
        """The largest level."""
        return self.levels

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Agree on the norms, then sum levels."""
        blocks = _in_blocks(gradient, self.block)
        own = blocks.norm(dim=1) if self.norm == "l2" else blocks.abs().amax(1)
        unit = _spread((yield Largest(own)), self.block, gradient.numel()) / self.levels
        noise = torch.rand(gradient.numel(), generator=place.generator())
        levels = (_over(gradient.abs(), unit) + noise).floor_().clamp_(max=self.levels).copysign_(gradient)
        sums = yield Sum(levels.to(torch.int32), self.levels)
        return Outcome(sums * unit / place.size, levels * unit)


class TernGrad(Qsgd):
    """Stochastic -1, 0 or 1, times the largest magnitude of any rank in a block, summed as integers (TernGrad).

    Args:
        block: elements with one unit.
        clip: magnitudes are first limited to this multiple of the standard deviation of the gradient, which makes the
            method biased; None for no limit.

    """

    name = "terngrad"
    sent = "8 + 32 / block"

    def __init__(self, block: int = 128, clip: float | None = None) -> None:
        super().__init__(1, "max", block)
        self.clip = None if clip is None else positive(clip, "clip")
        self.unbiased = clip is None

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Agree on the units, then sum the signs."""
        if self.clip is not None:
            limit = self.clip * gradient.std(correction=0)
            gradient = gradient.clamp(-limit, limit)
        return (yield from super().rounds(gradient, place))

    def settings(self) -> dict[str, object]:
        """Return the arguments."""
        return {"block": self.block, "clip": self.clip}


class Sign(Compressor):
    """The sign that most ranks have; a tie is positive (signSGD with majority vote). The results are 1 and -1.

    With the memory `MovingAverage`, this is SIGNUM.
    """

    name = "signsgd"
    sent = "8"
    requests = (Sum,)
    positional = True
    bound = 1

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Sum the votes."""
        votes = torch.where(gradient >= 0, 1, -1)
        sums = yield Sum(votes.to(torch.int8), 1)
        return Outcome(torch.where(sums >= 0, 1.0, -1.0), votes.to(torch.float32))


class Signum(Sign):
    """The sign that most ranks' moving averages of the gradients have (SIGNUM)."""

    name = "signum"
    memory = "moving average"


class EFSign(Compressor):
    """Signs times one magnitude: the largest of the ranks' mean magnitudes of the parameter (EF-signSGD)."""

    name = "efsign"
    sent = "8"
    requests = (Largest, Sum)
    per = "parameter"
    memory = "error feedback"
    bound = 1

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Agree on the magnitude, then sum the signs."""
        magnitude = yield Largest(gradient.abs().mean().reshape(1))
        signs = torch.where(gradient >= 0, 1, -1)
        sums = yield Sum(signs.to(torch.int8), 1)
        return Outcome(sums * magnitude / place.size, signs * magnitude)


class RandomK(Compressor):
    """Elements at random places, the same on all ranks, which know them without a message (Random-k).

    Args:
        density: the share of elements that are sent.
        unbiased: multiply them by the reciprocal of that share, for use without error feedback.

    """

    name = "randomk"
    sent = "32 · density"
    requests = (Average,)
    selects = True
    memory: MemoryName = "error feedback"

    def __init__(self, density: float = 0.3, unbiased: bool = False) -> None:
        self.density = density_of(density)
        self.unbiased = unbiased
        if unbiased:
            self.memory = "none"

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Average the chosen elements."""
        elements = gradient.numel()
        kept = kept_elements(self.density, elements)
        places = torch.randperm(elements, generator=place.shared_generator())[:kept]
        values = gradient[places] * (elements / kept) if self.unbiased else gradient[places]
        return placed((yield Average(values)), values, places, elements)

    def settings(self) -> dict[str, object]:
        """Return the arguments."""
        return {"density": self.density, "unbiased": self.unbiased}


class SharedTopK(Compressor):
    """Elements at the places of one rank's largest; ranks take turns (ScaleCom's CLT-k).

    The leader of a step, rank `step` modulo N, sends the places of its largest elements; all ranks then send theirs at
    these places. So the values are summed in the switch, and their number does not depend on N.

    Args:
        density: the share of elements that are sent.

    """

    name = "shared_topk"
    sent = "32 · density; the leader 64 · density"
    requests = (FromLeader, Average)
    selects = True
    memory = "error feedback"

    def __init__(self, density: float = 0.01) -> None:
        self.density = density_of(density)

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Get the places from the leader, then average the elements there."""
        kept = kept_elements(self.density, gradient.numel())
        if place.rank == place.leader:
            chosen = largest_places(magnitudes_of(gradient), kept).to(torch.int32)
        else:
            chosen = torch.zeros(kept, dtype=torch.int32)
        places = (yield FromLeader(chosen, place.leader)).long()
        values = gradient[places]
        return placed((yield Average(values)), values, places, gradient.numel())


class BlockTopK(Compressor):
    """The blocks with the largest norms, each rank's own, in a sparse sum (docs/guides/sparse.md).

    Blocks that no rank has chosen are not sent. The sum is made in the switch; its blocks are those of all ranks. A
    packet of more than 256 values has several blocks, which the same ranks have chosen, and may not be full.

    Args:
        density: the share of blocks that are sent.
        block: elements of a block; as many as the values of a packet suit best, but at most 256.

    """

    name = "block_topk"
    sent = "32 · density; with packets of more than 256 values up to twice as much"
    requests = (Sparse,)
    memory = "error feedback"

    def __init__(self, density: float = 0.01, block: int = 256) -> None:
        self.density = density_of(density)
        self.block = _block(block)

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Average the chosen blocks."""
        blocks = _in_blocks(gradient, self.block)
        kept = kept_elements(self.density, len(blocks))
        chosen = largest_places(blocks.square().sum(1), kept)
        own = torch.zeros_like(blocks)
        own[chosen] = blocks[chosen]
        values = own.view(-1)[: gradient.numel()]
        return Outcome((yield Sparse(values)), values)


def _block(block: int) -> int:
    if whole_number(block, "block") < 1:
        raise ValueError(f"block is {block}; it must be at least 1")
    return block


def _in_blocks(x: Tensor, block: int) -> Tensor:
    """Return `x` as rows of `block` elements, the last one filled up with zeros."""
    missing = -x.numel() % block
    return (torch.nn.functional.pad(x, (0, missing)) if missing else x).view(-1, block)


def _spread(of_blocks: Tensor, block: int, elements: int) -> Tensor:
    """Return the number of its block for each element."""
    return of_blocks.repeat_interleave(block)[:elements]


def _over(x: Tensor, unit: Tensor) -> Tensor:
    """Return x / unit, and 0 where the unit is 0."""
    return torch.where(unit > 0, x / unit, 0.0)


def placed(averages: Tensor, values: Tensor, places: Tensor, elements: int) -> Outcome:
    """Return the outcome whose elements at `places` are `averages` and the own `values`, and 0 elsewhere."""
    average, own = torch.zeros(elements), torch.zeros(elements)
    average[places] = averages
    own[places] = values
    return Outcome(average, own)
