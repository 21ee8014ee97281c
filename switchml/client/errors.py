"""The exceptions of this library.

Every message says what happened, to what, what to do about it and what the array of the call holds afterwards. The
paragraphs of the docstrings that begin with Arrays and Remedy say so of every error; docs/reference/errors.md has them.
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
    """Base class of this library's exceptions. Wrong arguments raise `ValueError` and `TypeError` as usual.

    Arrays: the array of a call that was in flight is undefined, and that of a call that was not started is unchanged;
    the message says which. The errors below say where it is different.

    Remedy: unless an error below says otherwise, the communicator is not usable any more, and every later call raises
    the same error. Close it, and start the job again from the last checkpoint.
    """


class ConnectError(SwitchMLError):
    """No communicator could be made.

    `reason` is the agent's name for the error (``UnknownJob``, ``RankTaken``, ``WrongWorldSize``, ``VersionMismatch``,
    ``JobEnded``, ``RankElsewhere``, ``BadRequest``), or empty if no agent answered. If the job should have been
    created, it may also come from the controller: ``MissingRanks`` (not all came in time), or the name of its error
    (``NoRoom``, ``NoAgent``, ``SwitchUnavailable``, ``JobExists``, ``ControllerUnavailable``, ``InvalidRequest``, ...).

    Arrays: none was involved.

    Remedy: the message says what is missing. `switchml-ctl doctor` checks this machine, and `switchml-ctl status` the
    fabric. Where the controller has refused the job, the reasons are those of its errors.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class UnsupportedTensor(SwitchMLError, TypeError):
    """The type, dtype, layout or access of the array is not supported.

    Arrays: unchanged; nothing was sent, and the communicator remains usable.

    Remedy: convert the array, or pass a contiguous copy; the message names a way. The other ranks wait for this call:
    make it with an array that is supported, or close the communicator.
    """


class NonFiniteError(SwitchMLError):
    """A rank contributed NaN or infinity.

    Every rank gets this error with the same indices.
    `count` is the number of such elements, `indices` the first of them (at most 16) in the flattened array.

    Arrays: the result is NaN at those indices and correct everywhere else. The communicator remains usable.

    Remedy: skip the step, as a loss scaler does, or find the rank and the layer that made the value.
    """

    def __init__(self, message: str, indices: tuple[int, ...] = (), count: int = 0) -> None:
        super().__init__(message)
        self.indices = indices
        self.count = count


class CollectiveTimeout(SwitchMLError):
    """A collective did not end in time. `ranks` are those that had not taken part; empty if they are not known.

    Arrays: undefined.

    Remedy: look at those ranks: a rank that is still busy needs a longer `timeout`, one that waits for something else
    a look at its stack. `switchml-ctl job status` names the rank that lags. Then start the job again.
    """

    def __init__(self, message: str, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ranks = ranks


class CollectiveMismatch(SwitchMLError):
    """The ranks made different calls at the same position of their streams: size, dtype, operation or order differ.

    Arrays: undefined.

    Remedy: the message has this rank's call and that of another one. Make the same calls in the same order on all
    ranks; often a branch depends on the rank, or one thread makes calls that others do not expect. Then start the job
    again.
    """


class IntegrityError(SwitchMLError):
    """Values were corrupted on their way: the check of a result failed although all ranks made the same call.

    Arrays: undefined.

    Remedy: start the job again. If it happens again, check memory, cables and switches on the path between the ranks:
    checksums of links do not see such changes (docs/understand/integrity.md).
    """


class WorkerLost(SwitchMLError):
    """Other ranks of the job, `ranks`, are lost: their processes, hosts or agents ended.

    Arrays: undefined if the call was in flight, otherwise unchanged.

    Remedy: read the logs of those ranks (`switchml-ctl job logs JOB --rank N`), and start the job again. With the
    policy shrink or restart a job continues without them (docs/guides/failures.md).
    """

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

    Arrays: undefined if the call was in flight; calls up to `completed` have their results on every rank.

    Remedy: agree on a step that all ranks still have the data of, and go on with the same communicator
    (docs/guides/failures.md has the loop).
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

    Arrays: undefined if the call was in flight, otherwise unchanged.

    Remedy: close this communicator. If more calls were meant, let all ranks make the same number of calls.
    """

    def __init__(self, message: str, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ranks = ranks


class JobEnded(SwitchMLError):
    """The job is over. `failed` is False when it was stopped or completed, True when it failed.

    Arrays: undefined if the call was in flight, otherwise unchanged.

    Remedy: `switchml-ctl events --job JOB` says who stopped it, or why it failed. Start it again.
    """

    def __init__(self, message: str, failed: bool = False) -> None:
        super().__init__(message)
        self.failed = failed


class SwitchLost(SwitchMLError):
    """The switch lost the state of the job: it restarted, or the controller cannot reach it any more.

    Arrays: undefined if the call was in flight, otherwise unchanged.

    Remedy: start the job again. `switchml-ctl switch list` shows whether the switch is back; PyTorch's groups can go on
    over Gloo instead, with the option `fallback`.
    """


class EpochSpent(SwitchMLError):
    """The job has used its slots as often as one epoch allows, and its policy does not allow another epoch.

    Arrays: undefined if the call was in flight, otherwise unchanged.

    Remedy: start the job again, with more slots (`--slots`), or with `--on-failure shrink` or `restart`, under which it
    goes on in a new epoch.
    """


class AgentLost(SwitchMLError):
    """The agent on this host, which moves this rank's packets, ended.

    Arrays: undefined if the call was in flight, otherwise unchanged.

    Remedy: the agent's log says why. Start it again, then the job.
    """


class CommunicatorClosed(SwitchMLError):
    """The communicator was closed, interrupted, or belongs to the process that this one was forked from.

    Arrays: undefined if the call was in flight, otherwise unchanged.

    Remedy: after a close, connect again. In a child of fork, connect in the child instead, or start it with the method
    spawn.
    """


def with_remark(error: ErrorT, remark: str) -> ErrorT:
    """Return a copy of `error` with `remark` appended to its message."""
    clone = copy.copy(error)
    clone.args = (f"{error} {remark}",)
    return clone
