"""What can go wrong between connecting and closing, as one small hierarchy.

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
    "JobEnded",
    "SwitchLost",
    "EpochSpent",
    "AgentLost",
    "CommunicatorClosed",
]

ErrorT = TypeVar("ErrorT", bound="SwitchMLError")


class SwitchMLError(Exception):
    """Anything this library raises on its own account; wrong arguments are `ValueError` and `TypeError` as usual."""


class ConnectError(SwitchMLError):
    """No communicator could be made.

    `reason` is the agent's word for it (``UnknownJob``, ``RankTaken``, ``WrongWorldSize``, ``VersionMismatch``,
    ``JobEnded``, ``RankElsewhere``, ``BadRequest``), or empty when no agent answered. Where the job was to be created
    it may also be the controller's: ``MissingRanks`` (not all came in time), or the name of its error (``NoRoom``,
    ``NoAgent``, ``SwitchUnavailable``, ``JobExists``, ``ControllerUnavailable``, ``InvalidRequest``, ...).
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class UnsupportedTensor(SwitchMLError, TypeError):
    """The array cannot be used in place: its type, dtype, layout or access. Nothing was sent; it is unchanged."""


class NonFiniteError(SwitchMLError):
    """A rank contributed NaN or infinity.

    Every rank gets this error with the same places. The result is NaN in those places and right everywhere else, and
    the communicator remains usable.
    `count` is the number of places, `indices` the first of them (at most 16) in the flattened array.
    """

    def __init__(self, message: str, indices: tuple[int, ...] = (), count: int = 0) -> None:
        super().__init__(message)
        self.indices = indices
        self.count = count


class CollectiveTimeout(SwitchMLError):
    """A collective did not end in time. `ranks` are those that had not taken part; empty when that is not known."""

    def __init__(self, message: str, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ranks = ranks


class CollectiveMismatch(SwitchMLError):
    """The ranks made different calls at the same place of their streams: size, dtype, operation or order differ."""


class IntegrityError(SwitchMLError):
    """Values were changed on their way: the check of a result does not fit although all ranks made the same call."""


class WorkerLost(SwitchMLError):
    """Other ranks of the job are gone. `ranks` are those."""

    def __init__(self, message: str, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ranks = ranks


class WorldChanged(WorkerLost):
    """Other ranks of the job are gone, and the job goes on: the communicator is usable, in a new epoch.

    Every rank that goes on gets this error once at least: from each call that was under way, else from its next one.
    `ranks` are those that were lost, with their numbers in the epoch before; none where the epoch was used up. `epoch`,
    `rank` and `world_size` are those of now; `joined` are the ranks whose processes begin anew. `completed` calls of
    the epoch before have been completed by all, counted from its first: it is the same number at every rank, so that
    they can agree where to go on.
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


class JobEnded(SwitchMLError):
    """The job is over. `failed` is False when it was stopped or completed, True when it failed."""

    def __init__(self, message: str, failed: bool = False) -> None:
        super().__init__(message)
        self.failed = failed


class SwitchLost(SwitchMLError):
    """The switch lost the state of the job."""


class EpochSpent(SwitchMLError):
    """The job has used its slots as often as one epoch allows, and was not started to go on in another one."""


class AgentLost(SwitchMLError):
    """The agent on this host, which moves this rank's packets, ended."""


class CommunicatorClosed(SwitchMLError):
    """The communicator was closed, interrupted, or belongs to the process that this one was forked from."""


def with_remark(error: ErrorT, remark: str) -> ErrorT:
    """Return a fresh copy of `error` whose message goes on with `remark`."""
    clone = copy.copy(error)
    clone.args = (f"{error} {remark}",)
    return clone
