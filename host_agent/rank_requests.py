"""Find the rank of a job that a process asks for."""

from __future__ import annotations

from switchml.common.job_numbers import rank_numbers
from switchml.controller.proto import switchml_pb2 as pb
from switchml.host_agent.errors import AttachRefused
from switchml.host_agent.local_job import LocalJob, LocalRank
from switchml.host_agent.messages import Attach

__all__ = ["rank_asked_for"]


def rank_asked_for(job: LocalJob, request: Attach, agent: str) -> LocalRank:
    """Return the rank that a process asks for, if it belongs to `agent`.

    A process asks for the number that it was started with. In a job that has since continued without lost ranks, the
    rank may have another number, and the job has fewer ranks.

    Raises:
        AttachRefused: the job has no such rank, or another agent has it.

    """
    assignment = job.assignment
    size = assignment.world_size
    has_shrunk = assignment.on_failure == pb.ON_FAILURE_SHRINK and assignment.generation > 0
    if request.world_size is not None and (request.world_size < size if has_shrunk else request.world_size != size):
        raise AttachRefused("WrongWorldSize", f"{job} has {size} ranks, not {request.world_size}")
    if has_shrunk:
        return _rank_of_worker(job, request.rank, agent)
    if request.rank >= size:
        raise AttachRefused("BadRequest", f"{job} has ranks 0 to {size - 1}; there is no rank {request.rank}")
    rank = job.ranks.get(request.rank)
    if rank is None:
        here = rank_numbers(list(job.ranks))
        raise AttachRefused(
            "RankElsewhere",
            f"rank {request.rank} of {job} belongs to another agent; agent {agent} has rank {here}. "
            "`switchml-ctl job show` lists the agents",
        )
    return rank


def _rank_of_worker(job: LocalJob, worker: int, agent: str) -> LocalRank:
    ranks = dict(zip(job.assignment.workers, job.assignment.ranks, strict=True))
    if worker not in ranks:
        here = rank_numbers(list(ranks))
        raise AttachRefused(
            "RankElsewhere",
            f"the process that was started as rank {worker} of {job} has no rank at agent {agent}: it was declared "
            "lost and the job continues without it, or its rank is at another agent; this agent has the ranks of "
            f"processes {here}",
        )
    return job.ranks[ranks[worker]]
