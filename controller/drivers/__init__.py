"""Southbound drivers: what the controller asks of a switch, whatever protocol it speaks."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from switchml.dataplane.constants import PROTOCOL_MAX_WORKERS, DropReason, Verdict
from switchml.dataplane.tofino_port import TofinoPort

__all__ = [
    "Capabilities",
    "Driver",
    "JobTables",
    "MulticastGroup",
    "PortLoss",
    "RankPort",
    "SwitchContents",
    "SwitchSettings",
    "TableEntry",
]


@dataclass(frozen=True)
class SwitchSettings:
    """What a driver is told of its switch; `values_per_packet` is 0 where the P4 program decides."""

    name: str
    target: str
    control: str  # address of its control interface
    device: int
    address: str  # IPv4 address of its data plane
    mac: int
    values_per_packet: int
    slots: int
    tls: str = "auto"  # beyond loopback; on: always; off: never
    program: str = ""
    ports: tuple[TofinoPort, ...] = ()


@dataclass(frozen=True)
class RankPort:
    """Where one rank hangs on the switch; MAC and IPv4 address as numbers."""

    rank: int
    port: int
    mac: int
    address: int
    udp_port: int


@dataclass(frozen=True)
class JobTables:
    """What a switch holds for one job.

    `group` is the number of the multicast group in the switch that results go to; `multicast` is an IPv4 group that all
    of the job's agents have joined, or 0.
    """

    job: int
    epoch: int
    slot_base: int
    slots: int
    group: int
    ranks: tuple[RankPort, ...]
    multicast: int = 0
    secret: int = field(default=0, repr=False)  # of the epoch

    @property
    def slot_value(self) -> int:
        """The first value of the wire's slot field."""
        return self.slot_base << 1

    @property
    def slot_mask(self) -> int:
        """The ternary mask under which all slot fields of the range equal `slot_value`."""
        return ~(2 * self.slots - 1) & 0xFFFF


@dataclass(frozen=True)
class Capabilities:
    """What a pipeline offers: `slots` pool indexes, of two halves each, and jobs of up to `max_workers` ranks."""

    values_per_packet: int
    slots: int
    max_workers: int = PROTOCOL_MAX_WORKERS


@dataclass(frozen=True)
class TableEntry:
    """An entry of a table, printed as people write it; `packets` is None where nothing counts them."""

    table: str
    match: dict[str, str]
    action: str
    parameters: dict[str, str]
    packets: int | None = None


@dataclass(frozen=True)
class MulticastGroup:
    """A multicast group with its replicas as pairs of port and instance, in order."""

    id: int
    replicas: list[tuple[int, int]]


@dataclass(frozen=True)
class PortLoss:
    """The shares of packets, 0 to 1, that a port loses on purpose."""

    port: int
    ingress: float = 0.0
    egress: float = 0.0


@dataclass(frozen=True)
class SwitchContents:
    """What stands in a switch, as people read it."""

    entries: list[TableEntry]
    groups: list[MulticastGroup]
    drop_reasons: dict[DropReason, int]
    losses: list[PortLoss]


class Driver(abc.ABC):
    """One switch.

    ``connected``, ``primary`` and ``failure`` (why it is not connected) describe the connection, which ``run`` keeps
    up; ``api_version`` is that of the switch's control interface, empty until it is known. The other methods raise
    SwitchUnavailable when there is no connection, and SwitchRefused with the switch's words.
    """

    primary = False
    failure = "not connected yet"
    api_version = ""
    _connected = False
    on_connection: Callable[[bool], None] = staticmethod(lambda _: None)
    """Told when ``connected`` changes."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._connected

    @connected.setter
    def connected(self, connected: bool) -> None:
        if connected is not self._connected:
            self._connected = connected
            self.on_connection(connected)

    @property
    @abc.abstractmethod
    def capabilities(self) -> Capabilities:
        """What the pipeline offers; known from the configuration before the switch is connected."""

    def pipe(self, port: int) -> int:
        """Return the pipe that an agent's switch port lies in: a job's ports must lie in one.

        Raises:
            NoAgent: the switch has no such port.

        """
        del port
        return 0

    @abc.abstractmethod
    async def run(self, prepare: Callable[[bool], Awaitable[None]]) -> None:
        """Keep the switch connected until cancelled.

        Each time that the connection is primary and the pipeline in place, `prepare` is awaited; its argument says
        whether the pipeline had to be loaded, so that registers, tables and counters are empty.
        """

    @abc.abstractmethod
    def prepare_again(self) -> None:
        """Let ``run`` await `prepare` once more: the switch may hold something else than it should."""

    @abc.abstractmethod
    async def reload(self) -> None:
        """Load the pipeline anew: registers, tables and counters are empty afterwards."""

    @abc.abstractmethod
    async def reconcile(self, jobs: Sequence[JobTables]) -> int:
        """Make the switch hold the tables of these jobs and no others; return how many updates were written."""

    @abc.abstractmethod
    async def install_job(self, job: JobTables) -> None:
        """Write the tables of a new job, its counters set to 0."""

    @abc.abstractmethod
    async def replace_job(self, old: JobTables, new: JobTables) -> None:
        """Delete all of a job's tables, those that admit packets first, then write its new ones; counters stay."""

    @abc.abstractmethod
    async def remove_job(self, job: JobTables) -> None:
        """Delete what is there of a job's tables, in the reverse order."""

    @abc.abstractmethod
    async def read_verdicts(self, job_ids: Sequence[int]) -> dict[Verdict, int]:
        """Return the packets by verdict, summed over the jobs."""

    @abc.abstractmethod
    async def set_loss(self, ports: Sequence[int], shares: Mapping[str, float]) -> list[PortLoss]:
        """Let ports lose packets on purpose; return all ports that do now.

        A target that cannot raises SwitchRefused. `shares`, 0 to 1, has "ingress", "egress" or both.
        """

    @abc.abstractmethod
    async def read_contents(self) -> SwitchContents:
        """Return tables, groups and drop counters."""
