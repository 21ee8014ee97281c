"""How an agent moves the processes of a job to its next epoch (docs/protocol.md, "A change of epoch")."""

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
    """Tell whether an assignment is the next epoch of a job that is here."""
    return assignment.HasField("succession") and assignment.succession.previous_epoch == held.assignment.epoch


def have_reached(positions: pb.Positions, quiesce: pb.Quiesce) -> bool:
    """Tell whether all ranks hold what they shall."""
    return all(
        phase >= target for rank in positions.ranks for phase, target in zip(rank.phases, quiesce.targets, strict=True)
    )


def switch_over(old: LocalJob, new: LocalJob, record: _Record) -> None:
    """Give each process of the old epoch its rank in the new one.

    What became of processes that have gone meanwhile is recorded of their new ranks. Those that the new epoch has no
    rank for are told that they were taken for lost.
    """
    succession = new.assignment.succession
    for number, before in zip(new.assignment.ranks, succession.previous_ranks, strict=True):
        rank, previous = new.ranks[number], old.ranks.get(before)
        if previous is None:
            continue  # its process is still to come
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
            continue  # it waits for its rank still, and will get this one
        rank.attached = True
        record(rank, pb.RankEvent.KIND_ATTACHED, f"process {process.pid}")
        process.move(new, rank, rank.take_descriptors())
    for previous in old.ranks.values():
        process, previous.process = previous.process, None
        if process is not None:
            process.fail(Failure("WorkerLost", (previous.rank,), f"this rank was taken for lost: {succession.message}"))
    _log.info("%s: follows on epoch %d", new, succession.previous_epoch)
