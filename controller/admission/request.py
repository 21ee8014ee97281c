"""Requests for jobs, and the ids of new jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from switchml.common.job_numbers import MAX_PRIORITY, MAXIMUM_AGGREGATORS, MINIMUM_SLOTS, is_power_of_two
from switchml.common.names import NAME_RULE, is_job_name, is_name
from switchml.controller.admission.placement import Placement
from switchml.controller.errors import InvalidRequest, NoRoom
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import OnFailure
from switchml.dataplane.constants import PROTOCOL_MAX_JOBS, PROTOCOL_MAX_SLOT_INDEX, PROTOCOL_MAX_WORLD

__all__ = ["JobRequest", "next_job_id", "validate"]


@dataclass(frozen=True)
class JobRequest:
    """A request for a job; `placement` has the agents of its ranks if their processes wait there already."""

    options: pb.StartJobRequest
    tenant: str = ""
    placement: Placement | None = None


def validate(options: pb.StartJobRequest) -> None:
    """Check the options of a job.

    Raises:
        InvalidRequest: one is not allowed.

    """
    if not 1 <= options.workers <= PROTOCOL_MAX_WORLD:
        raise InvalidRequest(
            f"a job has 1 to {PROTOCOL_MAX_WORLD} workers, not {options.workers}",
            workers=options.workers,
            workers_maximum=PROTOCOL_MAX_WORLD,
        )
    if options.name and not is_job_name(options.name):
        raise InvalidRequest(f"job name {options.name[:80]!r} must be {NAME_RULE}, and more than a number")
    highest = PROTOCOL_MAX_SLOT_INDEX + 1
    if options.slots and not (is_power_of_two(options.slots) and MINIMUM_SLOTS <= options.slots <= highest):
        raise InvalidRequest(
            f"slots must be a power of two from {MINIMUM_SLOTS} to {highest}, not {options.slots}",
            slots_asked=options.slots,
            slots_minimum=MINIMUM_SLOTS,
            slots_maximum=highest,
        )
    if options.on_failure not in {0, *OnFailure}:
        raise InvalidRequest(f"on_failure is {options.on_failure}; it must be 1 (abort), 2 (shrink) or 3 (restart)")
    if options.priority > MAX_PRIORITY:
        raise InvalidRequest(f"priority is {options.priority}; it must be from 0 to {MAX_PRIORITY} (the most urgent)")
    _validate_aggregators(list(options.aggregators), options.switch)


def _validate_aggregators(names: list[str], switch: str) -> None:
    if len(names) > MAXIMUM_AGGREGATORS:
        raise InvalidRequest(
            f"an agent serves at most {MAXIMUM_AGGREGATORS} aggregators of a job, not {len(names)}; name fewer, and"
            " give each one more shards (switchml-switch --shards)",
            aggregators=len(names),
            aggregators_maximum=MAXIMUM_AGGREGATORS,
        )
    for name in names:
        if not is_name(name):
            raise InvalidRequest(f"aggregator {name[:80]!r} is not a switch's name: it must be {NAME_RULE}")
        if names.count(name) > 1:
            raise InvalidRequest(f"aggregator {name} is named {names.count(name)} times; name each one once")
    if names and switch:
        raise InvalidRequest(
            f"a job is on switch {switch} with its tree, or over the aggregators {', '.join(names)}; give one of the"
            " two"
        )


def next_job_id(last: int, used: Mapping[int, str], tenant: str) -> int:
    """Return the next id after `last`, wrapping around, that no live job has; so an id is reused as late as possible.

    `used` has the tenant of each id in use. A tenant may have as many ids as it leaves to all others.

    Raises:
        NoRoom: all are in use, or the tenant has as many as are left.

    """
    highest = PROTOCOL_MAX_JOBS - 1
    mine, left = list(used.values()).count(tenant), highest - len(used)
    if 0 < left <= mine:
        whose = f"tenant {tenant}" if tenant else "no tenant"
        raise NoRoom(
            f"jobs of {whose} have {mine} of the {highest} job ids, and the last {left} are for others; stop a job",
            job_ids=highest,
        )
    for step in range(1, highest + 1):
        candidate = (last + step - 1) % highest + 1
        if candidate not in used:
            return candidate
    raise NoRoom(f"all {highest} job ids are in use; stop a job", job_ids=highest)
