"""The sender of a rank: its window, its timers, and what it sends again (docs/understand/protocol.md, "The worker").

The rules and constants are those of host_agent/native: rank_sender.cc, window.h and round_trip.h.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from typing import Final

from studies.switchml.network import SECOND, SimulatedClock, SimulatedLink, SimulatedPacket
from switchml.benchmarks.errors import BenchmarkError

__all__ = ["RoundTrip", "Sender", "Window", "WrongSum"]

_REORDERING_THRESHOLD: Final = 64
_RETRANSMITS_PER_TIMEOUT: Final = 2
_RETRANSMITS_PER_RESULT: Final = 2


class WrongSum(BenchmarkError):
    """A simulated rank got a sum that is not that of all ranks: the simulation has an error."""


class Window:
    """The number of positions that may be in flight: halved by losses of this rank's own packets, and growing again."""

    _SMALLEST = 4
    _FEWEST = 128  # results of a round
    _FEWEST_LOSSES = 4
    _TOLERATED = 16

    def __init__(self, pool: int) -> None:
        self._pool = pool
        self.size = pool
        self._results = self._losses = 0

    def result(self, lost: bool) -> None:
        """Count a result; `lost` says whether a packet of this rank for it was lost."""
        self._results += 1
        self._losses += lost
        if self._results < max(self.size, self._FEWEST):
            return
        if self._losses * self._TOLERATED > self._results and self._losses >= self._FEWEST_LOSSES:
            self.size = max(self.size // 2, min(self._pool, self._SMALLEST))
        else:
            self.size = min(self._pool, self.size + max(self.size // 8, 1))
        self._results = self._losses = 0


class RoundTrip:
    """The retransmission timeout in picoseconds, as in RFC 6298, with a margin that spurious timeouts raise."""

    _LOWEST_MARGIN = SECOND // 1000
    _HIGHEST_MARGIN = 4 * SECOND // 1000
    _LONGEST = SECOND // 5
    _MOST_DOUBLINGS = 8

    def __init__(self, unloaded: int) -> None:
        self._smoothed = float(unloaded)
        self._variation = 0.0
        self._margin = self._LOWEST_MARGIN

    def sample(self, measured: int) -> None:
        """Take the round trip of a packet that was sent once, and completed its phase."""
        self._variation += (abs(self._smoothed - measured) - self._variation) / 4
        self._smoothed += (measured - self._smoothed) / 8

    def adapt_margin(self, spurious: bool) -> None:
        """Raise the margin after a spurious timeout, and lower it after one that a loss had caused."""
        self._margin = (
            min(self._margin * 2, self._HIGHEST_MARGIN) if spurious else max(self._margin // 2, self._LOWEST_MARGIN)
        )

    def timeout(self, timeouts: int) -> int:
        """Return the timeout after a number of consecutive timeouts."""
        first = self._smoothed + max(4 * self._variation, self._margin)
        return int(min(first * (1 << min(timeouts, self._MOST_DOUBLINGS)), self._LONGEST))


@dataclasses.dataclass(slots=True)
class _Flight:
    """A contribution in flight; `number` and `sent_at` are of its last transmission."""

    number: int
    sent_at: int
    transmissions: int = 1
    timed_out: bool = False
    fast_retransmitted: bool = False


class Sender:
    """One rank that sums a tensor of `positions` packets.

    In position p rank r contributes (r + 1) * (p + 1), so that every sum is known. `finished` is called when the rank
    has all sums.
    """

    def __init__(
        self,
        clock: SimulatedClock,
        rank: int,
        ranks: int,
        positions: int,
        pool: int,
        unloaded: int,
        finished: Callable[[], None],
    ) -> None:
        self.up: SimulatedLink  # set by the tree
        self.child = 0
        self.sent = self.retransmissions = self.fast_retransmissions = self.timeouts = self.ignored = 0
        self._clock = clock
        self._rank = rank
        self._sum_of_ranks = ranks * (ranks + 1) // 2
        self._positions = positions
        self._pool = pool
        self._finished = finished
        self._window = Window(pool)
        self._round_trip = RoundTrip(unloaded)
        self._flights: dict[int, _Flight] = {}
        self._in_order: deque[tuple[int, int]] = deque()  # number and position of each transmission
        self._window_begin = self._next = 0
        self._number = self._highest_answered = 0
        self._threshold, self._raised_at, self._since_spurious = _REORDERING_THRESHOLD, 0, 0
        self._consecutive_timeouts = 0
        self._last_timeout = 0
        self._credit = self._retransmit_from = 0
        self._deadline: int | None = None
        self._wake: int | None = None  # the earliest time at which the timer looks at the deadline

    def start(self, _: object = None) -> None:
        """Send the first window."""
        self._transmit()

    def result(self, packet: SimulatedPacket) -> None:
        """Take a result, and send what the window allows then."""
        flight = self._flights.pop(packet.position, None)
        if flight is None:
            self.ignored += 1
            return
        if packet.total != self._sum_of_ranks * (packet.position + 1):
            raise WrongSum(f"rank {self._rank} got {packet.total} in position {packet.position} of the stream")
        own = packet.rank == self._rank
        if flight.transmissions == 1:
            self._highest_answered = max(self._highest_answered, flight.number)
            if own:
                self._round_trip.sample(self._clock.now - flight.sent_at)
        else:
            self._credit = self._credit + _RETRANSMITS_PER_RESULT if packet.retransmission else 0
        self._window.result(own and packet.retransmission)
        self._adapt_threshold(flight, packet.retransmission)
        if flight.timed_out:
            self._round_trip.adapt_margin(not own)
        self._consecutive_timeouts = 0
        self._set_deadline(None if not self._flights else self._clock.now + self._round_trip.timeout(0))
        self._transmit()
        if self._window_begin == self._positions:
            self._finished()

    def _transmit(self) -> None:
        while self._window_begin < self._next and self._window_begin not in self._flights:
            self._window_begin += 1
        self._fast_retransmit()
        self._retransmit_after_timeout()
        end = min(self._positions, self._window_begin + self._window.size)
        for position in range(self._next, end):
            self._flights[position] = _Flight(self._number + 1, self._clock.now)
            self._send(position, again=False)
        self._next = max(self._next, end)

    def _send(self, position: int, *, again: bool) -> None:
        self._number += 1
        self._in_order.append((self._number, position))
        if again:
            flight = self._flights[position]
            flight.number, flight.sent_at = self._number, self._clock.now
            flight.transmissions += 1
        if self._deadline is None:
            self._set_deadline(self._clock.now + self._round_trip.timeout(self._consecutive_timeouts))
        self.sent += 1
        self.up.send(SimulatedPacket(self.child, position, (self._rank + 1) * (position + 1), self._rank, again))

    def _oldest_unfinished(self) -> tuple[int, int] | None:
        while self._in_order:
            number, position = self._in_order[0]
            flight = self._flights.get(position)
            if flight is not None and flight.number == number:
                return number, position
            self._in_order.popleft()
        return None

    def _fast_retransmit(self) -> None:
        raised = self._threshold // _REORDERING_THRESHOLD
        threshold = min(self._threshold, raised * (self._window.size // 2 + 1))
        while (oldest := self._oldest_unfinished()) and oldest[0] + threshold <= self._highest_answered:
            self._flights[oldest[1]].fast_retransmitted = True
            self._send(oldest[1], again=True)
            self.fast_retransmissions += 1

    def _adapt_threshold(self, flight: _Flight, answers_retransmission: bool) -> None:
        if flight.fast_retransmitted and not answers_retransmission and flight.number > self._raised_at:
            self._threshold = min(self._threshold * 2, max(_REORDERING_THRESHOLD * 2, self._pool // 2))
            self._raised_at = self._number
            self._since_spurious = 0
            return
        self._since_spurious += 1
        if self._since_spurious == 16 * self._pool:
            self._threshold = max(self._threshold // 2, _REORDERING_THRESHOLD)
            self._since_spurious = 0

    def _retransmit_after_timeout(self) -> None:
        self._retransmit_from = max(self._retransmit_from, self._window_begin)
        while self._credit > 0 and self._retransmit_from < self._next:
            flight = self._flights.get(self._retransmit_from)
            if flight is not None and flight.sent_at < self._last_timeout:
                flight.timed_out = True
                self._send(self._retransmit_from, again=True)
                self.retransmissions += 1
                self._credit -= 1
            self._retransmit_from += 1

    def _set_deadline(self, deadline: int | None) -> None:
        """Set the time of the next timeout; the timer that is running already is used if it is not too late."""
        self._deadline = deadline
        if deadline is not None and (self._wake is None or deadline < self._wake):
            self._wake = deadline
            self._clock.at(deadline, self._look_at_deadline, deadline)

    def _look_at_deadline(self, wake: int) -> None:
        if wake != self._wake:
            return  # an earlier timer has replaced this one
        self._wake = None
        if self._deadline is None:
            return
        if self._clock.now < self._deadline:
            self._set_deadline(self._deadline)
            return
        self.timeouts += 1
        self._consecutive_timeouts += 1
        self._last_timeout = self._clock.now
        self._credit = _RETRANSMITS_PER_TIMEOUT
        self._retransmit_from = self._window_begin
        self._set_deadline(self._clock.now + self._round_trip.timeout(self._consecutive_timeouts))
        self._transmit()
