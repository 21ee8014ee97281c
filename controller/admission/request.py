"""Requests for jobs, and the ids of new jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from switchml.common.job_numbers import MAX_PRIORITY, MAXIMUM_AGGREGATORS, MINIMUM_SLOTS, is_power_of_two
from switchml.common.names import NAME_RULE, is_job_name, is_name
from switchml.controller.errors import InvalidRequest, NoRoom
from switchml.controller.records import OnFailure
from switchml.dataplane.constants import PROTOCOL_MAX_JOBS, PROTOCOL_MAX_SLOT_INDEX, PROTOCOL_MAX_WORLD

__all__ = ["JobRequest", "next_job_id"]


@dataclass(frozen=True)
class JobRequest:
    """A request for a job; an empty name or switch and 0 slots leave the choice to the controller."""

    workers: int
    name: str = ""
    slots: int = 0
    switch: str = ""
    on_failure: int = OnFailure.ABORT  # or 0, which means the same
    tenant: str = ""
    priority: int = 0
    aggregators: tuple[str, ...] = ()  # names of switches that share the job's slots, in place of `switch`
    adds_floats: bool = False  # all of its switches must add floats as such

    def validate(self) -> None:
        """Check every value.

        Raises:
            InvalidRequest: one is not allowed.

        """
        if not 1 <= self.workers <= PROTOCOL_MAX_WORLD:
            raise InvalidRequest(
                f"a job has 1 to {PROTOCOL_MAX_WORLD} workers, not {self.workers}",
                workers=self.workers,
                workers_maximum=PROTOCOL_MAX_WORLD,
            )
        if self.name and not is_job_name(self.name):
            raise InvalidRequest(f"job name {self.name[:80]!r} must be {NAME_RULE}, and more than a number")
        highest = PROTOCOL_MAX_SLOT_INDEX + 1
        if self.slots and not (is_power_of_two(self.slots) and MINIMUM_SLOTS <= self.slots <= highest):
            raise InvalidRequest(
                f"slots must be a power of two from {MINIMUM_SLOTS} to {highest}, not {self.slots}",
                slots_asked=self.slots,
                slots_minimum=MINIMUM_SLOTS,
                slots_maximum=highest,
            )
        if self.on_failure not in {0, *OnFailure}:
            raise InvalidRequest(f"on_failure is {self.on_failure}; it must be 1 (abort), 2 (shrink) or 3 (restart)")
        if not 0 <= self.priority <= MAX_PRIORITY:
            raise InvalidRequest(f"priority is {self.priority}; it must be from 0 to {MAX_PRIORITY} (the most urgent)")
        self._validate_aggregators()

    def _validate_aggregators(self) -> None:
        names = self.aggregators
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
        if names and self.switch:
            raise InvalidRequest(
                f"a job is on switch {self.switch} with its tree, or over the aggregators {', '.join(names)}; give one"
                " of the two"
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
