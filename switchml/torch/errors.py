"""What a process group raises when the network fails it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch.distributed as dist

from switchml.errors import SwitchMLError

__all__ = ["SwitchMLBackendError", "backend_error", "forked_error", "last_error", "remember"]

_last: SwitchMLBackendError | None = None

E = TypeVar("E", bound=BaseException)


class SwitchMLBackendError(dist.DistBackendError):  # type: ignore[misc]
    """A collective, or the start of a process group, failed. It is a `torch.distributed.DistBackendError`.

    `ranks` are those that are lost or had not taken part, as ranks of the default group; empty where none are known.
    `reason` is the name of the library's error: ``WorkerLost``, ``SwitchLost``, ``CollectiveTimeout``, ...
    """

    def __init__(self, message: str, ranks: tuple[int, ...] = (), reason: str = "") -> None:
        super().__init__(message)
        self.ranks = ranks
        self.reason = reason


def backend_error(error: BaseException, group: str, global_ranks: Sequence[int]) -> SwitchMLBackendError:
    """Return `error` of the group named `group` as torch's callers expect it.

    Args:
        error: the library's or Gloo's error; its `ranks`, if it has any, are ranks of the group.
        group: how the message names the group.
        global_ranks: the group's ranks as ranks of the default group.

    """
    if isinstance(error, SwitchMLBackendError):
        return error
    ranks = tuple(rank for rank in getattr(error, "ranks", ()) if rank < len(global_ranks))
    named = tuple(global_ranks[rank] for rank in ranks)
    where = f" These ranks are {', '.join(map(str, named))} in the default group." if named != ranks else ""
    kind = "" if isinstance(error, SwitchMLError) else f"{type(error).__name__}: "
    made = SwitchMLBackendError(f"switchml, {group}: {kind}{error}{where}", named, type(error).__name__)
    made.__cause__ = error
    return made


def remember(error: SwitchMLBackendError) -> None:
    """Let `last_error` return `error`, without the tracebacks, whose frames would keep tensors alive."""
    global _last
    _last = _without_traceback(error)
    _last.__cause__ = _without_traceback(error.__cause__) if isinstance(error.__cause__, SwitchMLError) else None


def _without_traceback(error: E) -> E:
    """Return a copy with the same text and attributes, whatever arguments its class takes."""
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    return copied


def last_error() -> SwitchMLBackendError | None:
    """Return why a collective of this process last failed; None if none has. To destroy a group is not a failure.

    Where C++ waits for a collective, as the backward pass of DistributedDataParallel does, its error arrives as a
    `RuntimeError` with the same words. This is the error itself: with `ranks`, `reason`, and the library's error
    (`switchml.WorkerLost`, ...) as its `__cause__`.
    """
    return _last


def forked_error(group: str, pid: int) -> SwitchMLBackendError:
    """Return what a child of process `pid` is told that uses `group`, which that process made."""
    return SwitchMLBackendError(
        f"switchml: {group} belongs to process {pid}, from which this one was forked; a rank is one process: make the "
        "group in the child instead (start it with the spawn method)",
        reason="CommunicatorClosed",
    )
