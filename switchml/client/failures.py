"""The exceptions for the failures that an agent reports."""

from __future__ import annotations

from switchml.client.agent_connection import Attachment, JobFailure
from switchml.client.calls import Call
from switchml.client.errors import (
    AgentLost,
    CollectiveMismatch,
    EpochSpent,
    IntegrityError,
    JobEnded,
    SwitchLost,
    SwitchMLError,
    WorkerLost,
    WorldChanged,
)
from switchml.common.job_numbers import rank_numbers

__all__ = ["error_of", "world_changed"]


def error_of(failure: JobFailure, who: str, call: Call | None) -> SwitchMLError:
    """Return the exception for `failure` of the rank described by `who`; `call` is its call at the failed position."""
    what = f"{who}: {failure.message.rstrip('.')}."
    again = "Start the job again."
    if failure.error == "WorkerLost":
        return WorkerLost(f"{what} {again}", failure.ranks)
    if failure.error == "CollectiveMismatch":
        mine = f" This rank's call there is {call}." if call else ""
        return CollectiveMismatch(f"{what}{mine} Make the same calls in the same order on all ranks. {again}")
    if failure.error == "IntegrityError":
        return IntegrityError(f"{what} Values were corrupted between this rank and the others. {again}")
    if failure.error in ("JobStopped", "JobFailed"):
        return JobEnded(f"{what} {again}", failed=failure.error == "JobFailed")
    if failure.error == "SwitchLost":
        return SwitchLost(f"{what} {again}")
    if failure.error == "EpochSpent":
        return EpochSpent(f"{what} {again} Use a larger pool, or --on-failure shrink or restart, to avoid this.")
    if failure.error == "AgentLost":
        return AgentLost(f"{what} See the agent's log; start it and the job again.")
    return JobEnded(f"{what} ({failure.error}) {again}", failed=True)


def world_changed(loss: JobFailure, who: str, now: Attachment, completed: int) -> WorldChanged:
    """Return the exception that tells the rank described by `who` that its job continues in another epoch."""
    restarted = f"; rank {rank_numbers(now.joined)} is a new process" if now.joined else ""
    return WorldChanged(
        f"{who}: {loss.message.rstrip('.')}. The job continues in epoch {now.epoch} with {now.world_size} ranks;"
        f" this one is rank {now.rank}{restarted}. {completed} calls of the previous epoch are complete on every rank.",
        loss.ranks,
        now.epoch,
        now.rank,
        now.world_size,
        now.joined,
        completed,
    )
