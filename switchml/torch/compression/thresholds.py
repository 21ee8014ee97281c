"""Methods that choose elements by a threshold without sorting: from fitted distributions, or one for all steps."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Any, ClassVar, Final, Literal

import torch
from torch import Tensor

from switchml.client.arguments import whole_number
from switchml.common.installation import install_command
from switchml.torch.compression.compressor import Compressor, Place, Rounds, density_of, kept_elements, positive
from switchml.torch.compression.gathers import ThresholdV, of_selected
from switchml.torch.compression.requests import Average, FromLeader, Gather, Request
from switchml.torch.compression.selection import (
    below_largest,
    beyond,
    count_of,
    magnitudes_of,
    places_of,
    sample_of,
    values_at,
)
from switchml.torch.compression.sums import placed

__all__ = ["HardThreshold", "SharedSidco", "Sidco", "fitted_threshold"]

Fit = Literal["exponential", "pareto", "gamma"]

_FITS: Final = ("exponential", "pareto", "gamma")
_FIRST_DENSITY: Final = 0.25  # of the first of several stages
_CALLS: Final = 5  # between two changes of the number of stages
_SELECTED: Final = 1500  # of a sample, at least; chance then moves the number of all selected elements by 1 to 3 %
_SAMPLE: Final = 300_000  # elements at least, so that it moves those of 1 % and more of all elements by 1 to 2 %
_BAND: Final = 0.2  # of the ratio of selected to wanted elements, around 1
_MOST_CORRECTION: Final = 2.0  # of the share of the last stage; a fit inside of the band needs less


class HardThreshold(ThresholdV):
    """The elements with magnitudes from one threshold on, which stays the same for the whole training (hard threshold).

    The number of elements sent falls as gradients shrink. The first step is dense.

    Args:
        budget: the elements of the whole model that a step should send; the threshold is 1 / (2 sqrt(budget)).
        threshold: used instead, if given; in units of the gradient. `CompressionState.rescale` multiplies it.

    """

    name = "hard_threshold"
    sent = "64 for each element above it"
    warm_up_steps = 1

    def __init__(self, budget: int = 10_000, threshold: float | None = None) -> None:
        if threshold is None:
            threshold = 1 / (2 * math.sqrt(positive(whole_number(budget, "budget"), "budget")))
        super().__init__(threshold)


@dataclass
class _Stages:
    """The number of stages for one parameter, and how it was found.

    Attributes:
        count: stages of the next call.
        step: 1 or -1, the next change.
        calls: since the last change.
        ratios: the sum of their ratios of selected to wanted elements.
        error: magnitude of the logarithm of the mean ratio before the last change; infinite before the first one.
        correction: factor of the share of the last stage; 1 since a change until a mean ratio is inside of the band.

    """

    count: int = 1
    step: int = 1
    calls: int = 0
    ratios: float = 0.0
    error: float = math.inf
    correction: float = 1.0

    def adapt(self, ratio: float, most: int) -> None:
        """Count a call; after some, change the stages if their mean ratio was out of the band, or correct the last one.

        The first correction is by the whole mean ratio, later ones by its square root, so that chance is averaged out.
        """
        self.calls += 1
        self.ratios += ratio
        if self.calls < _CALLS:
            return
        mean = self.ratios / self.calls
        self.calls, self.ratios = 0, 0.0
        if abs(mean - 1) <= _BAND:
            self.error = math.inf
            corrected = self.correction / (mean if self.correction == 1 else math.sqrt(mean))
            self.correction = min(max(corrected, 1 / _MOST_CORRECTION), _MOST_CORRECTION)
            return
        error = abs(math.log(mean)) if mean > 0 else math.inf
        if error > self.error or not 1 <= self.count + self.step <= most:
            self.step = -self.step
        self.error = error
        self.correction = 1.0
        self.count = min(max(self.count + self.step, 1), most)


class Sidco(Compressor):
    """The elements above a threshold that is computed from a fit to their distribution (SIDCo).

    One stage fits all magnitudes. Several stages fit the tail: each one those that the stage before has selected. With
    "adaptive" stages their number changes by one after five calls in which the number of selected elements was more
    than 20 % off, as published. Three things are not published. The direction of change turns around when it got worse,
    or at the end of the range; with the published rule, distributions with heavy tails stay at one stage. After five
    calls that were less than 20 % off, their mean ratio corrects the share of the last stage. And a call whose fit is
    more than 20 % off takes the exact threshold of what was fitted: error feedback ends the distribution just below the
    former threshold, and then there may be no number of stages that fits.

    Elements that are 0 are left out of the fits. Large gradients are fitted by a sample: of 300,000 elements, or of
    more, so that about 1,500 are selected; if most of the sample is 0, by all elements.

    Args:
        density: the share of elements that should be sent.
        fit: "exponential"; "pareto" (generalized, by its moments); or "gamma" for the first stage and "pareto" for the
            others, which needs scipy.
        stages: "adaptive", or their number: then every call takes what the fit gives.

    """

    name = "sidco"
    requests: ClassVar[tuple[type[Request], ...]] = (Gather, Gather)
    selects = True
    sent = "about 64 · density"
    per = "parameter"
    memory = "error feedback"

    def __init__(
        self, density: float = 0.01, fit: Fit = "pareto", stages: int | Literal["adaptive"] = "adaptive"
    ) -> None:
        if fit not in _FITS:
            raise ValueError(f"fit is {fit!r}; it must be one of {', '.join(_FITS)}")
        if stages != "adaptive" and whole_number(stages, "stages") < 1:
            raise ValueError(f'stages is {stages}; it must be "adaptive" or at least 1')
        if fit == "gamma":
            _gammaincinv(1.0, 0.5)
        self.density = density_of(density)
        self.fit: Fit = fit
        self.stages = stages
        self._of: dict[str, _Stages] = {}

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Gather the sizes, then values and places."""
        return (yield from of_selected(gradient, self.selected(gradient, place.name)))

    def selected(self, gradient: Tensor, name: str) -> Tensor:
        """Return which elements of the parameter are chosen."""
        fixed = self.stages != "adaptive"
        stages = _Stages(int(self.stages)) if fixed else self._of.setdefault(name, _Stages())
        elements, fitted = _nonzero(sample_of(gradient, max(_SAMPLE, math.ceil(_SELECTED / self.density))))
        if 2 * len(fitted) < elements < len(gradient):
            elements, fitted = _nonzero(gradient)
        wanted = kept_elements(self.density, elements)
        if wanted >= len(fitted) and not fixed:
            return beyond(gradient, 0.0)
        threshold = fitted_threshold(fitted, self.density, elements, self.fit, stages.count, stages.correction)
        if fixed:
            return beyond(gradient, threshold)
        ratio = count_of(fitted > threshold) / wanted
        fits = abs(ratio - 1) <= _BAND
        chosen = beyond(gradient, threshold if fits else below_largest(fitted, wanted))
        if fits:
            ratio = count_of(chosen) / kept_elements(self.density, len(gradient))
        stages.adapt(ratio, math.ceil(math.log(self.density) / math.log(0.5)))
        return chosen

    def state_dict(self) -> dict[str, Any]:
        """Return the stages of each parameter."""
        return {name: astuple(stages) for name, stages in self._of.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with these stages."""
        self._of = {name: _Stages(*values) for name, values in state.items()}


class SharedSidco(Sidco):
    """Elements at the places where one rank is above its threshold; ranks take turns (shared Top-k by SIDCo).

    The leader sends the number and the places of its elements; all ranks then send theirs at these places. The stages
    of a rank change in the steps that it leads.
    """

    name = "shared_sidco"
    requests = (FromLeader, FromLeader, Average)
    sent = "about 32 · density; the leader about 64 · density"

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Get number and places from the leader, then average the elements there."""
        chosen = torch.empty(0, dtype=torch.int32)
        leads = place.rank == place.leader
        if leads:
            chosen = places_of(self.selected(gradient, place.name)).to(torch.int32)
            if not len(chosen):
                chosen = gradient.abs().argmax().reshape(1).to(torch.int32)
        count = int((yield FromLeader(torch.tensor([len(chosen)], dtype=torch.int32), place.leader)))
        chosen = chosen if leads else torch.zeros(count, dtype=torch.int32)
        places = (yield FromLeader(chosen, place.leader)).long()
        values = gradient[places]
        return placed((yield Average(values)), values, places, gradient.numel())


def _nonzero(values: Tensor) -> tuple[int, Tensor]:
    """Return the number of the values, and the magnitudes of those that are not 0."""
    magnitudes = magnitudes_of(values)
    if count_of(magnitudes) < len(magnitudes):
        return len(magnitudes), values_at(magnitudes, magnitudes > 0)
    return len(magnitudes), magnitudes


def fitted_threshold(
    magnitudes: Tensor, density: float, elements: int, fit: Fit, stages: int, correction: float = 1.0
) -> float:
    """Return a threshold above which about `density` of all elements are.

    Args:
        magnitudes: those of the elements that are not 0.
        density: the share.
        elements: the number of elements, also those that are 0.
        fit: the distribution.
        stages: the number of fits.
        correction: factor of the share that the last stage selects.

    """
    if not len(magnitudes):
        return math.inf
    density = density * elements / len(magnitudes)
    if density >= 1:
        return 0.0
    shares = [density]
    if stages > 1 and density < _FIRST_DENSITY:
        shares = [_FIRST_DENSITY, *((stages - 1) * [(density / _FIRST_DENSITY) ** (1 / (stages - 1))])]
    shares[-1] = min(shares[-1] * correction, 1.0)
    threshold = _of_gamma(magnitudes, shares[0]) if fit == "gamma" else _of_tail(magnitudes, 0.0, shares[0], fit)
    for share in shares[1:]:
        magnitudes = values_at(magnitudes, magnitudes > threshold)
        if len(magnitudes) < 2:
            break
        threshold = _of_tail(magnitudes, float(magnitudes.min()), share, fit)
    return threshold


def _of_tail(magnitudes: Tensor, least: float, share: float, fit: Fit) -> float:
    """Return the threshold of a fit to magnitudes from `least` on."""
    mean = float(magnitudes.mean()) - least
    if fit == "exponential":
        return least - mean * math.log(share)
    variance = float(magnitudes.var()) if len(magnitudes) > 1 else 0.0
    if mean <= 0 or variance <= 0:
        return least
    squared = mean * mean / variance
    shape, scale = (squared - 1) / 2, mean * (squared + 1) / 2
    if abs(shape) < 1e-6:  # the limit is the exponential distribution
        return least - scale * math.log(share)
    return least + scale * -math.expm1(shape * math.log(share)) / shape


def _of_gamma(magnitudes: Tensor, share: float) -> float:
    mean = float(magnitudes.mean())
    spread = math.log(mean) - float(magnitudes.log().mean())
    if spread <= 0:  # all magnitudes are equal
        return 0.0
    shape = (3 - spread + math.sqrt((spread - 3) ** 2 + 24 * spread)) / (12 * spread)
    return mean / shape * _gammaincinv(shape, 1 - share)


def _gammaincinv(shape: float, probability: float) -> float:
    """Return the quantile of a gamma distribution with scale 1.

    Raises:
        ValueError: scipy is not installed.

    """
    try:
        from scipy.special import gammaincinv
    except ImportError as error:
        raise ValueError(f'fit="gamma" needs scipy: {install_command("compression")}') from error
    return float(gammaincinv(shape, probability))
