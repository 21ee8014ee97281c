"""Detects dead links between the switches of a job's tree, and fails the job before the timeouts of its calls.

Port states are not used, because P4Runtime does not report them; the switches' own counters show what arrives. While
the top of a tree completes no sum, the controller reads the counters of all its switches periodically, more often while
a link is silent. It is silent between two readings if

- upward: the lower switch has sent sums, which ranks repeat until they are answered, and none of them arrived above;
- downward: sums of the lower switch have arrived, the upper one has repeated results to a switch or rank that lacks
  them, and no result arrived below. If there are several such links, the results were repeated over the one whose lower
  switch has completed the fewest sums: the others wait for a sum that the switch behind it cannot send yet.

A link that stays silent over several readings is dead. A slow rank makes no link silent: either its switch sends
nothing, or what others send arrives.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from switchml.common.clock import Clock
from switchml.controller.drivers import JobTraffic
from switchml.controller.errors import SwitchRefused, SwitchUnavailable
from switchml.controller.jobs.ending import JobEndings
from switchml.controller.jobs.live import LiveJob
from switchml.controller.jobs.register import JobRegister
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import Job, JobState
from switchml.dataplane.constants import Verdict

__all__ = ["SILENT_READINGS", "LinkDirection", "LostLinks", "link_states"]

_LOG = logging.getLogger(__name__)

SILENT_READINGS: Final = 3
"""The number of successive readings in which a link that is dead was silent."""
_STEP_SECONDS: Final = 0.25
_QUIET_SECONDS: Final = 1.0
"""The time between two readings of all switches while no link is silent."""


@dataclass(frozen=True)
class LinkDirection:
    """One direction of a link between two switches of a tree."""

    sender: str
    receiver: str

    def __str__(self) -> str:
        return f"{self.sender} -> {self.receiver}"


@dataclass
class _Standing:
    """The latest readings of a job's counters, in one epoch; `silent` counts the successive ones of silent links."""

    epoch: int
    completed: int  # by the top of the tree
    due: float = 0.0  # the time of the next reading of all switches
    since: float = 0.0  # the time of the first reading of all switches
    traffic: Mapping[str, JobTraffic] | None = None  # of each switch, read last; None while sums are completed
    silent: Counter[LinkDirection] = field(default_factory=Counter)


class LostLinks:
    """Watches the trees of all jobs, by `clock`."""

    def __init__(self, jobs: JobRegister, endings: JobEndings, clock: Clock = time.monotonic) -> None:
        self._jobs = jobs
        self._endings = endings
        self._clock = clock
        self._standings: dict[int, _Standing] = {}  # by job
        self._readings: dict[int, asyncio.Task[None]] = {}  # by job

    async def run(self) -> None:
        """Check the jobs periodically until cancelled; a switch that answers late delays only its own jobs."""
        try:
            while True:
                watched = {live.job.key: live for live in self._jobs.live_jobs() if _is_watched(live)}
                self._standings = {key: one for key, one in self._standings.items() if key in watched}
                self._readings = {key: task for key, task in self._readings.items() if not task.done()}
                for key in watched.keys() - self._readings.keys():
                    name = f"links of job {watched[key].job.name}"
                    self._readings[key] = asyncio.create_task(self.check(watched[key]), name=name)
                await asyncio.sleep(_STEP_SECONDS)
        finally:
            for task in self._readings.values():
                task.cancel()
            await asyncio.gather(*self._readings.values(), return_exceptions=True)

    async def check(self, live: LiveJob) -> None:
        """Read the counters of a job's switches, and fail the job if one of its links is dead."""
        try:
            dead, seconds = await self._dead_links(live)
        except (SwitchUnavailable, SwitchRefused) as error:
            # Without an answer of each switch nothing is known about the links.
            _LOG.debug("job %s: its links are not known: %s", live.job.name, error)
            self._standings.pop(live.job.key, None)
            return
        except Exception:
            _LOG.exception("job %s: its links are not known", live.job.name)
            self._standings.pop(live.job.key, None)
            return
        if dead and _is_watched(live):
            self._endings.end(live, JobState.FAILED, _why(live, dead, seconds), pb.REVOCATION_REASON_SWITCH_LOST)

    async def _dead_links(self, live: LiveJob) -> tuple[list[LinkDirection], float]:
        """Return the links that have been silent often enough, and for how many seconds.

        Only a tree that completes no sum is read as a whole.
        """
        job, top = live.job, live.switches[0]
        epoch = job.epoch
        completed = (await top.driver.read_verdicts([job.id]))[Verdict.COMPLETED]
        standing = self._standings.get(job.key)
        if standing is None or (standing.epoch, standing.completed) != (epoch, completed):
            self._standings[job.key] = _Standing(epoch, completed)
            return [], 0.0
        if self._clock() < standing.due:
            return [], 0.0
        traffic = await _traffic(live)
        if job.epoch != epoch:
            return [], 0.0
        self._compare(standing, job, traffic)
        dead = [link for link, readings in standing.silent.items() if readings >= SILENT_READINGS]
        return dead, self._clock() - standing.since

    def _compare(self, standing: _Standing, job: Job, traffic: Mapping[str, JobTraffic]) -> None:
        """Count the links that were silent since the reading before."""
        now, before, standing.traffic = self._clock(), standing.traffic, traffic
        if before is None:
            standing.since = now
            return
        for link, silent in link_states(job, before, traffic):
            standing.silent[link] = standing.silent[link] + 1 if silent else 0
        if not any(standing.silent.values()):
            standing.since, standing.due = now, now + _QUIET_SECONDS


