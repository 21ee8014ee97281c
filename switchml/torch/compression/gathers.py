"""Methods that send values with the places they belong to, which each rank chooses itself.

The values of different ranks belong to different places, so the switch cannot sum them: every rank receives those of
all ranks, and the bytes received grow with their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from switchml.torch.compression.compressor import (
    Compressor,
    Outcome,
    Place,
    Rounds,
    density_of,
    kept_elements,
    positive,
)
from switchml.torch.compression.payloads import as_bytes, gathered, mean_of, pack, unpack
from switchml.torch.compression.requests import Gather
from switchml.torch.compression.selection import below_largest, count_of, largest_places, magnitudes_of, places_of

__all__ = ["AdaQ", "Dgc", "OneBit", "ThresholdV", "TopK", "of_selected"]

_SAMPLED = 0.01  # share of elements from which a threshold is estimated
_FEWEST_SAMPLED = 1000


class OneBit(Compressor):
    """One bit for the sign of each element, and the means of the negative and of the other ones (1-bit SGD)."""

    name = "onebit"
    sent = "1"
    requests = (Gather,)
    per = "parameter"
    memory = "error feedback"

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Gather bits and means."""
        negative = gradient < 0
        means = torch.stack([_mean(gradient[~negative]), _mean(gradient[negative])])
        rows = yield Gather(as_bytes(pack(negative.to(torch.uint8), 1), means))
        decoded = [_decoded_bits(row, gradient.numel()) for row in rows]
        return Outcome(mean_of(decoded), means[negative.long()])


class TopK(Compressor):
    """The elements with the largest magnitudes in each parameter (Top-k).

    Args:
        density: the share of elements that are sent.

    """

    name = "topk"
    sent = "64 · density"
    requests = (Gather,)
    selects = True
    per = "parameter"
    memory = "error feedback"

    def __init__(self, density: float = 0.01) -> None:
        self.density = density_of(density)

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Gather values and places."""
        kept = kept_elements(self.density, gradient.numel())
        places = largest_places(magnitudes_of(gradient), kept)
        rows = yield Gather(_with_places(gradient, places))
        return _outcome(gradient, places, list(rows))


class ThresholdV(Compressor):
    """The elements with magnitudes from a fixed threshold on (Threshold-v).

    Args:
        threshold: in units of the gradient; `CompressionState.rescale` multiplies it.

    """

    name = "threshold"
    sent = "64 for each element above it"
    requests = (Gather, Gather)
    selects = True
    per = "parameter"
    memory = "error feedback"

    def __init__(self, threshold: float = 0.01) -> None:
        self.threshold = positive(threshold, "threshold")
        self._scale = 1.0

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Gather the sizes, then values and places."""
        return (yield from of_selected(gradient, magnitudes_of(gradient) >= self.threshold * self._scale))

    def rescale(self, factor: float) -> None:
        """Multiply the threshold."""
        self._scale *= factor

    def state_dict(self) -> dict[str, Any]:
        """Return the factor of the threshold."""
        return {"scale": self._scale}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with this factor."""
        self._scale = float(state["scale"])


class Dgc(Compressor):
    """The elements above a threshold that is estimated from a sample (Deep Gradient Compression).

    The threshold is that of the largest elements of 1 % of the gradient. It is changed by 30 %, up to ten times, while
    it selects more than 1.3 or fewer than 0.7 times as many elements as wanted. If that is not enough, it is the exact
    one.

    Args:
        density: the share of elements that should be sent.

    """

    name = "dgc"
    sent = "about 64 · density"
    requests = (Gather, Gather)
    selects = True
    per = "parameter"
    memory = "momentum correction"

    def __init__(self, density: float = 0.01) -> None:
        self.density = density_of(density)

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Gather the sizes, then values and places."""
        magnitudes = magnitudes_of(gradient)
        threshold = _sampled_threshold(magnitudes, self.density, place.generator(), (0.7, 1.3), (0.7, 1.3), 10)
        return (yield from of_selected(gradient, (magnitudes >= threshold) & (magnitudes > 0)))


