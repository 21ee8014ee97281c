"""The current activity of a fabric: rates from two readings of its counters."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from switchml.common.counter_table import RANK
from switchml.common.counters import read_counters
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word
from switchml.controller.retry import ask

__all__ = ["JobActivity", "RankActivity", "Snapshot", "SwitchActivity", "watch"]

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
    """One live job; rates are those of its slowest rank; `straggler` is the rank that lags furthest, or None."""

    id: int
    name: str
    state: str
    workers: int
    switches: tuple[str, ...]
    age_seconds: float
    bytes_per_second: float
    retransmitted_share: float  # fraction of the packets that its ranks sent
    straggler: int | None
    ranks: tuple[RankActivity, ...]


@dataclass(frozen=True)
class SwitchActivity:
    """One switch."""

    name: str
    connected: bool
    slots: int
    slots_free: int
    failure: str


@dataclass(frozen=True)
class Snapshot:
    """The fabric at one moment; `time` is in seconds since 1970."""

    time: float
    jobs: tuple[JobActivity, ...]
    switches: tuple[SwitchActivity, ...]
    agents_live: int
    agents_gone: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _JobReading:
    """One reading of the counters."""

    jobs: dict[int, pb.Job]  # by id
    heartbeats: dict[str, float]  # by agent

    def rank(self, job: pb.Job, number: int) -> pb.Rank | None:
        before = self.jobs.get(job.key)
        return before.ranks[number] if before is not None and number < len(before.ranks) else None


def watch(client: ControllerClient, interval: float) -> Iterator[Snapshot]:
    """Yield the activity every `interval` seconds; the first after one interval, since a rate needs two readings.

    Raises:
        ControllerError: the controller cannot be reached.

    """
    before, _ = _look(client)
    retry = client.retry()
    while True:
        time.sleep(interval)
        now, agents = ask(lambda: _look(client), retry)
        switches = tuple(
            SwitchActivity(switch.name, switch.connected, switch.slots, switch.slots_free, switch.failure)
            for switch in ask(client.list_switches, retry)
        )
        jobs = tuple(_activity(job, before, now) for job in now.jobs.values())
        gone = tuple(agent.name for agent in agents if not agent.live)
        yield Snapshot(time.time(), jobs, switches, len(agents) - len(gone), gone)
        before = now


def _look(client: ControllerClient) -> tuple[_JobReading, list[pb.Agent]]:
    agents = client.list_agents()
    jobs = {job.key: job for job in client.list_jobs()}
    return _JobReading(jobs, {agent.name: agent.last_heartbeat for agent in agents}), agents


def _activity(job: pb.Job, before: _JobReading, now: _JobReading) -> JobActivity:
    first = max((rank.position for rank in job.ranks), default=0)
    ranks = tuple(_rank_activity(job, rank, first, before, now) for rank in job.ranks)
    last = max(ranks, key=lambda rank: rank.behind, default=None)
    sent = sum(rank.per_second["sent"] for rank in ranks)
    again = sum(rank.per_second["retransmissions"] + rank.per_second["fast_retransmissions"] for rank in ranks)
    return JobActivity(
        id=job.id,
        name=job.name,
        state=enum_word(pb.JobState, job.state),
        workers=job.workers,
        switches=tuple(place.switch for place in job.switches),
        age_seconds=max(0.0, time.time() - job.created),
        bytes_per_second=min((rank.bytes_per_second for rank in ranks), default=0.0),
        retransmitted_share=again / sent if sent else 0.0,
        straggler=last.rank if last is not None and last.behind else None,
        ranks=ranks,
    )


def _rank_activity(job: pb.Job, rank: pb.Rank, first: int, before: _JobReading, now: _JobReading) -> RankActivity:
    earlier = before.rank(job, rank.rank)
    passed = now.heartbeats.get(rank.agent, 0.0) - before.heartbeats.get(rank.agent, 0.0)

    def rate(new: int, old: int) -> float:
        return (new - old) / passed if earlier is not None and passed > 0 and new > old else 0.0

    then = earlier if earlier is not None else pb.Rank()
    packets = read_counters(RANK, then.counters)
    chunks = rate(rank.position, then.position)
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
        per_second={name: rate(new, packets[name]) for name, new in read_counters(RANK, rank.counters).items()},
        round_trip_seconds=rank.counters.round_trip_seconds,
    )
