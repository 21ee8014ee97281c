"""The records of a job and its ranks, and their states with the allowed successions."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import IPv4Address

from switchml.common.job_numbers import rank_numbers
from switchml.controller.drivers import JobTables, ParentPort, RankPort
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import OWNER_EXCEPT, OWNER_FIRST, Verdict

__all__ = [
    "EpochChange",
    "Job",
    "JobState",
    "JobSwitch",
    "OnFailure",
    "Rank",
    "RankState",
    "SharedPort",
    "counters_by_name",
    "new_check_key",
    "new_secret",
    "parse_mac",
    "printed_ranks",
    "ranks_were_lost",
]


_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")


class JobState(IntEnum):
    """The states of a job, as in switchml.proto."""

    PENDING = 1
    READY = 2
    RUNNING = 3
    COMPLETED = 4
    FAILED = 5
    STOPPED = 6

    @property
    def live(self) -> bool:
        """True if a job in this state holds slots and tables."""
        return self <= JobState.RUNNING


# PENDING or READY -> COMPLETED: the launcher reports that every process has ended with status 0, and none attached.
_NEXT = {
    JobState.PENDING: {JobState.READY, JobState.COMPLETED, JobState.FAILED, JobState.STOPPED},
    JobState.READY: {JobState.RUNNING, JobState.COMPLETED, JobState.FAILED, JobState.STOPPED},
    JobState.RUNNING: {JobState.COMPLETED, JobState.FAILED, JobState.STOPPED},
}


class OnFailure(IntEnum):
    """The policy of a job for the loss of ranks, as in switchml.proto."""

    ABORT = 1
    SHRINK = 2
    RESTART = 3

    @classmethod
    def asked(cls, value: int) -> OnFailure:
        """Return the policy in a request; ABORT if it does not specify one.

        Raises:
            ValueError: there is no such policy.

        """
        return cls(value or cls.ABORT)


class RankState(IntEnum):
    """The states of a rank, as in switchml.proto."""

    ASSIGNED = 1
    ATTACHED = 2
    CLOSED = 3
    LOST = 4


@dataclass
class Rank:
    """One rank of a job and the agent that carries it; `address` and `udp_port` are its socket's once it is known."""

    rank: int
    agent: str
    instance: str
    host: str
    socket: str
    switch_port: int
    mac: str
    switch: str  # the switch that the agent is attached to
    state: RankState = RankState.ASSIGNED
    address: str = ""
    udp_port: int = 0
    position: int = 0
    exit_code: int | None = None
    counters: pb.RankCounters = field(default_factory=pb.RankCounters)
    worker: int = 0  # the number that it was started with; `rank` may change with the epoch
    moved: float = field(default_factory=time.monotonic, compare=False)  # the time of its last move

    def move_to(self, position: int) -> None:
        """Record the rank's position."""
        if position != self.position:
            self.position, self.moved = position, time.monotonic()

    @property
    def ended(self) -> bool:
        """True if the rank sends no more contributions."""
        return self.state in (RankState.CLOSED, RankState.LOST)


@dataclass
class JobSwitch:
    """A job on one of the switches that sum it: its row of the store's job_switches.

    A switch whose `upstream` is empty completes the job's sums; any other one sends them on to that switch.
    """

    switch: str
    epoch: int
    slot_base: int
    slots: int
    group: int  # number of the multicast group in the switch for results
    upstream: str = ""

    @property
    def slot_range(self) -> range:
        """The pool indexes that the job holds."""
        return range(self.slot_base, self.slot_base + self.slots)


@dataclass(frozen=True)
class SharedPort:
    """The port of a switch at which the ranks of jobs over aggregators are, and whether it sees their MAC addresses."""

    number: int
    sees_macs: bool


@dataclass(frozen=True)
class EpochChange:
    """A change of epoch after a loss; ``lost`` are ranks of the old epoch, ``joined`` those with new processes."""

    epoch: int
    workers: int
    lost: tuple[int, ...]
    joined: tuple[int, ...]
    reason: str
    time: float


