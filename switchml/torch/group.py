"""A process group as its ranks agree on it, and the groups of Gloo that they make."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from switchml.client import lifetime
from switchml.torch.options import Options
from switchml.torch.paths import Link
from switchml.torch.torch_version import BEFORE_2_14

__all__ = ["Group", "make_gloo"]


@dataclass(frozen=True)
class Group:
    """A process group: the properties on which its ranks agree.

    Attributes:
        name: torch's name for it; "0" is the default group.
        rank, size: this rank, and the number of ranks.
        global_ranks: its ranks as ranks of the default group.
        store: the group's store, used only for joining and for the fallback.
        timeout: the timeout of the store's operations.
        options: those of the group.
        default_link: the link of the default group; unknown if this is the default group.

    """

    name: str
    rank: int
    size: int
    global_ranks: tuple[int, ...]
    is_default: bool
    store: Any
    timeout: timedelta
    options: Options
    default_link: Link

    def __str__(self) -> str:
        which = "the default group" if self.is_default else f"group {self.name!r} of ranks {list(self.global_ranks)}"
        return f"{which} ({self.size} ranks)"


def make_gloo(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """Make a group of Gloo, the only one of this store."""
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo/", store), rank, size, timeout=timeout)
    if BEFORE_2_14:
        gloo._set_sequence_number_for_group()
    lifetime.never_destroy_in_children(gloo)
    return gloo