class AdaQ(Compressor):
    """For either sign, the places of the largest elements and their one mean (adaptive quantization).

    The thresholds of the two signs are estimated from samples, in up to 20 steps of 1.25 or 0.9; if that is not enough,
    they are the exact ones.

    Args:
        density: the share of the elements of either sign that should be sent.

    """

    name = "adaq"
    sent = "about 32 · density"
    requests = (Gather, Gather)
    selects = True
    per = "parameter"
    memory = "error feedback"

    def __init__(self, density: float = 0.01) -> None:
        self.density = density_of(density)

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Gather the sizes, then means and places."""
        generator = place.generator()
        chosen = [self._chosen(sign * gradient, generator) for sign in (1, -1)]
        means = torch.stack([_mean(gradient[places]) for places in chosen])
        payload = as_bytes(torch.tensor([len(chosen[0])], dtype=torch.int32), means, torch.cat(chosen).int())
        payloads = yield from gathered(payload)
        decoded = [_decoded_means(row, gradient.numel()) for row in payloads]
        return Outcome(mean_of(decoded), decoded[place.rank])

    def _chosen(self, gradient: Tensor, generator: torch.Generator) -> Tensor:
        """Return the places of the largest positive elements."""
        places = places_of(gradient > 0)
        if not len(places):
            return places
        values = gradient[places]
        threshold = _sampled_threshold(values, self.density, generator, (0.8, 1.25), (0.9, 1.25), 20)
        return places[values >= threshold]


def of_selected(gradient: Tensor, selected: Tensor) -> Rounds:
    """Average the elements that each rank has selected. Takes two rounds."""
    places = places_of(selected)
    payloads = yield from gathered(_with_places(gradient, places))
    return _outcome(gradient, places, payloads)


def _with_places(gradient: Tensor, places: Tensor) -> Tensor:
    return as_bytes(gradient[places], places.int())


def _outcome(gradient: Tensor, places: Tensor, payloads: Sequence[Tensor]) -> Outcome:
    """Return the outcome of payloads of values, then their places."""
    average, own = torch.zeros_like(gradient), torch.zeros_like(gradient)
    own[places] = gradient[places]
    for payload in payloads:
        if len(payload):
            values, where = payload.clone().view(torch.int32).chunk(2)
            average[where.long()] += values.view(torch.float32)
    return Outcome(average.div_(len(payloads)), own)


def _sampled_threshold(
    magnitudes: Tensor,
    density: float,
    generator: torch.Generator,
    band: tuple[float, float],
    factors: tuple[float, float],
    most_steps: int,
) -> float:
    """Return a threshold that selects about this share of the elements, from a sample of them.

    Error feedback ends the distribution just below the former threshold, so that a step of the correction can lead from
    too few elements to too many: then the threshold is that of all elements, and not of a sample.

    Args:
        magnitudes: of the elements.
        density: the share.
        generator: chooses the sample.
        band: the smallest and largest multiples of the number wanted that are good enough.
        factors: of the threshold, after it has selected too few and too many.
        most_steps: of the correction.

    """
    elements = len(magnitudes)
    size = min(elements, max(int(elements * _SAMPLED), _FEWEST_SAMPLED))
    sample = magnitudes
    if size < elements:
        sample = magnitudes[torch.randint(elements, (size,), generator=generator)]
    threshold = float(sample.topk(kept_elements(density, size), sorted=True).values[-1])
    wanted = kept_elements(density, elements)
    for _ in range(most_steps):
        selected = count_of(magnitudes >= threshold)
        if band[0] * wanted <= selected <= band[1] * wanted:
            break
        threshold *= factors[selected > wanted]
    else:
        threshold = below_largest(magnitudes, wanted)
    return threshold


def _mean(values: Tensor) -> Tensor:
    return values.mean() if values.numel() else torch.zeros(())


def _decoded_bits(row: Tensor, elements: int) -> Tensor:
    means = row[-8:].clone().view(torch.float32)
    return means[unpack(row[:-8], 1, elements).long()]


def _decoded_means(payload: Tensor, elements: int) -> Tensor:
    words = payload.clone().view(torch.int32)
    count, means, places = int(words[0]), words[1:3].view(torch.float32), words[3:].long()
    decoded = torch.zeros(elements)
    decoded[places[:count]] = means[0]
    decoded[places[count:]] = means[1]
    return decoded
