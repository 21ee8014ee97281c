"""The jobs that have ranks at this agent, by id: live ones, those whose ranks are being opened, and ended ones."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from switchml.common.names import parse_job_reference
from switchml.host_agent.errors import AttachRefused
from switchml.host_agent.local_job import LocalJob, LocalRank
from switchml.host_agent.messages import JobFailure
from switchml.host_agent.ranks import EngineRanks

__all__ = ["LocalJobs"]

_log = logging.getLogger(__name__)

_REMEMBERED_JOBS: Final = 64  # ended jobs, so that late processes are told why


class LocalJobs(Mapping[int, LocalJob]):
    """The live jobs of `agent` by id, which is unique among these. It belongs to one event loop."""

    def __init__(self, agent: str, ranks: EngineRanks) -> None:
        self.agent = agent
        self._ranks = ranks
        self._live: dict[int, LocalJob] = {}
        self._opening: dict[int, LocalJob] = {}  # by id: jobs whose ranks are being opened
        self._ended: OrderedDict[int | str, str] = OrderedDict()  # why jobs ended, by name and by id

    def __getitem__(self, number: int) -> LocalJob:
        """Return the live job with this id."""
        return self._live[number]

    def __iter__(self) -> Iterator[int]:
        """Return an iterator over the ids."""
        return iter(self._live)

    def __len__(self) -> int:
        """Return the number of live jobs."""
        return len(self._live)

    def in_epoch(self, number: int, epoch: int) -> LocalJob | None:
        """Return the live job with this id, if it is in this epoch."""
        job = self._live.get(number)
        return job if job is not None and job.assignment.epoch == epoch else None

    def find(self, reference: str) -> LocalJob:
        """Return the live job with this name or id.

        Raises:
            AttachRefused: it has ended, or this agent has never had ranks of it.

        """
        wanted = parse_job_reference(reference)
        for job in self._live.values():
            if wanted in (job.assignment.job, job.name):
                return job
        if wanted in self._ended:
            raise AttachRefused("JobEnded", self._ended[wanted])
        here = ", ".join(str(job) for job in self._live.values()) or "none"
        raise AttachRefused(
            "UnknownJob",
            f"agent {self.agent} has no ranks of a job {reference!r}; its jobs: {here}. Start one with "
            "`switchml-ctl job start`, or correct SWITCHML_JOB",
        )

    def ranks(self) -> Iterator[tuple[LocalJob, LocalRank]]:
        """Yield the ranks of live jobs, including ended ones."""
        for job in self._live.values():
            for rank in job.ranks.values():
                yield job, rank

    def open_ranks(self) -> Iterator[tuple[LocalJob, LocalRank, int]]:
        """Yield the open ranks of live jobs, with their handles."""
        for job, rank in self.ranks():
            if rank.handle is not None:
                yield job, rank, rank.handle

    def ranks_of_others(self, number: int) -> int:
        """Return the number of ranks of other jobs that are open or being opened."""
        jobs = {**self._live, **self._opening}
        return sum(len(job.assignment.ranks) for other, job in jobs.items() if other != number)

    @contextmanager
    def opening(self, job: LocalJob) -> Iterator[None]:
        """Count a job's ranks while they are opened, until another opening takes its place or it is aborted."""
        self._opening[job.assignment.job] = job
        try:
            yield
        finally:
            if self.is_opening(job):
                del self._opening[job.assignment.job]

    def is_opening(self, job: LocalJob) -> bool:
        """Return whether the job's ranks may still be opened."""
        return self._opening.get(job.assignment.job) is job

    def abort_opening(self, number: int, epoch: int) -> bool:
        """Open no more ranks of a job in this epoch; return whether they were being opened."""
        job = self._opening.get(number)
        if job is None or job.assignment.epoch != epoch:
            return False
        del self._opening[number]
        return True

    def add(self, job: LocalJob) -> None:
        """Register a job whose ranks are open."""
        self._live[job.assignment.job] = job
        for reference in (job.name, job.assignment.job):
            self._ended.pop(reference, None)

    def replace(self, new: LocalJob) -> None:
        """Register a live job's next epoch in place of the present one."""
        self._live[new.assignment.job] = new

    def end(self, job: LocalJob, failure: JobFailure) -> None:
        """End a live job: its processes get `failure`, and its ranks are closed."""
        _log.info("%s: over: %s", job, failure.message)
        job.failure = failure
        job.replaced.set()
        job.activated.set()  # wake waiting processes, which then see why it never becomes active
        for rank in job.ranks.values():
            process, rank.process = rank.process, None
            if process is not None:
                process.fail(failure)
        self._ranks.close(job.ranks.values())
        if job.successor is not None:
            self._ranks.close(job.successor.ranks.values())
        self._opening.pop(job.assignment.job, None)
        del self._live[job.assignment.job]
        for reference in (job.name, job.assignment.job):
            self._ended[reference] = f"{job} has ended: {failure.message}"
        while len(self._ended) > _REMEMBERED_JOBS:
            self._ended.popitem(last=False)

    def end_all(self, failure: JobFailure) -> None:
        """End every job, and open no more ranks of those that are being opened."""
        self._opening.clear()
        for job in list(self._live.values()):
            self.end(job, failure)
