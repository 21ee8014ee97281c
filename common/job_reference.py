"""References to jobs: by id or by name, resolved by the same rule everywhere.

A text of digits is an id, so no job may have such a name; anything else is a name.
"""

from __future__ import annotations

import re

__all__ = ["is_job_name", "parse_job_reference"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ID = re.compile(r"[0-9]{1,64}")


def parse_job_reference(text: str) -> int | str:
    """Return the text as an id if it is one, else as a name."""
    return int(text) if _ID.fullmatch(text) else text


def is_job_name(text: str) -> bool:
    """Return whether a job may have this name."""
    return _NAME.fullmatch(text) is not None and isinstance(parse_job_reference(text), str)
