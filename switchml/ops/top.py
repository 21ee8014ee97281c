"""The current activity of a fabric: rates from two readings of its counters."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from switchml.common.counter_table import RANK
from switchml.common.counters import read_counters
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word
from switchml.controller.retry import ask

__all__ = ["AgentActivity", "JobActivity", "RankActivity", "Snapshot", "SwitchActivity", "Watcher", "watch"]

_CHUNK_WORD_BYTES = 4


@dataclass(frozen=True)
class RankActivity:
    """One rank; rates are per second, between the last two heartbeats of its agent that were seen."""

    rank: int
    state: str
    agent: str
    switch: str  # that the agent is attached to
    host: str
    position: int  # in chunks
    behind: int  # the job's first rank, in chunks
    chunks_per_second: float
    bytes_per_second: float  # tensors including padding
    per_second: dict[str, float]  # packets, by the counters' names
    round_trip_seconds: float


@dataclass(frozen=True)
class JobActivity:
    """One job; rates are those of its slowest rank; `straggler` is the rank that lags furthest, or None."""

    id: int
    key: int  # an id that is never used again
    name: str
    state: str
    failure: str
    change: str  # why it continues in another epoch than its first; empty: it does not
    workers: int
    switches: tuple[str, ...]
    age_seconds: float
    bytes_per_second: float
    retransmitted_share: float  # fraction of the packets that its ranks sent
    straggler: int | None
    ranks: tuple[RankActivity, ...]


@dataclass(frozen=True)
class SwitchActivity:
    """One switch; `parent` is the one above it in its tree, or empty."""

    name: str
    parent: str
    connected: bool
    slots: int
    slots_free: int
    failure: str


@dataclass(frozen=True)
class AgentActivity:
    """One agent that has registered since the controller started."""

    name: str
    host: str
    switch: str  # that it is attached to
    live: bool


@dataclass(frozen=True)
class Snapshot:
    """The fabric at one moment; `time` is in seconds since 1970, and `jobs` are live."""

    time: float
    jobs: tuple[JobActivity, ...]
    switches: tuple[SwitchActivity, ...]
    agents: tuple[AgentActivity, ...]

    @property
    def agents_live(self) -> int:
        """The number of live agents."""
        return sum(agent.live for agent in self.agents)

    @property
    def agents_gone(self) -> tuple[str, ...]:
        """The names of the others."""
        return tuple(agent.name for agent in self.agents if not agent.live)

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return asdict(self) | {"agents_live": self.agents_live, "agents_gone": self.agents_gone}


@dataclass(frozen=True)
class _Heartbeat:
    """The time of an agent's heartbeat, and its ranks by job key and number."""

    time: float
    ranks: dict[tuple[int, int], pb.Rank]


_NEVER = _Heartbeat(0.0, {})


class Watcher:
    """Takes snapshots of a fabric. The rates in the first one are 0, since a rate needs two readings."""

    def __init__(self, client: ControllerClient) -> None:
        self._client = client
        self._seen: dict[str, tuple[_Heartbeat, _Heartbeat]] = {}  # by agent: its last two heartbeats that were seen

    def look(self) -> Snapshot:
        """Read the controller.

        Raises:
            ControllerError: the controller cannot be reached.

        """
        agents = self._client.list_agents()
        jobs = self._client.list_jobs()
        switches = self._client.list_switches()
        self._remember(agents, jobs)
        only = switches[0].name if len(switches) == 1 else ""
        return Snapshot(
            time=time.time(),
            jobs=tuple(map(self.activity, jobs)),
            switches=tuple(
                SwitchActivity(one.name, one.parent, one.connected, one.slots, one.slots_free, one.failure)
                for one in switches
            ),
            agents=tuple(
                AgentActivity(one.name, one.registration.host, one.registration.switch or only, one.live)
                for one in agents
            ),
        )

    def activity(self, job: pb.Job) -> JobActivity:
        """Return the activity of a job, by the heartbeats that the latest snapshots have seen."""
        first = max((rank.position for rank in job.ranks), default=0)
        ranks = tuple(self._rank_activity(job, rank, first) for rank in job.ranks)
        last = max(ranks, key=lambda rank: rank.behind, default=None)
        sent = sum(rank.per_second["sent"] for rank in ranks)
        again = sum(rank.per_second["retransmissions"] + rank.per_second["fast_retransmissions"] for rank in ranks)
        return JobActivity(
            id=job.id,
            key=job.key,
            name=job.name,
            state=enum_word(pb.JobState, job.state),
            failure=job.failure,
            change=job.changes[-1].reason if job.changes else "",
            workers=job.workers,
            switches=tuple(place.switch for place in job.switches),
            age_seconds=max(0.0, (job.ended or time.time()) - job.created),
            bytes_per_second=min((rank.bytes_per_second for rank in ranks), default=0.0),
            retransmitted_share=again / sent if sent else 0.0,
            straggler=last.rank if last is not None and last.behind else None,
            ranks=ranks,
        )

    def _remember(self, agents: Iterable[pb.Agent], jobs: Iterable[pb.Job]) -> None:
        """Keep the last two heartbeats of each agent: snapshots may be taken more often than agents report."""
        ranks: defaultdict[str, dict[tuple[int, int], pb.Rank]] = defaultdict(dict)
        for job in jobs:
            for rank in job.ranks:
                ranks[rank.agent][job.key, rank.rank] = rank
        seen = {}
        for agent in agents:
            now = _Heartbeat(agent.last_heartbeat, ranks[agent.name])
            before, last = self._seen.get(agent.name, (now, now))
            seen[agent.name] = (before, last) if agent.live and now.time == last.time else (last, now)
        self._seen = seen

    def _rank_activity(self, job: pb.Job, rank: pb.Rank, first: int) -> RankActivity:
        before, last = self._seen.get(rank.agent, (_NEVER, _NEVER))
        # A job that has ended has no rates, though the last two heartbeats of its agents may be from before its end.
        passed = 0.0 if job.ended else last.time - before.time
        old, new = (beat.ranks.get((job.key, rank.rank)) for beat in (before, last))

        def rate(now: int, then: int) -> float:
            return (now - then) / passed if old is not None and passed > 0 and now > then else 0.0

        then, now = old or pb.Rank(), new or pb.Rank()
        packets = read_counters(RANK, then.counters)
        chunks = rate(now.position, then.position)
        return RankActivity(
            rank=rank.rank,
            state=enum_word(pb.RankState, rank.state),
            agent=rank.agent,
            switch=rank.switch,
            host=rank.host,
            position=rank.position,
            behind=first - rank.position,
            chunks_per_second=chunks,
            bytes_per_second=chunks * job.values_per_packet * _CHUNK_WORD_BYTES,
            per_second={name: rate(value, packets[name]) for name, value in read_counters(RANK, now.counters).items()},
            round_trip_seconds=rank.counters.round_trip_seconds,
        )


def watch(client: ControllerClient, interval: float) -> Iterator[Snapshot]:
    """Yield the activity every `interval` seconds; the first after one interval, since a rate needs two readings.

    Raises:
        ControllerError: the controller cannot be reached.

    """
    watcher = Watcher(client)
    watcher.look()
    retry = client.retry()
    while True:
        time.sleep(interval)
        yield ask(watcher.look, retry)
