"""Detects switches that do not answer any more, and fails their jobs before the timeouts of their calls.

A switch is lost with its process, if its driver knows that this has ended. Otherwise a lost control connection does
not prove that packets are lost: a switch may continue without its management CPU. A missing result does not prove it
either: a rank may be slow. But the switch is lost if every rank waits for a result to which all of them have
contributed, no result comes in spite of retransmissions, and the controller cannot reach the switch either. While the
link of a host is cut for some time, the control connection stays, and the jobs wait; lost_links.py watches the links
between switches.

A soft switch is a process of a machine, on which any user may have its UDP port once it has ended. So while the
controller cannot reach one, its jobs are paused: agents send it nothing, and take nothing for its answers. Such a job
waits for a result in any case.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from switchml.common.clock import Clock, stood_still
from switchml.controller.agents import Agents
from switchml.controller.jobs.ending import JobEndings
from switchml.controller.jobs.live import LiveJob, Signal
from switchml.controller.jobs.register import JobRegister
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import Job, JobState
from switchml.controller.switches import ManagedSwitch

__all__ = ["ANSWER_SECONDS", "LostSwitches"]

ANSWER_SECONDS: Final = 2.0
"""The time without a result that all ranks wait for, after which a switch that cannot be reached is lost."""
_STEP_SECONDS: Final = 0.25


class LostSwitches:
    """Watches all jobs, by `clock`."""

    def __init__(self, jobs: JobRegister, endings: JobEndings, agents: Agents, clock: Clock = time.monotonic) -> None:
        self._jobs = jobs
        self._endings = endings
        self._agents = agents
        self._clock = clock
        self._changed = Signal()
        self._lost: set[str] = set()  # the soft switches whose control connection was lost
        self._checked = clock()
        self._silent: dict[int, tuple[int, float]] = {}  # by job: results taken, and the time of the last one

    async def run(self) -> None:
        """Check the jobs periodically until cancelled."""
        while True:
            self.check()
            await self._changed.wait(_STEP_SECONDS)

    def connection_changed(self, switch: ManagedSwitch) -> None:
        """Pause or continue the jobs of a soft switch, and check all jobs at once."""
        if switch.config.target.udp_ports and (switch.driver.connected or switch.driver.failure):
            # Without either it is only being prepared again.
            (self._lost.discard if switch.driver.connected else self._lost.add)(switch.name)
            for live in self._jobs.live_jobs():
                if switch in live.switches:
                    pause = pb.Pause(job=live.job.id, epoch=live.job.epoch, paused=self._paused(live))
                    self._agents.tell(live.job.ranks_by_agent(), pb.ControllerMessage(pause=pause))
        self._changed.notify()

    def _paused(self, live: LiveJob) -> bool:
        return any(switch.name in self._lost for switch in live.switches)

    def _is_due(self, live: LiveJob) -> bool:
        """Return whether a job has results to get, or might have if it were not paused."""
        return all_wait(live.job) or (live.job.state is JobState.RUNNING and self._paused(live))

    def check(self) -> None:
        """Fail the jobs whose switch has been silent for too long."""
        now = self._clock()
        if stood_still(self._checked, now, 2 * _STEP_SECONDS):
            self._silent.clear()  # this process did not run, so it could not hear of results either
        self._checked = now
        silent: dict[int, tuple[int, float]] = {}
        for live in self._jobs.live_jobs():
            job = live.job
            ended = [switch for switch in live.switches if switch.driver.ended]
            if ended and job.state is JobState.RUNNING:
                self._endings.end(live, JobState.FAILED, _why_ended(ended), pb.REVOCATION_REASON_SWITCH_LOST)
                continue
            unreachable = [switch.name for switch in live.switches if not switch.driver.connected]
            if not unreachable or live.leaves_epoch or not self._is_due(live):
                continue
            received = sum(rank.counters.received for rank in job.ranks)
            before, since = self._silent.get(job.key, (received, now))
            silent[job.key] = (received, since if received == before else now)
            if now - silent[job.key][1] >= ANSWER_SECONDS:
                why = (
                    f"switch {', '.join(unreachable)} is gone: the controller cannot reach it, and its job had no"
                    f" result for {ANSWER_SECONDS:g} s"
                )
                self._endings.end(live, JobState.FAILED, why, pb.REVOCATION_REASON_SWITCH_LOST)
        self._silent = silent


def _why_ended(switches: Sequence[ManagedSwitch]) -> str:
    names = ", ".join(switch.name for switch in switches)
    controls = ", ".join(switch.config.control for switch in switches)
    return (
        f"switch {names} is gone: its process has ended, because nothing listens at {controls}, and its sums are lost;"
        " start the switch again"
    )


def all_wait(job: Job) -> bool:
    """Return whether a result is due: the rank with the fewest lacks one to which every rank has contributed."""
    ranks = [rank for rank in job.ranks if not rank.ended]
    if job.state is not JobState.RUNNING or not ranks:
        return False
    return min(rank.position for rank in ranks) > min(rank.counters.received for rank in ranks)
