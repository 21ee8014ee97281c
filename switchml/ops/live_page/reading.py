"""The contents of the live page: one reading of the controller, for all viewers."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable
from typing import Any, Final

from switchml.controller.client import ControllerClient
from switchml.controller.errors import ControllerError, JobNotFound
from switchml.controller.proto import events_pb2
from switchml.ops.top import JobActivity, RankActivity, SwitchActivity, Watcher

__all__ = ["PageReader"]

_ENDED_SECONDS: Final = 300.0  # for which a job is shown after its end, so that its lost ranks can be seen
_MOST_ENDED: Final = 8
_EVENTS: Final = 200
_WITHOUT_PROCESS: Final = "ASSIGNED"


class PageReader:
    """Reads a controller. A reading makes a fixed number of requests, and one more for each job that has just ended.

    The drops of one switch are read each time, of the next one the next time, because a switch reads its tables for it.
    """

    def __init__(self, client: ControllerClient) -> None:
        self._client = client
        self._watcher = Watcher(client)
        self._live: dict[int, JobActivity] = {}  # by key
        self._ended: dict[int, tuple[float, JobActivity]] = {}  # by key, with the time at which the end was seen
        self._drops = _Drops(client)

    def read(self) -> dict[str, Any]:
        """Return the present state for the page, as a dictionary for JSON.

        Raises:
            ControllerError: the controller cannot be reached.

        """
        snapshot = self._watcher.look()
        ended = self._ended_since(snapshot.jobs)
        self._drops.read(snapshot.switches)
        places = {agent.name: place for place, agent in enumerate(snapshot.agents)}
        return {
            "time": snapshot.time,
            "switches": [_switch(switch, self._drops.of(switch.name)) for switch in snapshot.switches],
            "agents": [
                {"name": agent.name, "host": agent.host, "switch": agent.switch, "live": agent.live}
                for agent in snapshot.agents
            ],
            "jobs": [_job(job, places) for job in (*snapshot.jobs, *ended)],
            "events": _events(self._client.read_events(latest=_EVENTS)),
        }

    def _ended_since(self, jobs: tuple[JobActivity, ...]) -> list[JobActivity]:
        """Return the jobs that have ended lately, newest first."""
        now, live = time.monotonic(), {job.key: job for job in jobs}
        for key in self._live.keys() - live.keys():
            with contextlib.suppress(JobNotFound):
                job = self._client.get_job(self._live[key].id)
                if job.key == key:  # no new job has taken the id
                    self._ended[key] = now, self._watcher.activity(job)
        self._live = live
        shown = [(key, each) for key, each in self._ended.items() if now - each[0] < _ENDED_SECONDS]
        self._ended = dict(shown[-_MOST_ENDED:])
        return [job for _, job in reversed(self._ended.values())]


class _Drops:
    """The packets that switches have dropped, by reason."""

    def __init__(self, client: ControllerClient) -> None:
        self._client = client
        self._counts: dict[str, tuple[float, dict[str, int]]] = {}  # by switch, with the time of the reading
        self._shown: dict[str, list[tuple[str, int, float]]] = {}
        self._turn = 0

    def read(self, switches: tuple[SwitchActivity, ...]) -> None:
        """Read those of one switch, and forget those of switches that are not there any more."""
        names = [switch.name for switch in switches if switch.connected]
        self._shown = {name: shown for name, shown in self._shown.items() if name in names}
        if not names:
            return
        name = names[self._turn % len(names)]
        self._turn += 1
        try:
            found = dict(self._client.show_switch(name).drop_reasons)
        except ControllerError:  # it is not there any more, or busy: it has another turn
            return
        now = time.monotonic()
        before, counts = self._counts.get(name, (now, found))
        self._counts[name] = now, found
        passed = now - before
        self._shown[name] = [
            (why, count, round(max(0, count - counts.get(why, 0)) / passed, 1) if passed else 0.0)
            for why, count in found.items()
            if count
        ]

    def of(self, switch: str) -> list[tuple[str, int, float]]:
        """Return reason, packets and packets per second; reasons without packets are left out."""
        return self._shown.get(switch, [])


def _switch(switch: SwitchActivity, drops: list[tuple[str, int, float]]) -> dict[str, Any]:
    return {
        "name": switch.name,
        "parent": switch.parent,
        "connected": switch.connected,
        "failure": switch.failure,
        "slots": switch.slots,
        "free": switch.slots_free,
        "drops": drops,
    }


def _job(job: JobActivity, places: dict[str, int]) -> dict[str, Any]:
    return {
        "key": job.key,
        "id": job.id,
        "name": job.name,
        "state": job.state,
        "failure": job.failure,
        "change": job.change,
        "age": round(job.age_seconds),
        "switches": job.switches,
        "rate": round(job.bytes_per_second),
        "again": round(job.retransmitted_share, 4),
        "straggler": job.straggler,
        "ranks": [_rank(rank, places, bool(job.change)) for rank in job.ranks],
    }


def _rank(rank: RankActivity, places: dict[str, int], changed: bool) -> tuple[int | str, ...]:
    """Return a rank in short, because a job may have thousands; page.js names the fields.

    After a change of epoch, only a rank whose process was lost, and whose next one has not come yet, is ASSIGNED.
    """
    state = "LOST" if changed and rank.state == _WITHOUT_PROCESS else rank.state
    return (
        rank.rank,
        state,
        places.get(rank.agent, -1),
        rank.position,
        rank.behind,
        round(rank.bytes_per_second),
        round(rank.per_second["retransmissions"] + rank.per_second["fast_retransmissions"]),
        round(rank.round_trip_seconds * 1e6),
    )


def _events(events: Iterable[events_pb2.Event]) -> list[dict[str, Any]]:
    """Return events, with successive ones of one kind and job as one: each rank that attaches is one."""
    groups = (list(group) for _, group in itertools.groupby(events, lambda event: (event.kind, event.job_key)))
    return [_event(group[-1], len(group)) for group in groups]


def _event(event: events_pb2.Event, count: int) -> dict[str, Any]:
    about = [f"job {event.job_name}"] if event.job_key else []
    if count == 1:
        about += [f"rank {event.rank}"] if event.HasField("rank") else []
        about += [f"{what} {name}" for what, name in (("agent", event.agent), ("switch", event.switch)) if name]
    return {
        "number": event.number,
        "time": event.time,
        "kind": event.kind if count == 1 else f"{count} {event.kind}",
        "level": event.level,
        "about": ", ".join(about),
        "detail": event.detail if count == 1 else "",
    }
