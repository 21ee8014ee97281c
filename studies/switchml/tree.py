"""A tree of switches with ranks below it, and one all-reduce through it."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterable, Sequence
from typing import Final

from studies.switchml.network import SECOND, Network, Receiver, SimulatedClock, SimulatedLink
from studies.switchml.sender import Sender
from studies.switchml.switch import Counts, SimulatedSwitch
from switchml.benchmarks.errors import BenchmarkError

__all__ = ["SimulatedAllReduce", "Unfinished", "all_reduce", "ring"]

_LIMIT: Final = 60 * SECOND  # simulated


class Unfinished(BenchmarkError):
    """The simulated all-reduce did not end within a minute of simulated time: the simulation has an error."""


@dataclasses.dataclass(frozen=True)
class SimulatedAllReduce:
    """One all-reduce. `time` is in picoseconds, until the last rank has the last result.

    `counts` has the sums over the switches of each level, the root first. The others are sums over all ranks, and
    `lost` over all links.
    """

    time: int
    sent: int
    retransmissions: int
    fast_retransmissions: int
    timeouts: int
    lost: int
    counts: tuple[Counts, ...]


def all_reduce(
    network: Network, fan_outs: Sequence[int], positions: int, *, loss: float = 0.0, late: int = 0, seed: int = 0
) -> SimulatedAllReduce:
    """Simulate an all-reduce of `positions` packets.

    Args:
        network: The links, hosts and switches.
        fan_outs: The children of each switch, from the root down: (16, 64) are 16 leaves with 64 ranks each.
        positions: The packets that each rank contributes.
        loss: The probability at which each link loses each packet, in each direction.
        late: The picoseconds after the other ranks at which the last rank begins.
        seed: The seed of the losses.

    Raises:
        MissingPackage: SimPy is not installed.
        Unfinished: The all-reduce did not end.
        WrongSum: A rank got a wrong sum.
    """
    return _AllReduceSimulation(network, fan_outs, positions, loss, seed).run(late)


def ring(network: Network, ranks: int, elements: int) -> int:
    """Return the picoseconds that a ring all-reduce takes at least, with the same packets through one switch.

    Each rank sends 2(N-1) parts of elements / N, each after it has the part before.
    """
    packets = math.ceil(elements / ranks / network.values)
    return 2 * (ranks - 1) * ((packets - 1) * max(network.wire, network.host_packet) + network.round_trip(1))


class _AllReduceSimulation:
    def __init__(self, network: Network, fan_outs: Sequence[int], positions: int, loss: float, seed: int) -> None:
        self._clock = SimulatedClock()
        self._network = network
        self._positions = positions
        self._loss = loss
        self._chance = random.Random(seed)  # noqa: S311 - losses, no secrets
        self._levels: list[list[SimulatedSwitch]] = [[] for _ in fan_outs]
        self._links: list[SimulatedLink] = []
        self._senders: list[Sender] = []
        self._ranks = math.prod(fan_outs)
        self._unfinished = self._ranks
        self._add_switch(fan_outs, 0)

    def run(self, late: int) -> SimulatedAllReduce:
        for sender in self._senders[:-1]:
            self._clock.at(0, sender.start, None)
        self._clock.at(late, self._senders[-1].start, None)
        self._clock.at(_LIMIT, lambda _: self._clock.stop(), None)
        self._clock.run()
        if self._unfinished:
            raise Unfinished(f"{self._unfinished} of {self._ranks} simulated ranks have not finished within a minute")
        return SimulatedAllReduce(
            time=self._clock.now,
            sent=sum(sender.sent for sender in self._senders),
            retransmissions=sum(sender.retransmissions for sender in self._senders),
            fast_retransmissions=sum(sender.fast_retransmissions for sender in self._senders),
            timeouts=sum(sender.timeouts for sender in self._senders),
            lost=sum(link.lost for link in self._links),
            counts=tuple(_sum(switch.counts for switch in level) for level in self._levels),
        )

    def _add_switch(self, fan_outs: Sequence[int], level: int) -> SimulatedSwitch:
        switch = SimulatedSwitch(fan_outs[level], self._network.pool)
        self._levels[level].append(switch)
        for child in range(fan_outs[level]):
            if level + 1 == len(fan_outs):
                self._add_rank(switch, child, len(fan_outs))
                continue
            below = self._add_switch(fan_outs, level + 1)
            below.index = child
            below.up = self._link(switch.contribution, self._network.switch_delay)
            switch.down.append(self._link(below.result, self._network.switch_delay))
        return switch

    def _add_rank(self, switch: SimulatedSwitch, child: int, levels: int) -> None:
        network, rank = self._network, len(self._senders)
        unloaded = network.round_trip(levels)
        sender = Sender(self._clock, rank, self._ranks, self._positions, network.pool, unloaded, self._finish)
        sender.child = child
        to_switch = network.host_delay + network.switch_delay
        sender.up = self._link(switch.contribution, to_switch, send_busy=network.host_packet)
        switch.down.append(self._link(sender.result, network.host_delay, receive_busy=network.host_packet))
        self._senders.append(sender)

    def _link(self, receiver: Receiver, delay: int, *, send_busy: int = 0, receive_busy: int = 0) -> SimulatedLink:
        link = SimulatedLink(
            self._clock,
            self._network,
            receiver,
            delay=delay,
            send_busy=send_busy,
            receive_busy=receive_busy,
            loss=self._loss,
            chance=self._chance,
        )
        self._links.append(link)
        return link

    def _finish(self) -> None:
        self._unfinished -= 1
        if not self._unfinished:
            self._clock.stop()


def _sum(counts: Iterable[Counts]) -> Counts:
    total = Counts()
    for each in counts:
        for field in dataclasses.fields(Counts):
            setattr(total, field.name, getattr(total, field.name) + getattr(each, field.name))
    return total
