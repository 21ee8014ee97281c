"""From the agent's word for a failure to the exception that it becomes."""

from __future__ import annotations

from switchml.agent_connection import Failure
from switchml.calls import Call
from switchml.errors import (
    AgentLost,
    CollectiveMismatch,
    IntegrityError,
    JobEnded,
    SwitchLost,
    SwitchMLError,
    WorkerLost,
)

__all__ = ["error_of"]


def error_of(failure: Failure, who: str, call: Call | None) -> SwitchMLError:
    """Return the exception for `failure` of the rank described by `who`; `call` is its call at that place."""
    what = f"{who}: {failure.message.rstrip('.')}."
    again = "Start the job again."
    if failure.error == "WorkerLost":
        return WorkerLost(f"{what} {again}", failure.ranks)
    if failure.error == "CollectiveMismatch":
        mine = f" This rank's call there is {call}." if call else ""
        return CollectiveMismatch(f"{what}{mine} Make the same calls in the same order on all ranks. {again}")
    if failure.error == "IntegrityError":
        return IntegrityError(f"{what} Values were changed between this rank and the others. {again}")
    if failure.error in ("JobStopped", "JobFailed"):
        return JobEnded(f"{what} {again}", failed=failure.error == "JobFailed")
    if failure.error == "SwitchLost":
        return SwitchLost(f"{what} {again}")
    if failure.error == "AgentLost":
        return AgentLost(f"{what} See the agent's log; start it and the job again.")
    return JobEnded(f"{what} ({failure.error}) {again}", failed=True)
