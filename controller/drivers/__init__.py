"""Southbound drivers: the operations of the controller on a switch, independent of its protocol."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from switchml.dataplane.constants import PROTOCOL_MAX_WORKERS, PROTOCOL_UDP_PORT, DropReason, Format, Verdict
from switchml.dataplane.targets import Target
from switchml.dataplane.tofino_port import TofinoPort

__all__ = [
    "MAX_NONCE",
    "NO_MAC",
    "Capabilities",
    "Driver",
    "JobTables",
    "JobTraffic",
    "MulticastGroup",
    "ParentPort",
    "PortLoss",
    "RankPort",
    "SwitchContents",
    "SwitchSettings",
    "TableEntry",
]


MAX_NONCE: Final = 2**48 - 1
"""The largest nonce that a switch can keep."""
NO_MAC: Final = "00:00:00:00:00:00"
"""The MAC address of a switch whose neighbours see none."""


@dataclass(frozen=True)
class SwitchSettings:
    """The settings of a switch for its driver.

    `p4runtime` is the address of soft and bmv2, `bfrt` that of tofino; only tofino has `ports`. `address` and `mac` are
    those of its data plane, which its neighbours see. `program` is the P4 program of bmv2 or tofino. A `device_id` of
    -1 and `values_per_packet` of 0 mean the target's default. `tls` is on if the control interface uses TLS, off if it
    does not, and auto for TLS unless it is on loopback.
    """

    name: str
    target: Target
    address: str
    p4runtime: str = ""
    bfrt: str = ""
    program: str = "switchml"
    ports: tuple[TofinoPort, ...] = ()
    device_id: int = -1
    mac: str = NO_MAC
    values_per_packet: int = 0
    slots: int = 4096
    tls: str = "auto"

    @property
    def control(self) -> str:
        """The address of its control interface, P4Runtime or BfRt."""
        return self.bfrt if self.target.interface == "bfrt" else self.p4runtime

    @property
    def device(self) -> int:
        """The configured device id, or the target's default."""
        return self.target.default_device if self.device_id < 0 else self.device_id

    @property
    def values(self) -> int:
        """The configured values per packet, or the target's default; 0 if the P4 program defines them."""
        return self.values_per_packet or self.target.default_values


@dataclass(frozen=True)
class RankPort:
    """The switch port that one rank is attached to; MAC and IPv4 address are numbers.

    The queue pair of an RDMA card, plus ROCEV2_QUEUE_PAIRS, is in the place of a UDP port.
    """

    rank: int
    port: int
    mac: int
    address: int
    udp_port: int


@dataclass(frozen=True)
class ParentPort:
    """The switch port that leads to a job's parent, the next switch above this one in the job's tree.

    MAC and IPv4 address are numbers, and those of the parent; it sends from `udp_port`, and receives there. `number` is
    that of this switch among the senders directly below the parent, which are ranks and switches. `named` are all
    numbers that the parent's RESULTs can name: those of these senders, and TREE_NO_RANK if the parent has a parent.
    """

    port: int
    mac: int
    address: int
    number: int
    named: tuple[int, ...]
    udp_port: int = PROTOCOL_UDP_PORT


@dataclass(frozen=True)
class JobTables:
    """The contents of a switch for one job.

    `group` is the number of the multicast group in the switch to which it sends results; `multicast` is an IPv4 group
    that all of the job's agents have joined, or 0. If the job is in a tree, `ranks` are the senders directly below
    this switch, which may be switches, numbered from 0; the root has no `parent`. Job id, epoch, slots and secret are
    the same on all switches of the tree. Without `owned_results` every copy of a RESULT has the values.
    """

    job: int
    epoch: int
    slot_base: int
    slots: int
    group: int
    ranks: tuple[RankPort, ...]
    multicast: int = 0
    owned_results: bool = True
    parent: ParentPort | None = None
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
    """The properties of a pipeline: `slots` pool indexes, of two halves each, and jobs of up to `max_workers` ranks.

    If it is `streamed`, ranks with and without values can share a phase, so a sparse call can stream its blocks: the
    RESULT has the values of a phase that has any, even if the packet that it answers has none. If it has
    `owned_results`, the copies of a RESULT that do not go to the owner of its chunk have no values. If it is a `leaf`,
    it can be below another switch, with one rank less below it. `formats` are those in which it takes the values of
    contributions. With `rocev2` it takes the packets of RDMA cards.
    """

    values_per_packet: int
    slots: int
    max_workers: int = PROTOCOL_MAX_WORKERS
    streamed: bool = False
    owned_results: bool = False
    rocev2: bool = False
    leaf: bool = False
    formats: frozenset[Format] = frozenset((Format.INT32,))


