"""Move the processes of a job to its next epoch (docs/protocol.md, "Epoch change")."""

from __future__ import annotations

import logging
from collections.abc import Callable

from switchml.controller.proto import switchml_pb2 as pb
from switchml.host_agent.local_job import LocalJob, LocalRank
from switchml.host_agent.messages import Failure

__all__ = ["follows", "have_reached", "switch_over"]

_log = logging.getLogger(__name__)

_Record = Callable[[LocalRank, "pb.RankEvent.Kind", str], None]


def follows(held: LocalJob, assignment: pb.Assignment) -> bool:
    """Return whether an assignment is the next epoch of a job that this agent has."""
    return assignment.HasField("succession") and assignment.succession.previous_epoch == held.assignment.epoch


def have_reached(positions: pb.Positions, quiesce: pb.Quiesce) -> bool:
    """Return whether all ranks hold the target number of phases."""
    return all(
        phase >= target for rank in positions.ranks for phase, target in zip(rank.phases, quiesce.targets, strict=True)
    )


def switch_over(old: LocalJob, new: LocalJob, record: _Record) -> None:
    """Give each process of the old epoch its rank in the new one.

    Processes that have ended during the change are recorded as ended at their new ranks. Processes without a rank in
    the
    new epoch are told that they were declared lost.
    """
    succession = new.assignment.succession
    for number, before in zip(new.assignment.ranks, succession.previous_ranks, strict=True):
        rank, previous = new.ranks[number], old.ranks.get(before)
        if previous is None:
            continue  # its process has not attached yet
        process, previous.process = previous.process, None
        if process is None:
            if previous.attached:
                rank.attached = True
                closed = any(event.kind == pb.RankEvent.KIND_CLOSED for event in previous.events)
                why = next((event.detail for event in previous.events if event.kind == pb.RankEvent.KIND_LOST), "")
                record(rank, pb.RankEvent.KIND_CLOSED if closed else pb.RankEvent.KIND_LOST, why)
            continue
        rank.process = process
        if not previous.attached:
            continue  # its process still waits for its rank, and will get this one
        rank.attached = True
        record(rank, pb.RankEvent.KIND_ATTACHED, f"process {process.pid}")
        process.move(new, rank, rank.take_descriptors())
    for previous in old.ranks.values():
        process, previous.process = previous.process, None
        if process is not None:
            process.fail(Failure("WorkerLost", (previous.rank,), f"this rank was declared lost: {succession.message}"))
    _log.info("%s: continues in epoch %d", new, succession.previous_epoch)
