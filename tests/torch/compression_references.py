"""Each method of compression in numpy, over the gradients of all ranks at a time: what the ranks must end with.

A reference returns the average and, for each rank, the gradient that its contribution stands for (None if the method
does not know it). Random numbers are those of the ranks' places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from switchml.dataplane.codes import integers_of_codes
from switchml.dataplane.constants import DYNAMIC8_UNIT_BITS, Format
from switchml.launch.settings import EMBEDDED_VALUES
from switchml.torch.compression import Compressor, FromLeader, Gather, Outcome, Place, Sum
from switchml.torch.compression.compressor import next_of
from switchml.torch.compression.rotations import hadamard

Arrays = list[np.ndarray]
Result = tuple[np.ndarray, "Arrays | None"]
Pair = tuple[float, float]
F = np.float32


def noise(place: Place, elements: int) -> np.ndarray:
    return np.asarray(torch.rand(elements, generator=place.generator()).numpy())


def blocks(x: np.ndarray, block: int) -> np.ndarray:
    return np.pad(x, (0, -len(x) % block)).reshape(-1, block)


def divided(x: np.ndarray, unit: np.ndarray) -> np.ndarray:
    return np.asarray(np.divide(x, unit, out=np.zeros_like(x), where=unit > 0))


def mean(gradients: Arrays, places: list[Place], method: Compressor) -> Result:
    return np.mean(np.asarray(gradients, np.float64), 0).astype(F), gradients


def lanes(gradients: Arrays, places: list[Place], method: Compressor) -> Result:
    return np.mean(np.asarray(gradients, np.float64), 0).astype(F), None


def units_of(gradients: Arrays, bits: int) -> np.ndarray:
    """Return the unit of each element: 2^bits units are the power of two above all magnitudes of its packet."""
    per_packet = np.max([np.abs(blocks(x, EMBEDDED_VALUES)).max(1) for x in gradients], 0)
    exponents = np.where(per_packet > 0, np.frexp(per_packet)[1], 0) - bits
    return np.repeat(np.exp2(exponents.astype(np.float64)), EMBEDDED_VALUES)[: len(gradients[0])]


def summed_codes(gradients: Arrays, places: list[Place], method: Any) -> Result:
    """Sum the nearest numbers of the table; the powers of two of natural8 are random."""
    assert method.codes == "dynamic8"
    units, sums = units_of(gradients, DYNAMIC8_UNIT_BITS), np.zeros(len(gradients[0]))
    table = np.unique(integers_of_codes(Format.DYNAMIC8))
    middles = (table[1:] + table[:-1]) / 2
    for x in gradients:
        sums += table[np.searchsorted(middles, x / units)]
    return (sums * units / len(gradients)).astype(F), None


def int8(gradients: Arrays, places: list[Place], method: Any) -> Result:
    most = 127 // len(gradients)
    largest = np.max([np.abs(blocks(x, method.block)).max(1) for x in gradients], 0)
    unit = np.repeat(largest, method.block)[: len(gradients[0])] / F(most)
    levels = [np.clip(np.rint(divided(x, unit)), -most, most) for x in gradients]
    return np.sum(levels, 0, dtype=F) * unit / F(len(levels)), [level * unit for level in levels]


def qsgd(gradients: Arrays, places: list[Place], method: Any) -> Result:
    if getattr(method, "clip", None):
        gradients = [np.clip(x, -F(method.clip) * x.std(), F(method.clip) * x.std()) for x in gradients]
    elements = len(gradients[0])
    of_blocks = [torch.from_numpy(blocks(x, method.block)) for x in gradients]
    norms = [x.norm(dim=1) if method.norm == "l2" else x.abs().amax(1) for x in of_blocks]  # the same order of sums
    unit = np.repeat(np.max([norm.numpy() for norm in norms], 0), method.block)[:elements] / F(method.levels)
    levels = [
        np.copysign(np.minimum(np.floor(divided(np.abs(x), unit) + noise(place, elements)), method.levels), x)
        for x, place in zip(gradients, places, strict=True)
    ]
    return np.sum(levels, 0, dtype=F) * unit / F(len(levels)), [level * unit for level in levels]


def butterflies(rows: np.ndarray) -> np.ndarray:
    """Return the Walsh-Hadamard transform of integers, one factor of 2 at a time."""
    whole, step = rows.astype(np.int64), 1
    while step < rows.shape[1]:
        pairs = whole.reshape(len(rows), -1, 2, step)
        whole = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], 2).reshape(rows.shape)
        step *= 2
    return whole


def thc(gradients: Arrays, places: list[Place], method: Any) -> Result:
    elements, most = len(gradients[0]), 127 // len(gradients)
    block = min(method.block, 2 ** math.ceil(math.log2(elements)))
    signs = torch.randint(0, 2, (block,), generator=places[0].shared_generator()).numpy().astype(F) * 2 - 1
    # The same order of additions in the way there; the way back is exact.
    rotated = [hadamard(torch.from_numpy(blocks(x, block) * signs)).numpy() for x in gradients]
    unit = np.max([np.abs(x).max(1) for x in rotated], 0)[:, None] / F(most)
    shares = [x * divided(np.ones_like(unit), unit) for x in rotated]
    levels = [
        np.clip(np.floor(x + noise(place, x.size).reshape(x.shape)), -most, most)
        for x, place in zip(shares, places, strict=True)
    ]

    def back(total: np.ndarray) -> np.ndarray:
        whole = butterflies(total) * (signs * (unit / F(block))).astype(np.float64)
        return np.asarray(whole.reshape(-1)[:elements], F)

    return back(np.sum(levels, 0)) / F(len(levels)), [back(level) for level in levels]


def sign(gradients: Arrays, places: list[Place], method: Compressor) -> Result:
    votes = [np.where(x >= 0, 1, -1).astype(F) for x in gradients]
    return np.where(np.sum(votes, 0) >= 0, 1, -1).astype(F), votes


def efsign(gradients: Arrays, places: list[Place], method: Compressor) -> Result:
    votes = sign(gradients, places, method)[1]
    assert votes is not None
    magnitude = max(float(torch.from_numpy(x).abs().mean()) for x in gradients)
    return np.sum(votes, 0) * F(magnitude) / F(len(votes)), [vote * F(magnitude) for vote in votes]


def at(places: np.ndarray, gradients: Arrays, factor: float = 1.0) -> Result:
    owns = []
    for x in gradients:
        own = np.zeros_like(x)
        own[places] = x[places] * F(factor)
        owns.append(own)
    return np.mean(np.asarray(owns, np.float64), 0).astype(F), owns


def randomk(gradients: Arrays, places: list[Place], method: Any) -> Result:
    elements = len(gradients[0])
    kept = max(1, int(elements * method.density))
    chosen = torch.randperm(elements, generator=places[0].shared_generator())[:kept].numpy()
    return at(chosen, gradients, elements / kept if method.unbiased else 1.0)


def largest(x: np.ndarray, count: int) -> np.ndarray:
    return np.argsort(-np.abs(x), kind="stable")[:count]


def shared_topk(gradients: Arrays, places: list[Place], method: Any) -> Result:
    leading = gradients[places[0].step % len(gradients)]
    return at(largest(leading, max(1, int(len(leading) * method.density))), gradients)


def block_topk(gradients: Arrays, places: list[Place], method: Any) -> Result:
    owns = []
    for x in gradients:
        rows = blocks(x, method.block)
        norms = np.square(rows).sum(1)
        own = np.zeros_like(rows)
        chosen = largest(norms, max(1, int(len(rows) * method.density)))
        own[chosen] = rows[chosen]
        owns.append(own.reshape(-1)[: len(x)])
    return np.mean(np.asarray(owns, np.float64), 0).astype(F), owns


def in_turn(owns: Arrays) -> Result:
    """Return the mean, added up in the order of the ranks."""
    total = owns[0].copy()
    for own in owns[1:]:
        total = total + own
    return total / F(len(owns)), owns


def onebit(gradients: Arrays, places: list[Place], method: Compressor) -> Result:
    def decoded(x: np.ndarray) -> np.ndarray:
        values = torch.from_numpy(x)
        return np.asarray(np.where(x < 0, values[values < 0].mean().numpy(), values[values >= 0].mean().numpy()))

    return in_turn([decoded(x) for x in gradients])


def selected(gradients: Arrays, masks: Sequence[np.ndarray]) -> Result:
    return in_turn([np.where(mask, x, F(0)) for x, mask in zip(gradients, masks, strict=True)])


def topk(gradients: Arrays, places: list[Place], method: Any) -> Result:
    masks = []
    for x in gradients:
        mask = np.zeros(len(x), bool)
        mask[largest(x, max(1, int(len(x) * method.density)))] = True
        masks.append(mask)
    return selected(gradients, masks)


def threshold(gradients: Arrays, places: list[Place], method: Any) -> Result:
    return selected(gradients, [np.abs(x) >= F(method.threshold) for x in gradients])


def sampled(x: np.ndarray, density: float, generator: torch.Generator, band: Pair, factors: Pair, steps: int) -> float:
    size = min(len(x), max(len(x) // 100, 1000))
    sample = x if size == len(x) else x[torch.randint(len(x), (size,), generator=generator).numpy()]
    limit = float(np.sort(sample)[-max(1, int(size * density))])
    wanted = max(1, int(len(x) * density))
    for _ in range(steps):
        count = int((x >= F(limit)).sum())
        if band[0] * wanted <= count <= band[1] * wanted:
            return limit
        limit *= factors[1] if count > wanted else factors[0]
    return float(np.sort(x)[-wanted])


def dgc(gradients: Arrays, places: list[Place], method: Any) -> Result:
    masks = []
    for x, place in zip(gradients, places, strict=True):
        limit = sampled(np.abs(x), method.density, place.generator(), (0.7, 1.3), (0.7, 1.3), 10)
        masks.append(np.abs(x) >= F(limit))
    return selected(gradients, masks)


def adaq(gradients: Arrays, places: list[Place], method: Any) -> Result:
    owns = []
    for x, place in zip(gradients, places, strict=True):
        generator = place.generator()
        own = np.zeros_like(x)
        for direction in (1, -1):
            where = np.nonzero(direction * x > 0)[0]
            values = np.abs(x[where])
            limit = sampled(values, method.density, generator, (0.8, 1.25), (0.9, 1.25), 20)
            chosen = where[values >= F(limit)]
            own[chosen] = torch.from_numpy(x[chosen]).mean().numpy()
        owns.append(own)
    return in_turn(owns)


def fitted(x: np.ndarray, method: Any) -> np.ndarray:
    size = np.abs(x)
    tail = size[size > 0]
    share = method.density * len(x) / len(tail)
    limit = -tail.mean(dtype=np.float64) * np.log(0.25 if method.stages == 2 else share)
    if method.stages == 2:
        tail = tail[tail > F(limit)]
        limit = tail.min() - (tail.mean(dtype=np.float64) - tail.min()) * np.log(share / 0.25)
    elif method.stages == "adaptive":  # with one stage at first
        wanted = int(method.density * len(x))
        if not 0.8 * wanted <= int((size > F(limit)).sum()) <= 1.2 * wanted:
            return np.asarray(size >= np.sort(size)[-wanted])
    return np.asarray(size > F(limit))


class ReferenceSidco:
    """SIDCo with the exponential distribution, adaptive stages, and a correction of the last one."""

    def __init__(self, density: float) -> None:
        self.density = density
        self.stages, self.direction, self.correction = 1, 1, 1.0
        self._ratios: list[float] = []
        self._former = np.inf

    def selected(self, size: np.ndarray) -> int:
        """Return how many elements are above the threshold, and adapt to it after each fifth call."""
        least, tail = 0.0, size
        for stage in range(1, self.stages + 1):
            share = self.density if self.stages == 1 else 0.25
            if stage > 1:
                share = (self.density / 0.25) ** (1 / (self.stages - 1))
            if stage == self.stages:
                share *= self.correction
            limit = least - (tail.mean(dtype=np.float64) - least) * np.log(share)
            tail = size[size > F(limit)]
            least = float(tail.min(initial=np.inf))
        wanted = self.density * len(size)
        self._ratios.append(len(tail) / wanted)
        misses = not 0.8 <= self._ratios[-1] <= 1.2
        if len(self._ratios) == 5:
            self._adapt(float(np.mean(self._ratios)))
            self._ratios = []
        return int(wanted) if misses else len(tail)

    def _adapt(self, mean: float) -> None:
        if 0.8 <= mean <= 1.2:
            self.correction /= mean if self.correction == 1 else mean**0.5
            self._former = np.inf
            return
        error = abs(np.log(mean)) if mean > 0 else np.inf
        if error > self._former or self.stages + self.direction < 1:
            self.direction = -self.direction
        self._former = error
        self.stages, self.correction = self.stages + self.direction, 1.0


def sidco(gradients: Arrays, places: list[Place], method: Compressor) -> Result:
    return selected(gradients, [fitted(x, method) for x in gradients])


def shared_sidco(gradients: Arrays, places: list[Place], method: Compressor) -> Result:
    return at(np.nonzero(fitted(gradients[places[0].step % len(gradients)], method))[0], gradients)


def inceptionn(gradients: Arrays, places: list[Place], method: Any) -> Result:
    least = int(math.log10(method.error_bound / 2))
    middle = -math.ceil(-least / 2)
    owns = []
    for x in gradients:
        size, decoded = np.abs(x), np.zeros_like(x)
        for low, high, bits in ((least, middle, 7 - middle), (middle, 0, 15)):
            inside = (size >= 2.0**low) & (size < 2.0**high)
            decoded[inside] = (np.sign(x) * np.floor(size * 2.0**bits) / 2.0**bits)[inside]
        owns.append(np.where(size >= 1, x, decoded).astype(F))
    return in_turn(owns)


def sketchml(gradients: Arrays, places: list[Place], method: Any) -> Result:
    owns = []
    for x in gradients:
        edges = np.quantile(x, np.arange(1, method.quantiles) / method.quantiles).astype(F)
        codes = np.searchsorted(edges, x, side="left")
        own = np.zeros_like(x)
        for code in np.unique(codes):
            own[codes == code] = np.mean(x[codes == code], dtype=np.float64)
        owns.append(own)
    return in_turn(owns)


def natural(gradients: Arrays, places: list[Place], method: Compressor) -> Result:
    owns = []
    for x, place in zip(gradients, places, strict=True):
        size = np.abs(x.astype(np.float64))
        lower = 2.0 ** np.floor(np.log2(size, out=np.zeros_like(size), where=size > 0))
        up = noise(place, len(x)) < size / lower - 1
        owns.append(np.where(size > 0, np.copysign(np.where(up, 2 * lower, lower), x), 0).astype(F))
    return in_turn(owns)


def dynamic8(gradients: Arrays, places: list[Place], method: Compressor) -> Result:
    halves = [(0.1 + 0.9 * (i + 0.5) / 2**bits) * 10.0 ** (bits - 6) for bits in range(7) for i in range(2**bits)]
    numbers = np.sort(np.array([0.0, 1.0, *halves, *(-half for half in halves)])).astype(F)
    assert len(numbers) == 256
    owns = []
    for x in gradients:
        unit = np.abs(x).max()
        nearest = np.abs((x / unit)[:, None].astype(np.float64) - numbers).argmin(1)
        owns.append(numbers[nearest] * unit)
    return in_turn(owns)


REFERENCES: dict[str, Callable[[Arrays, list[Place], Compressor], Result]] = {
    "none": mean,
    "lanes": lanes,
    "codes": summed_codes,
    "delay_control": lanes,
    "int8": int8,
    "qsgd": qsgd,
    "terngrad": qsgd,
    "thc": thc,
    "signsgd": sign,
    "signum": sign,
    "efsign": efsign,
    "randomk": randomk,
    "shared_topk": shared_topk,
    "block_topk": block_topk,
    "onebit": onebit,
    "topk": topk,
    "threshold": threshold,
    "dgc": dgc,
    "adaq": adaq,
    "sidco": sidco,
    "shared_sidco": shared_sidco,
    "hard_threshold": threshold,
    "inceptionn": inceptionn,
    "sketchml": sketchml,
    "natural": natural,
    "dynamic8": dynamic8,
}


def reference(method: Compressor, gradients: Arrays, place: Place) -> Result:
    """Return what all ranks must end with; `place` is that of any of them."""
    places = [replace(place, rank=rank) for rank in range(place.size)]
    return REFERENCES[method.name](gradients, places, method)


def simulated(method: Compressor, gradients: list[torch.Tensor], place: Place) -> list[Outcome]:
    """Run the method without a network, with sums that are exact; return the outcome of each rank."""
    places = [replace(place, rank=rank, size=len(gradients)) for rank in range(len(gradients))]
    rounds = [method.rounds(gradient, at) for gradient, at in zip(gradients, places, strict=True)]
    answers: list[Any] = [None] * len(rounds)
    for kind in method.requests:
        requests = [next_of(one, answer) for one, answer in zip(rounds, answers, strict=True)]
        assert all(type(request) is kind for request in requests)
        answers = [simulated_result(requests)] * len(rounds)
    return [next_of(one, answer) for one, answer in zip(rounds, answers, strict=True)]  # type: ignore[misc]


def simulated_result(requests: list[Any]) -> torch.Tensor:
    first, rows = requests[0], torch.stack([request.values for request in requests])
    if isinstance(first, FromLeader):
        return rows[first.leader]
    if isinstance(first, Sum):
        assert int(rows.abs().max()) <= first.bound
        return rows.sum(0, dtype=torch.int32)
    return first.answer(rows) if isinstance(first, Gather) else rows.double().mean(0).float()
