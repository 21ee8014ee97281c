"""A method that chooses the bits of lanes by the time that the network takes (delay control).

DC2 (Abdelmoniem and Canini, INFOCOM 2021) couples compression with the delay of the network; its law is not public.
This is our reconstruction, with the knob that costs no computing: lanes of 32, 16 or 8 bits.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from switchml.arguments import whole_number
from switchml.lanes import LANE_BITS
from switchml.torch.compression.compressor import Compressor, Outcome, Place, Rounds, positive
from switchml.torch.compression.requests import Average, FromLeader

__all__ = ["DelayControl"]

_LEADER: Final = 0
_BAND: Final = 0.1  # around the target, in which nothing changes
_HELD: Final = 5  # steps between two changes
_MEDIAN: Final = 3  # steps; so a single slow one changes nothing


class DelayControl(Compressor):
    """The average in the widest lanes of 32, 16 or 8 bits that are in time (delay control, a reconstruction).

    Rank 0 measures its steps and decides; each bucket begins with its word, so that all ranks use the same lanes. The
    time of a step is that in which an average of it was on its way. As the word arrives when all ranks have asked for
    it, the time in which a slow rank computes is not part of this.

    The median of three steps decides. More than 1.1 times the target: the next narrower lanes. If the next wider ones
    would take less than 0.9 times the target, supposing that the time grows as the bits do: these. Between two changes
    are at least five steps.

    Args:
        target: seconds that the averages of a step may take.
        least_bits: the narrowest lanes, 16 or 8.

    """

    name = "delay_control"
    sent = "32, 16 or 8"
    requests = (FromLeader, Average)
    unbiased = True
    knows_own = False

    def __init__(self, target: float = 0.1, least_bits: int = 8) -> None:
        if whole_number(least_bits, "least_bits") not in (16, 8):
            raise ValueError(f"least_bits is {least_bits}; it must be 16 or 8")
        self.target = positive(target, "target")
        self.least_bits = least_bits
        self._bits = LANE_BITS[0]
        self._control = Control(self.target, [bits for bits in LANE_BITS if bits >= least_bits])
        self._clock = Clock()
        self._step: int | None = None

    @property
    def bits(self) -> int:
        """The lanes of the latest bucket, the same on all ranks."""
        return self._bits

    def check(self, world_size: int) -> None:
        """Check that the narrowest lanes have a level for each rank."""
        if world_size > 2 ** (self.least_bits - 1) - 1:
            raise ValueError(f"delay_control: {self.least_bits} bits hold no sum of {world_size} ranks")

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Get the bits from rank 0, then average."""
        word = torch.tensor([self._decided(place.step) if place.rank == _LEADER else 0], dtype=torch.int32)
        self._bits = int((yield FromLeader(word, _LEADER)))
        self._clock.begin()
        if self._bits == LANE_BITS[0]:
            average = yield Average(gradient)
        else:
            average = yield Average(gradient, self._bits, "stochastic", place.shared_seed)
        self._clock.end()
        return Outcome(average)

    def settings(self) -> dict[str, object]:
        """Return the arguments."""
        return {"target": self.target, "least_bits": self.least_bits}

    def state_dict(self) -> dict[str, Any]:
        """Return the bits that rank 0 has decided for."""
        return {"bits": self._control.bits}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with these bits."""
        self._control.bits = state["bits"]

    def _decided(self, step: int) -> int:
        """Return the bits for this step; the first bucket of a step decides, when all of the one before have ended."""
        if step != self._step:
            if self._step is not None:
                self._control.took(self._clock.take())
            self._step = step
        return self._control.bits


class Control:
    """The rule that makes bits of times.

    Attributes:
        bits: those of the next step.

    Args:
        target: seconds that a step may take.
        choices: bits, from the widest to the narrowest.

    """

    def __init__(self, target: float, choices: list[int]) -> None:
        self._target = target
        self._choices = choices
        self._seconds: deque[float] = deque(maxlen=_MEDIAN)  # since the last change
        self._held = 0
        self.bits = choices[0]

    def took(self, seconds: float) -> None:
        """Count a step that took these seconds, and change the bits if it is time to."""
        self._held += 1
        self._seconds.append(seconds)
        if self._held < _HELD:
            return
        usual, place = statistics.median(self._seconds), self._choices.index(self.bits)
        if usual > self._target * (1 + _BAND):
            self._change(min(place + 1, len(self._choices) - 1))
        elif place > 0 and usual * self._choices[place - 1] / self.bits < self._target * (1 - _BAND):
            self._change(place - 1)

    def _change(self, place: int) -> None:
        if self._choices[place] != self.bits:
            self.bits = self._choices[place]
            self._held = 0
            self._seconds.clear()


class Clock:
    """Measures the time in which at least one of several things is under way."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._under_way = 0
        self._begun = 0.0
        self._total = 0.0

    def begin(self) -> None:
        """Count one more that is under way."""
        with self._lock:
            if self._under_way == 0:
                self._begun = self._now()
            self._under_way += 1

    def end(self) -> None:
        """Count one less."""
        with self._lock:
            self._under_way -= 1
            if self._under_way == 0:
                self._total += self._now() - self._begun

    def take(self) -> float:
        """Return the time since the last call of this, when nothing is under way."""
        with self._lock:
            total, self._total = self._total, 0.0
            return total
