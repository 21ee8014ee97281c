"""Check the controller's assignments before anything is opened for them."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Final

from switchml.common.job_numbers import MAX_PRIORITY, MAXIMUM_AGGREGATORS
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import (
    PROTOCOL_MAX_JOBS,
    PROTOCOL_MAX_SLOT_INDEX,
    PROTOCOL_MAX_VALUES,
    PROTOCOL_MAX_WORKERS,
    PROTOCOL_MAX_WORLD,
)
from switchml.host_agent.errors import AssignmentRefused

__all__ = ["check_assignment"]

_CHECK_KEY_BYTES: Final = 16


def check_assignment(assignment: pb.Assignment, agent: str, taken: int, max_ranks: int) -> None:
    """Check that `agent`, with `taken` ranks of other jobs and room for `max_ranks`, can carry an assignment out.

    Raises:
        AssignmentRefused: it cannot; the message says why.

    """
    ranks = list(assignment.ranks)
    numbers = list(assignment.wire_workers) or ranks
    last_slot = assignment.slot_base + assignment.slots - 1
    previous = len(assignment.succession.previous_ranks)
    requirements = (
        (0 < assignment.job < PROTOCOL_MAX_JOBS, f"job id {assignment.job}"),
        (0 < assignment.epoch < 2**16, f"epoch {assignment.epoch}"),
        (0 < assignment.world_size <= PROTOCOL_MAX_WORLD, f"world size {assignment.world_size}"),
        (0 < len(ranks) == len(set(ranks)), f"ranks {ranks}"),
        (max(ranks, default=0) < assignment.world_size, f"ranks {ranks} of {assignment.world_size}"),
        (
            max(numbers, default=0) < PROTOCOL_MAX_WORKERS,
            f"rank {max(numbers, default=0)} directly below one switch, which tells at most {PROTOCOL_MAX_WORKERS}"
            " ranks apart",
        ),
        (previous == (len(ranks) if assignment.HasField("succession") else 0), f"{previous} previous ranks"),
        (assignment.slots > 0 and last_slot <= PROTOCOL_MAX_SLOT_INDEX, f"slots up to {last_slot}"),
        (0 < assignment.values_per_packet <= PROTOCOL_MAX_VALUES, f"{assignment.values_per_packet} values a packet"),
        (0 < assignment.switch_udp_port < 2**16, f"UDP port {assignment.switch_udp_port} of the switch"),
        (
            not assignment.multicast_address or _is_multicast(assignment.multicast_address),
            f"multicast address {assignment.multicast_address!r}",
        ),
        (
            len(assignment.workers) == len(ranks) or not assignment.generation,
            f"{len(assignment.workers)} process numbers for {len(ranks)} ranks",
        ),
        (
            len(assignment.wire_workers) in (0, len(ranks)) and len(set(assignment.wire_workers)) in (0, len(ranks)),
            f"numbers {numbers} in the packets of ranks {ranks}",
        ),
        (len(assignment.check_key) == _CHECK_KEY_BYTES, f"a check key of {len(assignment.check_key)} bytes"),
        (assignment.priority <= MAX_PRIORITY, f"priority {assignment.priority}"),
        (_is_ipv4(assignment.switch_address), f"address {assignment.switch_address!r} of the switch"),
        (
            len(assignment.aggregators) <= min(assignment.slots, MAXIMUM_AGGREGATORS),
            f"{len(assignment.aggregators)} aggregators of {assignment.slots} slots; {MAXIMUM_AGGREGATORS} is the most",
        ),
        *(
            (_is_ipv4(one.address) and 0 < one.udp_port < 2**16, f"aggregator {one.address!r}, UDP port {one.udp_port}")
            for one in assignment.aggregators
        ),
        (
            taken + len(ranks) <= max_ranks,
            f"{len(ranks)} ranks in addition to {taken} of other jobs, with {max_ranks} allowed (--max-ranks)",
        ),
    )
    for holds, what in requirements:
        if not holds:
            raise AssignmentRefused(f"agent {agent} cannot take job {assignment.job} with {what}")


def _is_multicast(text: str) -> bool:
    return _is_ipv4(text) and IPv4Address(text).is_multicast


def _is_ipv4(text: str) -> bool:
    try:
        IPv4Address(text)
    except ValueError:
        return False
    return True
