"""What a process group raises when the network fails it."""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist

from switchml.errors import SwitchMLError

__all__ = ["SwitchMLBackendError", "backend_error", "forked_error"]


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


def forked_error(group: str, pid: int) -> SwitchMLBackendError:
    """Return what a child of process `pid` is told that uses `group`, which that process made."""
    return SwitchMLBackendError(
        f"switchml: {group} belongs to process {pid}, from which this one was forked; a rank is one process: make the "
        "group in the child instead (start it with the spawn method)",
        reason="CommunicatorClosed",
    )