def _why(live: LiveJob, dead: Sequence[LinkDirection], seconds: float) -> str:
    """Return what happened in words: the links, what was seen, and what to check."""
    by_name = {switch.name: switch.config for switch in live.switches}
    ports = []
    for link in dead:
        for lower, upper in ((link.sender, link.receiver), (link.receiver, link.sender)):
            parent = by_name[lower].parent
            if parent is not None and parent.switch == upper:
                ports.append(f"port {parent.uplink} of {lower} and port {parent.port} of {upper}")
    links = ", ".join(map(str, dead))
    return (
        f"link {links} is dead: in {seconds:.1f} s no packet of the job has arrived over it although some were"
        f" sent; check the cable, and {', '.join(dict.fromkeys(ports))}"
    )


async def _traffic(live: LiveJob) -> dict[str, JobTraffic]:
    """Read the counters of all switches of a job."""
    job = live.job
    places = [(switch, tables, job.children(switch.name)) for switch, tables in live.tables()]
    found = await asyncio.gather(
        *(
            switch.driver.read_traffic(tables, [job.wire_number(child) for child in children])
            for switch, tables, children in places
        )
    )
    return {switch.name: one for (switch, _, _), one in zip(places, found, strict=True)}


def _is_watched(live: LiveJob) -> bool:
    """Return whether a job depends on links between switches that can all be asked."""
    return (
        live.job.in_tree
        and live.job.state is JobState.RUNNING
        and not live.leaves_epoch
        and all(switch.driver.connected and switch.driver.primary for switch in live.switches)
    )


def link_states(
    job: Job, before: Mapping[str, JobTraffic], now: Mapping[str, JobTraffic]
) -> Iterator[tuple[LinkDirection, bool]]:
    """Yield the links of a tree that should have carried packets between two readings, and whether none arrived."""
    for place in job.switches:
        above, starved = _Received(before[place.switch], now[place.switch]), []
        for child in job.children(place.switch):
            below = _Received(before[child.switch], now[child.switch])
            arrived = above.contributions(job.wire_number(child)) > 0
            if arrived or below.counted(Verdict.FORWARDED):
                yield LinkDirection(child.switch, place.switch), not arrived
            if below.results:
                yield LinkDirection(place.switch, child.switch), False
            elif arrived:
                starved.append(child)
        if starved and above.counted(Verdict.RESENT):
            last = min(starved, key=lambda child: now[child.switch].verdicts[Verdict.COMPLETED])
            yield LinkDirection(place.switch, last.switch), True


@dataclass(frozen=True)
class _Received:
    """The packets of a job that one switch has received between two readings."""

    before: JobTraffic
    now: JobTraffic

    def counted(self, verdict: Verdict) -> int:
        return self.now.verdicts[verdict] - self.before.verdicts[verdict]

    def contributions(self, number: int) -> int:
        return self.now.contributions.get(number, 0) - self.before.contributions.get(number, 0)

    @property
    def results(self) -> int:
        return self.now.results - self.before.results
