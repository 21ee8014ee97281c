"""The interface of what orders tensors: which piece of which gradients travels next.

A scheduler sees one backward pass on rank 0. `agreed_order` carries its choices to all ranks and submits the pieces;
`priority` has the first scheduler.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

import torch

__all__ = ["Bucket", "Partition", "Scheduler"]


class Bucket(Protocol):
    """The part of `torch.distributed.GradBucket` that is used here."""

    def index(self) -> int:
        """Return the bucket's number, the same on all ranks."""

    def buffer(self) -> torch.Tensor:
        """Return the flat tensor of its gradients."""

    def is_last(self) -> bool:
        """Tell whether no bucket of this backward pass has a higher number."""


@dataclass(frozen=True)
class Partition:
    """A piece of a bucket that is submitted at once."""

    bucket: int
    start: int  # element
    elements: int


class Scheduler(Protocol):
    """Chooses the order of the partitions of one backward pass. `ready` comes from another thread than the rest."""

    def ready(self, bucket: Bucket) -> None:
        """Take a bucket whose gradients are there; it may be cut up and overtaken."""

    @property
    def waits(self) -> bool:
        """Whether anything of the buckets that are ready has yet to be chosen."""

    def may_start(self, in_flight: Collection[Partition]) -> bool:
        """Tell whether another partition may be chosen while the submitted ones `in_flight` have not ended."""

    def next(self) -> Partition | None:
        """Choose what travels next; None where nothing waits."""