@dataclass(frozen=True)
class TableEntry:
    """An entry of a table in readable form; `packets` is None if the table has no counters."""

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
class JobTraffic:
    """The packets of one job that a switch has received: by verdict, and from other switches.

    `contributions` has the packets of each switch right below, by its number there; `results` those of the parent.
    """

    verdicts: dict[Verdict, int]
    contributions: dict[int, int]
    results: int


@dataclass(frozen=True)
class SwitchContents:
    """The contents of a switch in readable form."""

    entries: list[TableEntry]
    groups: list[MulticastGroup]
    drop_reasons: dict[DropReason, int]
    losses: list[PortLoss]


class Driver(abc.ABC):
    """One switch.

    ``connected``, ``primary`` and ``failure`` (why it is not connected) describe the connection, which ``run``
    maintains; ``api_version`` is that of the switch's control interface, empty until it is known. ``ended`` is true if
    the switch's process is known to have ended, and its registers with it. The other methods raise SwitchUnavailable if
    there is no connection, and SwitchRefused with the switch's message.
    """

    primary = False
    failure = "not connected yet"
    api_version = ""
    _connected = False
    _ended = False
    on_connection: Callable[[bool], None] = staticmethod(lambda _: None)
    """Called with ``connected`` when this or ``ended`` changes."""

    @property
    def connected(self) -> bool:
        """True if there is a connection."""
        return self._connected

    @connected.setter
    def connected(self, connected: bool) -> None:
        if connected is not self._connected:
            self._connected = connected
            self.on_connection(connected)

    @property
    def ended(self) -> bool:
        """True if the switch's process is known to have ended."""
        return self._ended

    @ended.setter
    def ended(self, ended: bool) -> None:
        if ended is not self._ended:
            self._ended = ended
            self.on_connection(self._connected)

    @property
    @abc.abstractmethod
    def capabilities(self) -> Capabilities:
        """The limits of the pipeline, known from the configuration before the switch is connected."""

    def pipe(self, port: int) -> int:
        """Return the pipe of an agent's switch port; all ports of a job must be in one pipe.

        Raises:
            NoAgent: the switch has no such port.

        """
        del port
        return 0

    @abc.abstractmethod
    async def run(self, prepare: Callable[[bool], Awaitable[None]]) -> None:
        """Keep the switch connected until cancelled.

        Each time that the connection becomes primary and the pipeline is in place, `prepare` is awaited. Its argument
        is true if the pipeline had to be loaded, so that registers, tables and counters are empty.
        """

    @abc.abstractmethod
    def prepare_again(self) -> None:
        """Make ``run`` await `prepare` once more, because the contents of the switch may be wrong."""

    @abc.abstractmethod
    async def reload(self) -> None:
        """Load the pipeline again: registers, tables and counters are empty afterwards."""

    @abc.abstractmethod
    async def read_nonce(self) -> int:
        """Return the nonce that was written last; 0 if none was since the pipeline was loaded."""

    @abc.abstractmethod
    async def write_nonce(self, nonce: int) -> None:
        """Write a nonce, at most MAX_NONCE, which stays until another is written or the pipeline is loaded."""

    @abc.abstractmethod
    async def reconcile(self, jobs: Sequence[JobTables]) -> int:
        """Make the switch hold the tables of these jobs and no others; return the number of updates written."""

    @abc.abstractmethod
    async def install_job(self, job: JobTables) -> None:
        """Write the tables of a new job, and set its counters to 0."""

    @abc.abstractmethod
    async def replace_job(self, old: JobTables, new: JobTables) -> None:
        """Delete all of a job's tables, those that admit packets first, then write its new ones; counters stay."""

    @abc.abstractmethod
    async def remove_job(self, job: JobTables) -> None:
        """Delete those tables of a job that exist, in the reverse order."""

    @abc.abstractmethod
    async def read_verdicts(self, job_ids: Sequence[int]) -> dict[Verdict, int]:
        """Return the packets by verdict, summed over the jobs."""

    @abc.abstractmethod
    async def read_traffic(self, job: JobTables, children: Sequence[int]) -> JobTraffic:
        """Return the packets of a job that the switch has received; `children` are the numbers of switches below."""

    @abc.abstractmethod
    async def set_loss(self, ports: Sequence[int], shares: Mapping[str, float]) -> list[PortLoss]:
        """Make ports lose packets on purpose; return all ports that lose packets now.

        A target that cannot raises SwitchRefused. `shares`, 0 to 1, has "ingress", "egress" or both.
        """

    @abc.abstractmethod
    async def read_contents(self) -> SwitchContents:
        """Return tables, groups and drop counters."""
