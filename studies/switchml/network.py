"""Packets, and the links that carry them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from switchml.benchmarks.errors import MissingPackage
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES

if TYPE_CHECKING:
    from simpy import Event

__all__ = ["SECOND", "SimulatedClock", "SimulatedLink", "Network", "SimulatedPacket", "Receiver"]

SECOND: Final = 10**12
"""The picoseconds of a second."""

_FRAME_BYTES: Final = 14 + 20 + 8 + 4  # Ethernet, IPv4, UDP, frame check sequence
_BETWEEN_FRAMES: Final = 8 + 12  # preamble and gap, in bytes
_VALUE_BYTES: Final = 4


@dataclasses.dataclass(frozen=True)
class Network:
    """The parts of a network, all links and hosts alike. Times are picoseconds.

    `values` are those of a packet, and `pool` the slots of a job. A switch has a packet `switch_delay` after its last
    bit was sent to it, and sends it on at once. A host's network card and software delay a packet by `host_delay` in
    each direction, and are busy for `host_packet` with each packet that they send, and with each one that they receive.
    """

    bits_per_second: int
    values: int
    pool: int
    switch_delay: int
    host_delay: int
    host_packet: int

    @property
    def packet_bytes(self) -> int:
        """The bytes that a packet takes of a link, with all headers and the gap behind it."""
        return _FRAME_BYTES + _BETWEEN_FRAMES + PROTOCOL_HEADER_BYTES + _VALUE_BYTES * self.values

    @property
    def wire(self) -> int:
        """The picoseconds for which a packet keeps a link busy."""
        return -(-8 * self.packet_bytes * SECOND // self.bits_per_second)

    def round_trip(self, levels: int) -> int:
        """Return the picoseconds from a contribution to its result in an idle tree with these levels of switches."""
        hops = 2 * levels
        return hops * self.wire + (hops - 1) * self.switch_delay + 2 * (self.host_delay + self.host_packet)


class SimulatedPacket(NamedTuple):
    """A contribution or a result of one position in the stream.

    `child` is the index of its sender below the switch that gets it. `rank` is the rank whose packet caused it, and
    `retransmission` says whether that was sent again.
    """

    child: int
    position: int
    total: int
    rank: int
    retransmission: bool


Receiver: TypeAlias = Callable[[SimulatedPacket], None]


class SimulatedClock:
    """The simulated time, and calls at later times. All calls of one time are one event of SimPy."""

    def __init__(self) -> None:
        try:
            import simpy
        except ImportError as error:
            raise MissingPackage(
                f"the simulation needs simpy ({error}); install it with `pip install --editable '.[studies]'`"
            ) from error
        self.now = 0
        self._environment = simpy.Environment()
        self._stopped = self._environment.event()
        self._due: dict[int, list[tuple[Callable[[Any], None], Any]]] = {}

    def at(self, time: int, call: Callable[[Any], None], value: Any) -> None:
        """Call `call(value)` at a time in picoseconds that is not over. Calls of one time keep their order."""
        calls = self._due.get(time)
        if calls is None:
            calls = self._due[time] = []
            callbacks = self._environment.timeout(time - self.now, time).callbacks
            assert callbacks is not None  # until it has happened
            callbacks.append(self._call)
        calls.append((call, value))

    def run(self) -> None:
        """Run until stop() is called."""
        self._environment.run(until=self._stopped)

    def stop(self) -> None:
        """End run() after what happens now."""
        self._stopped.succeed()

    def _call(self, event: Event) -> None:
        assert isinstance(event.value, int)
        self.now = event.value
        for call, value in self._due.pop(self.now):
            call(value)


class SimulatedLink:
    """One direction of a link: its packets stay in order, and each is lost with the same probability.

    `send_busy` and `receive_busy` are the times for which each packet keeps the sender's and the receiver's CPU busy.
    """

    def __init__(
        self,
        clock: SimulatedClock,
        network: Network,
        receiver: Receiver,
        *,
        delay: int,
        send_busy: int = 0,
        receive_busy: int = 0,
        loss: float = 0.0,
        chance: random.Random | None = None,
    ) -> None:
        self._clock = clock
        self._receiver = receiver
        self._wire = network.wire
        self._delay = delay
        self._send_busy, self._receive_busy = send_busy, receive_busy
        self._loss, self._chance = loss, chance or random.Random(0)  # noqa: S311 - losses, no secrets
        self._sender_free = self._link_free = self._receiver_free = 0
        self.packets = 0
        self.lost = 0

    def send(self, packet: SimulatedPacket) -> None:
        """Send a packet now. It occupies the sender, the link and, unless it is lost, the receiver."""
        self.packets += 1
        self._sender_free = max(self._clock.now, self._sender_free) + self._send_busy
        self._link_free = max(self._sender_free, self._link_free) + self._wire
        if self._loss and self._chance.random() < self._loss:
            self.lost += 1
            return
        self._receiver_free = max(self._link_free + self._delay, self._receiver_free) + self._receive_busy
        self._clock.at(self._receiver_free, self._receiver, packet)
