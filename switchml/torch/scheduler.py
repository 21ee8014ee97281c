"""The interface of schedulers, which choose the partition of gradients that is sent next.

A scheduler serves one backward pass on rank 0. `agreed_order` sends its choices to all ranks and submits the
partitions; `priority` has the first implementation.
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
        """Return whether no bucket of this backward pass has a higher number."""


@dataclass(frozen=True)
class Partition:
    """A part of a bucket that is submitted as one call."""

    bucket: int
    start: int  # its first element
    elements: int


class Scheduler(Protocol):
    """Chooses the order of the partitions of one backward pass. One thread calls `ready`, another the other methods."""

    def ready(self, bucket: Bucket) -> None:
        """Add a bucket whose gradients are ready; it may be cut, and later buckets may be chosen before it."""

    @property
    def waits(self) -> bool:
        """True if there is a ready bucket that is not completely assigned to partitions yet."""

    def may_start(self, in_flight: Collection[Partition]) -> bool:
        """Return whether another partition may be chosen while the submitted ones `in_flight` have not ended."""

    def next(self) -> Partition | None:
        """Return the next partition; None if nothing waits."""
