"""A switch: the state of its slots, and the rule for a packet (docs/understand/protocol.md, "The switch").

Below another switch, a leaf treats its parent as one more rank, whose packet replaces the sum: it forwards its sum as
its own contribution when all its children have contributed, and its phase is complete with the parent's result.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from studies.switchml.network import SimulatedLink, SimulatedPacket

__all__ = ["Counts", "SimulatedSwitch"]


@dataclasses.dataclass
class Counts:
    """Numbers of the packets of a switch's children by verdict, and of its parent's results (`taken`, `dropped`).

    `forwarded` contributions completed the phase below this switch, or repeated one of such a phase.
    """

    aggregated: int = 0
    completed: int = 0
    forwarded: int = 0
    resent: int = 0
    duplicate: int = 0
    stale: int = 0
    taken: int = 0
    dropped: int = 0


@dataclasses.dataclass(slots=True)
class _Half:
    """One half of a slot."""

    phase: int = -1
    bitmap: int = 0
    total: int = 0


class SimulatedSwitch:
    """One switch with `children` ranks or switches below it. `down` has a link to each; `up` is one to its parent."""

    def __init__(self, children: int, pool: int) -> None:
        self.down: list[SimulatedLink] = []
        self.up: SimulatedLink | None = None
        self.index = 0  # below its parent
        self.counts: Final = Counts()
        self._pool = pool
        self._halves = [_Half() for _ in range(2 * pool)]
        self._ranks = (1 << children) - 1
        self._final = 1 << children

    def contribution(self, packet: SimulatedPacket) -> None:
        """Take a contribution of a child."""
        half, phase = self._half_of(packet.position)
        bit = 1 << packet.child
        if phase < half.phase:
            self.counts.stale += 1
        elif phase > half.phase:
            half.phase, half.bitmap, half.total = phase, bit, packet.total
            self._added(half, packet)
        elif not half.bitmap & bit:
            half.bitmap |= bit
            half.total += packet.total
            self._added(half, packet)
        else:
            self._repeated(half, packet)

    def result(self, packet: SimulatedPacket) -> None:
        """Take a result of the parent: its sum replaces the one here."""
        half, phase = self._half_of(packet.position)
        if phase != half.phase or half.bitmap != self._ranks:
            self.counts.dropped += 1
            return
        self.counts.taken += 1
        half.bitmap |= self._final
        half.total = packet.total
        self._multicast(packet)

    def _half_of(self, position: int) -> tuple[_Half, int]:
        phase, slot = divmod(position, self._pool)
        return self._halves[2 * slot + (phase & 1)], phase

    def _added(self, half: _Half, packet: SimulatedPacket) -> None:
        if half.bitmap != self._ranks:
            self.counts.aggregated += 1
        elif self.up is not None:
            self._forward(self.up, half, packet)
        else:
            self.counts.completed += 1
            self._multicast(packet._replace(total=half.total))

    def _repeated(self, half: _Half, packet: SimulatedPacket) -> None:
        """Answer a child that has contributed already."""
        complete = self._ranks | (self._final if self.up is not None else 0)
        if half.bitmap == complete:
            self.counts.resent += 1
            self.down[packet.child].send(packet._replace(total=half.total))
        elif self.up is not None and half.bitmap == self._ranks:
            self._forward(self.up, half, packet)
        else:
            self.counts.duplicate += 1

    def _forward(self, up: SimulatedLink, half: _Half, packet: SimulatedPacket) -> None:
        self.counts.forwarded += 1
        up.send(packet._replace(child=self.index, total=half.total))

    def _multicast(self, packet: SimulatedPacket) -> None:
        for link in self.down:
            link.send(packet)
