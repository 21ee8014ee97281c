"""The change of a job to its next epoch (docs/understand/correctness.md): its ranks stop, and its processes move."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final

from switchml.controller.proto import switchml_pb2 as pb
from switchml.host_agent.local_job import LocalJob
from switchml.host_agent.local_jobs import LocalJobs
from switchml.host_agent.messages import JobFailure
from switchml.host_agent.ranks import EngineRanks
from switchml.host_agent.reports import Reports

__all__ = ["Quiescing", "follows", "switch_over"]

_log = logging.getLogger(__name__)

_FETCH_SECONDS: Final = 2.5  # the controller waits for 3 s
_FETCH_STEP_SECONDS: Final = 0.005


class Quiescing:
    """The steps in which jobs stop before they change their epoch: each job is in the one that was ordered last."""

    def __init__(self, jobs: LocalJobs, ranks: EngineRanks, reports: Reports) -> None:
        self._jobs = jobs
        self._ranks = ranks
        self._reports = reports
        self._steps: dict[int, asyncio.Task[None]] = {}  # by job

    def begin(self, quiesce: pb.Quiesce) -> None:
        """Carry out a step, and report the positions of the job's ranks after it."""
        before = self._steps.pop(quiesce.job, None)
        if before is not None:
            before.cancel()
        step = self._fetch(quiesce) if quiesce.targets else self._freeze(quiesce)
        self._steps[quiesce.job] = asyncio.create_task(step, name=f"quiesce of job {quiesce.job}")

    def cancel(self) -> list[asyncio.Task[None]]:
        """Cancel all steps, and return their tasks."""
        steps = list(self._steps.values())
        self._steps.clear()
        for step in steps:
            step.cancel()
        return steps

    async def _freeze(self, quiesce: pb.Quiesce) -> None:
        """Stop the ranks, so that they begin nothing and accept no result, and report their positions."""
        job = self._find(quiesce)
        if job is not None:
            self._report(quiesce, await self._ranks.freeze(job.ranks.values()))

    async def _fetch(self, quiesce: pb.Quiesce) -> None:
        """Let frozen ranks fetch what others hold, and report when they have; the controller's wait is limited."""
        deadline = time.monotonic() + _FETCH_SECONDS
        while (job := self._find(quiesce)) is not None:
            phases = await self._ranks.fetch(job.ranks.values(), list(quiesce.targets))
            if _have_reached(phases, quiesce):
                self._report(quiesce, phases)
                return
            if time.monotonic() >= deadline:
                _log.error(
                    "job %d: the results that other ranks hold were not fetched within %g s",
                    quiesce.job,
                    _FETCH_SECONDS,
                )
                return
            await asyncio.sleep(_FETCH_STEP_SECONDS)

    def _find(self, quiesce: pb.Quiesce) -> LocalJob | None:
        job = self._jobs.in_epoch(quiesce.job, quiesce.epoch)
        if job is None:
            _log.warning("no job %d in epoch %d to quiesce at this agent", quiesce.job, quiesce.epoch)
        return job

    def _report(self, quiesce: pb.Quiesce, phases: Mapping[int, Sequence[int]]) -> None:
        positions = pb.Positions(job=quiesce.job, epoch=quiesce.epoch, fetched=bool(quiesce.targets))
        for rank, held in phases.items():
            positions.ranks.add(rank=rank, phases=held)
        self._reports.send(pb.AgentMessage(positions=positions))


def _have_reached(phases: Mapping[int, Sequence[int]], quiesce: pb.Quiesce) -> bool:
    """Return whether all ranks hold the target number of phases."""
    return all(phase >= target for held in phases.values() for phase, target in zip(held, quiesce.targets, strict=True))


def follows(held: LocalJob, assignment: pb.Assignment) -> bool:
    """Return whether an assignment is the next epoch of a job that this agent has."""
    return assignment.HasField("succession") and assignment.succession.previous_epoch == held.assignment.epoch


def switch_over(old: LocalJob, new: LocalJob, reports: Reports) -> None:
    """Give each process of the old epoch its rank in the new one.

    Processes that have ended during the change are recorded as ended at their new ranks. Processes without a rank in
    the new epoch are told that they were declared lost.
    """
    succession = new.assignment.succession
    for number, before in zip(new.assignment.ranks, succession.previous_ranks, strict=True):
        rank, previous = new.ranks[number], old.ranks.get(before)
        if previous is None:
            continue  # its process has not attached yet
        process, previous.process = previous.process, None
        if process is None:
            if previous.attached:
                rank.attached = True
                closed = any(event.kind == pb.RankEvent.KIND_CLOSED for event in previous.events)
                why = next((event.detail for event in previous.events if event.kind == pb.RankEvent.KIND_LOST), "")
                kind = pb.RankEvent.KIND_CLOSED if closed else pb.RankEvent.KIND_LOST
                reports.record(new, rank, pb.RankEvent(kind=kind, detail=why))
            continue
        rank.process = process
        if not previous.attached:
            continue  # its process still waits for its rank, and will get this one
        rank.attached = True
        attached = pb.RankEvent(kind=pb.RankEvent.KIND_ATTACHED, detail=f"process {process.pid}")
        reports.record(new, rank, attached)
        process.move(new, rank, rank.take_descriptors())
    for previous in old.ranks.values():
        process, previous.process = previous.process, None
        if process is not None:
            process.fail(
                JobFailure("WorkerLost", (previous.rank,), f"this rank was declared lost: {succession.message}")
            )
    _log.info("%s: continues in epoch %d", new, succession.previous_epoch)
