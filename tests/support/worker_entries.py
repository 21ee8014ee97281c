"""Keys of worker_table, as a controller would write them for ranks that are reached over UDP."""

from __future__ import annotations

from switchml.dataplane.constants import Kind
from switchml.dataplane.softswitch._native import WorkerMatch


def slots_of(base: int, slots: int) -> tuple[int, int]:
    """Return value and mask of a slot range."""
    return base << 1, ~(2 * slots - 1) & 0xFFFF


def worker_match(
    port: int,
    source: tuple[int, int],
    job: int,
    worker: int,
    slots: tuple[int, int],
    *,
    eth_src: int = 0,
    priority: int = 1,
) -> WorkerMatch:
    """Return the key for CONTRIBUTIONs from `source`, an IPv4 address and a UDP port; `slots` are value and mask."""
    return WorkerMatch(
        port=port,
        eth_src=eth_src,
        ipv4_src=source[0],
        sender=source[1],
        job=job,
        worker=worker,
        slot_value=slots[0],
        slot_mask=slots[1],
        priority=priority,
        kind=Kind.CONTRIBUTION,
    )
