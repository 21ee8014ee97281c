"""Ranks of an engine that no agent has opened."""

from __future__ import annotations

from typing import Any

from switchml.host_agent._engine import RankAssignment


def rank_assignment(job: int, rank: int, world_size: int, **members: Any) -> RankAssignment:
    """Return a rank of epoch 1 on this machine; its switch is at a port where none listens, unless it is given."""
    local = {"address": "127.0.0.1", "switch_address": "127.0.0.1", "switch_udp_port": 9, "slot_base": 0, "epoch": 1}
    return RankAssignment(job=job, rank=rank, worker=rank, world_size=world_size, **{**local, **members})
