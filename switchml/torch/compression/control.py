"""A method that chooses the bits of lanes by the time that the network takes (delay control).

DC2 (Abdelmoniem and Canini, INFOCOM 2021) couples compression with the delay of the network; its law is not public.
This is our reconstruction, with the knob that costs no computing: lanes of 32, 16 or 8 bits.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import torch
from torch import Tensor

from switchml.client.arguments import whole_number
from switchml.client.wire import LANE_BITS, Blocks
from switchml.torch.compression.compressor import Compressor, Outcome, Place, Rounds, positive
from switchml.torch.compression.requests import Average
from switchml.torch.process_group import SwitchMLProcessGroup

__all__ = ["DelayControl"]

SensorName = Literal["time", "round_trips"]

_BAND: Final = 0.1  # around the target, in which nothing changes
_HELD: Final = 5  # steps between two changes
_MEDIAN: Final = 3  # steps; so a single slow one changes nothing


class DelayControl(Compressor):
    """Averages in lanes of the most bits that keep a step within `target` (delay control, a reconstruction).

    All ranks measure, and each bucket begins with an average of what they have measured. So all ranks know the same
    times, decide the same and use the same lanes. The sensors:

    - "time": the time in which an average of the step was on its way, the mean of the ranks. An average starts when all
      ranks have asked for it, so the time in which a slow rank computes is not part of this.
    - "round_trips": the time that the bytes of the step take at the rate which the round trips of packets show. The
      rate of a round trip is the bytes that came during it, divided by its time (the delivery rate of BBR). Only
      packets that waited for no other rank count, so the time in which a rank stops is not part of this either.

    The median of three steps decides. More than 1.1 times the target: the next narrower lanes. If the next wider ones
    would take less than 0.9 times the target, supposing that the time grows as the bits do: these. Between two changes
    are at least five steps.

    Args:
        target: seconds that the averages of a step may take.
        least_bits: the narrowest lanes, 16 or 8.
        sensor: "time" or "round_trips".

    """

    name = "delay_control"
    sent = "32, 16 or 8"
    requests = (Average, Average)
    unbiased = True
    knows_own = False

    def __init__(self, target: float = 0.1, least_bits: int = 8, sensor: SensorName = "time") -> None:
        if whole_number(least_bits, "least_bits") not in (16, 8):
            raise ValueError(f"least_bits is {least_bits}; it must be 16 or 8")
        if sensor not in ("time", "round_trips"):
            raise ValueError(f'sensor is {sensor!r}; it must be "time" or "round_trips"')
        self.target = positive(target, "target")
        self.least_bits = least_bits
        self.sensor = sensor
        self._bits = LANE_BITS[0]
        self._control = Control(self.target, [bits for bits in LANE_BITS if bits >= least_bits])
        self._clock = BusyTimer()
        self._round_trips = RoundTrips(lambda: (0.0, 0))  # those of a group, once it has one
        self._step: int | None = None
        self._elements = 0  # of the buckets of this step so far

    @property
    def bits(self) -> int:
        """The lanes of the latest bucket, the same on all ranks."""
        return self._bits

    def check(self, world_size: int) -> None:
        """Check that the narrowest lanes have a level for each rank."""
        if world_size > 2 ** (self.least_bits - 1) - 1:
            raise ValueError(f"delay_control: {self.least_bits} bits hold no sum of {world_size} ranks")

    def attach(self, groups: Sequence[SwitchMLProcessGroup]) -> None:
        """Join the network with the group of the averages, whose round trips are measured, and check that it has them.

        Raises:
            ValueError: it has none, because the ranks share memory with the switch or use Gloo.

        """
        if self.sensor != "round_trips":
            return
        group = groups[-1]
        group.join()
        if group.link.shared_memory or not group.in_network:
            why = "these ranks share memory with the switch" if group.link.shared_memory else group.state
            raise ValueError(
                f'delay_control: sensor="round_trips" measures packets to a switch, which this group does not send '
                f'({why}); use sensor="time"'
            )
        self._round_trips = RoundTrips(lambda: group.round_trips)

    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Agree on the bits, then average."""
        measured = torch.tensor(self._measured(place.step))
        self._elements += gradient.numel()
        seconds, due = (yield Average(measured)).tolist()
        if due > 0:  # it is NaN if a rank has a gradient that is not finite
            self._control.took(self.target * seconds / due)
        self._bits = self._control.bits
        self._clock.begin()
        if self._bits == LANE_BITS[0]:
            average = yield Average(gradient)
        else:
            average = yield Average(gradient, Blocks(self._bits, "stochastic", place.shared_seed))
        self._clock.end()
        return Outcome(average)

    def settings(self) -> dict[str, object]:
        """Return the arguments."""
        return {"target": self.target, "least_bits": self.least_bits, "sensor": self.sensor}

    def state_dict(self) -> dict[str, Any]:
        """Return the bits that all ranks have decided for."""
        return {"bits": self._control.bits}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with these bits."""
        self._control.bits = state["bits"]

    def _measured(self, step: int) -> tuple[float, float]:
        """In a step's first bucket, return the measurement of the step before, otherwise zeros.

        Returns:
            The seconds that the sensor has measured, and the seconds that the bytes which came in this time may take in
            a step that meets the target. 0 and 0 in later buckets of a step, and in the first step.

        """
        if step == self._step:
            return 0.0, 0.0
        sent, self._step, self._elements = self._elements * self._bits / 8, step, 0
        if self.sensor == "time":
            seconds, came = self._clock.take(), sent
        else:
            seconds, came = self._round_trips.take()
        return (seconds, self.target * came / sent) if sent > 0 else (0.0, 0.0)


class Control:
    """Chooses the lane width from measured step times.

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


class BusyTimer:
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


class RoundTrips:
    """The growth of the seconds and bytes of the round trips in `Communicator.statistics`.

    Args:
        read: returns these sums.

    """

    def __init__(self, read: Callable[[], tuple[float, int]]) -> None:
        self._read = read
        self._before = read()

    def take(self) -> tuple[float, int]:
        """Return the seconds and bytes since the last call of this."""
        before, self._before = self._before, self._read()
        return self._before[0] - before[0], self._before[1] - before[1]
