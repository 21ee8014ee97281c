"""The names of jobs, agents and switches, and how people and programs refer to a job.

A job is referred to by its id or by its name, by one rule wherever a job is named: digits alone are an id, so that no
job may have such a name; anything else is a name.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["NAME_RULE", "is_job_name", "is_name", "names_in_list", "parse_job_reference"]

NAME_RULE: Final = "1 to 64 of A-Z a-z 0-9 _ . -, and not begin with -"
"""The rule for names, for messages: a name must be ..."""

_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}")  # commands would take -x for an option
_ID = re.compile(r"[0-9]{1,64}")


def is_name(text: str) -> bool:
    """Return whether an agent or a switch may have this name."""
    return _NAME.fullmatch(text) is not None


def is_job_name(text: str) -> bool:
    """Return whether a job may have this name."""
    return is_name(text) and isinstance(parse_job_reference(text), str)


def names_in_list(text: str) -> tuple[str, ...]:
    """Return the names of switches in a text like "s1,s2"; none if it is empty.

    Raises:
        ValueError: one is not a name, or there twice.

    """
    names = tuple(name.strip() for name in text.split(",")) if text.strip() else ()
    for name in names:
        if not is_name(name):
            raise ValueError(f"{name!r} in {text!r} is not the name of a switch; give names separated by commas")
        if names.count(name) > 1:
            raise ValueError(f"{text!r} has {name} {names.count(name)} times; name each switch once")
    return names


def parse_job_reference(text: str) -> int | str:
    """Return the id that `text` is, or the name."""
    return int(text) if _ID.fullmatch(text) else text