@dataclass
class Job:
    """One row of the store's jobs, with its switches and ranks; times in seconds since 1970."""

    key: int  # unique; `id` is the id in packets, which is reused
    id: int
    name: str
    workers: int
    values_per_packet: int
    created: float
    state: JobState = JobState.PENDING
    failure: str = ""
    ended: float = 0.0
    switches: list[JobSwitch] = field(default_factory=list)
    ranks: list[Rank] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    on_failure: OnFailure = OnFailure.ABORT
    priority: int = 0  # 0..7, among the jobs of the tenant
    generation: int = 0  # number of changes to a new epoch
    in_transition: bool = False  # true during a change from this epoch to another one
    epoch_changes: list[EpochChange] = field(default_factory=list)
    tenant: str = ""  # the tenant whose quota it counts against
    secret: int = field(default=0, repr=False)  # of the epoch; it is sent only to switch and agents
    # The key of the epoch's checks. It is sent only to agents, before the ranks begin, so it is not stored.
    check_key: bytes = field(default_factory=lambda: new_check_key(), repr=False, compare=False)
    _by_agent: tuple[list[Rank], dict[str, list[Rank]]] = field(
        default_factory=lambda: ([], {}), init=False, repr=False, compare=False
    )

    @property
    def live(self) -> bool:
        """True if it holds slots and tables."""
        return self.state.live

    @property
    def epoch(self) -> int:
        """The epoch that its packets carry, the same on all its switches."""
        return self.switches[0].epoch

    @property
    def slot_range(self) -> range:
        """The pool indexes that its packets carry, the same on all its switches."""
        return self.switches[0].slot_range

    @property
    def slots(self) -> int:
        """The number of slots of each rank."""
        return self.switches[0].slots

    @property
    def over_aggregators(self) -> bool:
        """True if every rank sends to all of its switches, which share its slots, instead of to its agent's switch."""
        at = {place.switch for place in self.switches}
        return self.tops > 1 or any(rank.switch not in at for rank in self.ranks)

    @property
    def tops(self) -> int:
        """The number of its switches that complete sums: one, or all those that share its slots."""
        return sum(not place.upstream for place in self.switches)

    @property
    def in_tree(self) -> bool:
        """True if one of its switches sends its sums on to another one."""
        return self.tops < len(self.switches)

    def sends_owned_results(self, place: JobSwitch) -> bool:
        """Return whether packets to one of its switches may say who reads the values of their RESULT.

        In a tree, this holds for switches with a parent that have no switches below them, because the header's `owner`
        has another meaning between switches. It can name ranks up to 126.
        """
        lowest = bool(place.upstream) and not self.children(place.switch)
        return not self.in_tree or (lowest and self.workers <= OWNER_EXCEPT - OWNER_FIRST)

    @property
    def switch_names(self) -> str:
        """The names of its switches, as a list in words."""
        return ", ".join(one.switch for one in self.switches)

    def enter(self, state: JobState) -> None:
        """Change the state; a state that may not follow the current one is a defect of the caller."""
        assert state in _NEXT.get(self.state, ()), f"job {self.name}: {self.state.name} -> {state.name}"
        self.state = state

    def ranks_by_agent(self) -> Mapping[str, list[Rank]]:
        """Return the ranks of each agent, in order; it is not made again until `ranks` is replaced."""
        ranks, held = self._by_agent
        if ranks is not self.ranks:
            held = {}
            for rank in self.ranks:
                held.setdefault(rank.agent, []).append(rank)
            self._by_agent = (self.ranks, held)
        return held

    def ranks_on(self, switch: str) -> list[Rank]:
        """Return the ranks that send to a switch, in order."""
        everywhere = self.over_aggregators
        return [rank for rank in self.ranks if everywhere or rank.switch == switch]

    def children(self, switch: str) -> list[JobSwitch]:
        """Return the switches that send their sums on to this one, in order."""
        return [place for place in self.switches if place.upstream == switch]

    def wire_workers(self, switch: str) -> dict[int, int]:
        """Return the number that the packets of each rank at a switch name: its place among them."""
        return {rank.rank: number for number, rank in enumerate(self.ranks_on(switch))}

    def wire_number(self, place: JobSwitch) -> int:
        """Return the number by which the switch above knows one: its place behind the ranks and switches there."""
        return len(self.ranks_on(place.upstream)) + self.children(place.upstream).index(place)

    def tables(
        self,
        place: JobSwitch,
        multicast: str = "",
        children: Sequence[RankPort] = (),
        parent: ParentPort | None = None,
        shared_port: SharedPort | None = None,
    ) -> JobTables:
        """Return the tables that one of its switches must hold; the endpoints of all ranks there must be known.

        `multicast` is the IPv4 group that their agents have joined, or empty; `children` and `parent` are the switches
        below and above. Over aggregators, all ranks are at the `shared_port`.
        """
        ports = []
        for number, rank in enumerate(self.ranks_on(place.switch)):
            mac, port = parse_mac(rank.mac), rank.switch_port
            if shared_port is not None:
                mac, port = mac if shared_port.sees_macs else 0, shared_port.number
            ports.append(RankPort(number, port, mac, int(IPv4Address(rank.address)), rank.udp_port))
        return JobTables(
            job=self.id,
            epoch=place.epoch,
            slot_base=place.slot_base,
            slots=place.slots,
            group=place.group,
            ranks=(*ports, *children),
            multicast=int(IPv4Address(multicast)) if multicast else 0,
            secret=self.secret,
            owned_results=self.sends_owned_results(place),
            parent=parent,
        )


def new_secret() -> int:
    """Return a secret for one epoch of a job: an unpredictable 32-bit number, never 0."""
    return secrets.randbelow(2**32 - 1) + 1


def new_check_key() -> bytes:
    """Return a key for the check of one epoch's packets: 16 random bytes."""
    return secrets.token_bytes(16)


def counters_by_name(verdicts: dict[Verdict, int]) -> dict[str, int]:
    """Return a job's counters as the northbound interface names them, from the switch's packets by verdict."""
    named = {verdict.name.lower(): packets for verdict, packets in verdicts.items()}
    named["contributions"] = verdicts[Verdict.AGGREGATED] + verdicts[Verdict.COMPLETED]
    named["results"] = verdicts[Verdict.COMPLETED]
    return named


def parse_mac(text: str) -> int:
    """Return a MAC address "aa:bb:cc:dd:ee:ff" as a number.

    Raises:
        ValueError: the text is not a MAC address.

    """
    if not _MAC.fullmatch(text):
        raise ValueError(f"{text!r} is not a MAC address of the form aa:bb:cc:dd:ee:ff")
    return int(text.replace(":", ""), 16)


def ranks_were_lost(ranks: list[int]) -> str:
    """Return "rank 3 was lost" or "ranks 0, 3 were lost"."""
    return f"{printed_ranks(ranks)} {'was' if len(ranks) == 1 else 'were'} lost"


def printed_ranks(ranks: list[int]) -> str:
    """Return "rank 3" or "ranks 0, 3"; many ranks as ranges."""
    return f"rank{'s' if len(ranks) != 1 else ''} {rank_numbers(ranks)}"
