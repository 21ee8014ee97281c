"""The errors of process groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch.distributed as dist

from switchml.client.errors import SwitchMLError
from switchml.common.job_numbers import rank_numbers

__all__ = ["SwitchMLBackendError", "backend_error", "forked_error", "last_error", "remember"]

_last: SwitchMLBackendError | None = None

E = TypeVar("E", bound=BaseException)


class SwitchMLBackendError(dist.DistBackendError):  # type: ignore[misc]
    """A collective, or the start of a process group, failed. It is a `torch.distributed.DistBackendError`.

    `ranks` are those that are lost or had not taken part, as ranks of the default group; empty if they are not known.
    `reason` is the name of the library's error: ``WorkerLost``, ``SwitchLost``, ``CollectiveTimeout``, ...
    """

    def __init__(self, message: str, ranks: tuple[int, ...] = (), reason: str = "") -> None:
        super().__init__(message)
        self.ranks = ranks
        self.reason = reason


def backend_error(error: BaseException, group: str, global_ranks: Sequence[int]) -> SwitchMLBackendError:
    """Return `error` of the group named `group` as an exception of torch.distributed.

    Args:
        error: the library's or Gloo's error; its `ranks`, if it has any, are ranks of the group.
        group: the name of the group in the message.
        global_ranks: the group's ranks as ranks of the default group.

    """
    if isinstance(error, SwitchMLBackendError):
        return error
    ranks = tuple(rank for rank in getattr(error, "ranks", ()) if rank < len(global_ranks))
    named = tuple(global_ranks[rank] for rank in ranks)
    where = f" These ranks are {rank_numbers(named)} in the default group." if named != ranks else ""
    kind = "" if isinstance(error, SwitchMLError) else f"{type(error).__name__}: "
    made = SwitchMLBackendError(f"switchml, {group}: {kind}{error}{where}", named, type(error).__name__)
    made.__cause__ = error
    return made


def remember(error: SwitchMLBackendError) -> None:
    """Make `last_error` return `error`, without tracebacks, because their frames would keep tensors alive."""
    global _last
    _last = _without_traceback(error)
    _last.__cause__ = _without_traceback(error.__cause__) if isinstance(error.__cause__, SwitchMLError) else None


def _without_traceback(error: E) -> E:
    """Return a copy with the same text and attributes, without calling the constructor of its class."""
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    return copied


def last_error() -> SwitchMLBackendError | None:
    """Return the error of the last failed collective of this process, or None. Destroying a group is not a failure.

    If C++ waits for a collective, as in the backward pass of DistributedDataParallel, the error arrives there as a
    `RuntimeError` with the same message. This function returns the error itself: with `ranks`, `reason`, and the
    library's error (`switchml.WorkerLost`, ...) as its `__cause__`.
    """
    return _last


def forked_error(group: str, pid: int) -> SwitchMLBackendError:
    """Return the error for a forked child of process `pid` that uses `group`, which the parent made."""
    return SwitchMLBackendError(
        f"switchml: {group} belongs to process {pid}, from which this one was forked; a rank is one process: make the "
        "group in the child instead (start it with the spawn method)",
        reason="CommunicatorClosed",
    )
