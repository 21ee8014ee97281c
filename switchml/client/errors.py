"""The exceptions of this library.

Every message says what happened, to what, what to do about it and what the array of the call holds afterwards.
"""

from __future__ import annotations

import copy
from typing import TypeVar

__all__ = [
    "SwitchMLError",
    "ConnectError",
    "UnsupportedTensor",
    "NonFiniteError",
    "CollectiveTimeout",
    "CollectiveMismatch",
    "IntegrityError",
    "WorkerLost",
    "WorldChanged",
    "RankClosed",
    "JobEnded",
    "SwitchLost",
    "EpochSpent",
    "AgentLost",
    "CommunicatorClosed",
]

ErrorT = TypeVar("ErrorT", bound="SwitchMLError")


class SwitchMLError(Exception):
    """Base class of this library's exceptions. Wrong arguments raise `ValueError` and `TypeError` as usual."""


class ConnectError(SwitchMLError):
    """No communicator could be made.

    `reason` is the agent's name for the error (``UnknownJob``, ``RankTaken``, ``WrongWorldSize``, ``VersionMismatch``,
    ``JobEnded``, ``RankElsewhere``, ``BadRequest``), or empty if no agent answered. If the job should have been
    created, it may also come from the controller: ``MissingRanks`` (not all came in time), or the name of its error
    (``NoRoom``, ``NoAgent``, ``SwitchUnavailable``, ``JobExists``, ``ControllerUnavailable``, ``InvalidRequest``, ...).
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class UnsupportedTensor(SwitchMLError, TypeError):
    """The type, dtype, layout or access of the array is not supported. Nothing was sent, and it is unchanged."""


class NonFiniteError(SwitchMLError):
    """A rank contributed NaN or infinity.

    Every rank gets this error with the same indices. The result is NaN at those indices and correct everywhere else,
    and the communicator remains usable.
    `count` is the number of such elements, `indices` the first of them (at most 16) in the flattened array.
    """

    def __init__(self, message: str, indices: tuple[int, ...] = (), count: int = 0) -> None:
        super().__init__(message)
        self.indices = indices
        self.count = count


class CollectiveTimeout(SwitchMLError):
    """A collective did not end in time. `ranks` are those that had not taken part; empty if they are not known."""

    def __init__(self, message: str, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ranks = ranks


class CollectiveMismatch(SwitchMLError):
    """The ranks made different calls at the same position of their streams: size, dtype, operation or order differ."""


class IntegrityError(SwitchMLError):
    """Values were corrupted on their way: the check of a result failed although all ranks made the same call."""


class WorkerLost(SwitchMLError):
    """Other ranks of the job, `ranks`, are lost."""

    def __init__(self, message: str, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ranks = ranks


class WorldChanged(WorkerLost):
    """Other ranks of the job are lost, and the job continues: the communicator is usable, in a new epoch.

    Every remaining rank gets this error at least once: from each call that was unfinished, or else from its next call.
    `ranks` are the lost ranks, with their numbers in the old epoch; empty if that epoch was only used up. `epoch`,
    `rank` and `world_size` are those of the new epoch; `joined` are the ranks whose processes are new. `completed` is
    the number of calls of the old epoch, counted from its first, that all ranks have completed. It is the same on every
    rank, so that they can agree where to continue.
    """

    def __init__(
        self,
        message: str,
        ranks: tuple[int, ...] = (),
        epoch: int = 0,
        rank: int = 0,
        world_size: int = 0,
        joined: tuple[int, ...] = (),
        completed: int = 0,
    ) -> None:
        super().__init__(message, ranks)
        self.epoch = epoch
        self.rank = rank
        self.world_size = world_size
        self.joined = joined
        self.completed = completed


class RankClosed(SwitchMLError):
    """Other ranks, `ranks`, have closed their communicators after fewer calls, so this call cannot end.

    Nothing is lost: the calls that those ranks have made are complete, and this communicator can be closed in order.
    """

    def __init__(self, message: str, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ranks = ranks


class JobEnded(SwitchMLError):
    """The job is over. `failed` is False when it was stopped or completed, True when it failed."""

    def __init__(self, message: str, failed: bool = False) -> None:
        super().__init__(message)
        self.failed = failed


class SwitchLost(SwitchMLError):
    """The switch lost the state of the job."""


class EpochSpent(SwitchMLError):
    """The job has used its slots as often as one epoch allows, and its policy does not allow another epoch."""


class AgentLost(SwitchMLError):
    """The agent on this host, which moves this rank's packets, ended."""


class CommunicatorClosed(SwitchMLError):
    """The communicator was closed, interrupted, or belongs to the process that this one was forked from."""


def with_remark(error: ErrorT, remark: str) -> ErrorT:
    """Return a copy of `error` with `remark` appended to its message."""
    clone = copy.copy(error)
    clone.args = (f"{error} {remark}",)
    return clone
