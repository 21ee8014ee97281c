"""The exceptions for the failures that native code reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from switchml import _native
from switchml.client.errors import (
    AgentLost,
    CollectiveMismatch,
    CollectiveTimeout,
    CommunicatorClosed,
    ConnectError,
    EpochSpent,
    IntegrityError,
    JobEnded,
    NonFiniteError,
    RankClosed,
    SwitchLost,
    SwitchMLError,
    UnsupportedTensor,
    WorkerLost,
    WorldChanged,
)

__all__ = ["exception_of"]

_EXCEPTIONS: Final[dict[str, Callable[[_native.Failure], SwitchMLError]]] = {
    "connect": lambda failure: ConnectError(failure.message, failure.reason),
    "unsupported_tensor": lambda failure: UnsupportedTensor(failure.message),
    "non_finite": lambda failure: NonFiniteError(failure.message, failure.indices, failure.count),
    "collective_timeout": lambda failure: CollectiveTimeout(failure.message, failure.ranks),
    "collective_mismatch": lambda failure: CollectiveMismatch(failure.message),
    "integrity": lambda failure: IntegrityError(failure.message),
    "worker_lost": lambda failure: WorkerLost(failure.message, failure.ranks),
    "world_changed": lambda failure: WorldChanged(
        failure.message,
        failure.ranks,
        failure.epoch,
        failure.rank,
        failure.world_size,
        failure.joined,
        failure.completed,
    ),
    "rank_closed": lambda failure: RankClosed(failure.message, failure.ranks),
    "job_ended": lambda failure: JobEnded(failure.message),
    "job_failed": lambda failure: JobEnded(failure.message, failed=True),
    "switch_lost": lambda failure: SwitchLost(failure.message),
    "epoch_spent": lambda failure: EpochSpent(failure.message),
    "agent_lost": lambda failure: AgentLost(failure.message),
    "closed": lambda failure: CommunicatorClosed(failure.message),
}


def exception_of(failure: _native.Failure) -> SwitchMLError:
    """Return the exception for `failure`, in its words."""
    return _EXCEPTIONS[failure.kind](failure)
