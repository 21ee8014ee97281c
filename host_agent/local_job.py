"""A job and its ranks on this host."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from switchml.common.job_numbers import seconds_to_open
from switchml.controller.proto import switchml_pb2 as pb
from switchml.host_agent.messages import JobFailure, RanksClosed

if TYPE_CHECKING:
    from switchml.host_agent._engine import RankStatus

__all__ = ["LocalJob", "LocalRank", "Process"]


class Process(Protocol):
    """A training process that is attached to a rank."""

    @property
    def pid(self) -> int:
        """The process id."""

    def fail(self, failure: JobFailure) -> None:
        """Tell the process that its job has ended. Does not wait, and raises nothing."""

    def ranks_closed(self, closed: RanksClosed) -> None:
        """Tell the process that other ranks have closed. As `fail`."""

    def move(self, job: LocalJob, rank: LocalRank, descriptors: Sequence[int]) -> None:
        """Tell the process that it is `rank` in a new epoch of its job. Closes `descriptors`; otherwise as `fail`."""


@dataclass
class LocalRank:
    """A rank that runs, or may run, on this host."""

    rank: int
    sender: int  # its UDP port, or its queue pair plus 2^24
    handle: int | None  # of the engine; None once the rank has ended
    status: RankStatus  # as last read from the engine
    descriptors: tuple[int, ...] = ()  # of its memory and doorbell, until its process gets them
    process: Process | None = None
    attached: bool = False  # now or before: each rank can be attached to once per epoch
    events: list[pb.RankEvent] = field(
        default_factory=list
    )  # everything that the controller must know, also after its restart

    def take_descriptors(self) -> tuple[int, ...]:
        """Hand out the descriptors for the process, once; the caller closes them."""
        descriptors, self.descriptors = self.descriptors, ()
        return descriptors


@dataclass
class LocalJob:
    """One epoch of a job, as far as it concerns this host."""

    assignment: pb.Assignment
    ranks: dict[int, LocalRank]
    activated: asyncio.Event = field(default_factory=asyncio.Event)
    closed: RanksClosed | None = None  # the ranks that have closed first
    failure: JobFailure | None = None  # set when the job has ended
    successor: LocalJob | None = None  # the job in the next epoch, until that is active
    replaced: asyncio.Event = field(default_factory=asyncio.Event)  # set when a successor takes over, or the job ends

    @property
    def name(self) -> str:
        """The name that users gave the job."""
        return self.assignment.name

    @property
    def activation_seconds(self) -> float:
        """Seconds that processes wait for the job's activation, while other agents may still open ranks."""
        job = self.assignment
        return seconds_to_open(job.world_size, job.slots, job.values_per_packet)

    def __str__(self) -> str:
        return f"job {self.assignment.job} ({self.name!r}, epoch {self.assignment.epoch})"
