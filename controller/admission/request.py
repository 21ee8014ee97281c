"""What a client may ask for, and the id that a new job gets."""

from __future__ import annotations

from switchml.common.names import is_job_name
from switchml.common.slot_counts import MINIMUM_SLOTS, is_power_of_two
from switchml.controller.errors import InvalidRequest, NoRoom
from switchml.controller.records import OnFailure
from switchml.dataplane.constants import PROTOCOL_MAX_JOBS, PROTOCOL_MAX_SLOT_INDEX, PROTOCOL_MAX_WORKERS

__all__ = ["next_job_id", "validate_job"]


def validate_job(workers: int, name: str, slots: int, on_failure: int = 0) -> None:
    """Check what a client asks for; an empty name and 0 slots ask for the controller's choice.

    Raises:
        InvalidRequest: a value is not allowed.

    """
    if not 1 <= workers <= PROTOCOL_MAX_WORKERS:
        raise InvalidRequest(
            f"a job has 1 to {PROTOCOL_MAX_WORKERS} workers, not {workers}",
            workers=workers,
            workers_maximum=PROTOCOL_MAX_WORKERS,
        )
    if name and not is_job_name(name):
        raise InvalidRequest(f"job name {name[:80]!r} must be 1 to 64 of A-Z a-z 0-9 _ . - and more than a number")
    highest = PROTOCOL_MAX_SLOT_INDEX + 1
    if slots and not (is_power_of_two(slots) and MINIMUM_SLOTS <= slots <= highest):
        raise InvalidRequest(
            f"slots must be a power of two from {MINIMUM_SLOTS} to {highest}, not {slots}",
            slots_asked=slots,
            slots_minimum=MINIMUM_SLOTS,
            slots_maximum=highest,
        )
    if on_failure not in {0, *OnFailure}:
        raise InvalidRequest(f"on_failure is {on_failure}; it must be 1 (abort), 2 (shrink) or 3 (restart)")


def next_job_id(last: int, used: set[int]) -> int:
    """Return the first id after `last`, going round, that no live job has: an id rests as long as possible.

    Raises:
        NoRoom: all are in use.

    """
    highest = PROTOCOL_MAX_JOBS - 1
    for step in range(1, highest + 1):
        candidate = (last + step - 1) % highest + 1
        if candidate not in used:
            return candidate
    raise NoRoom(f"all {highest} job ids are in use; stop a job", job_ids=highest)
