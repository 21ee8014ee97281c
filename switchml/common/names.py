"""The names of jobs, agents and switches, and how people and programs refer to a job.

A job is referred to by its id or by its name, by one rule wherever a job is named: digits alone are an id, so that no
job may have such a name; anything else is a name.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "NAME_LENGTH",
    "NAME_RULE",
    "full_name",
    "is_full_name",
    "is_job_name",
    "is_name",
    "names_in_list",
    "parse_job_reference",
]

NAME_LENGTH: Final = 64
"""The most characters of a name."""
NAME_RULE: Final = f"1 to {NAME_LENGTH} of A-Z a-z 0-9 _ . -, and not begin with -"
"""The rule for names, for messages: a name must be ..."""

_NAME = re.compile(rf"[A-Za-z0-9_.][A-Za-z0-9_.-]{{0,{NAME_LENGTH - 1}}}")  # commands would take -x for an option
_ID = re.compile(rf"[0-9]{{1,{NAME_LENGTH}}}")


def is_name(text: str) -> bool:
    """Return whether an agent or a switch may have this name."""
    return _NAME.fullmatch(text) is not None


def full_name(name: str, organization: str = "") -> str:
    """Return the name that tells an agent or a person from those of the same name in other organizations.

    It is NAME without an organization, and otherwise ORGANIZATION/NAME. As names have no slash, it is unambiguous.
    """
    return f"{organization}/{name}" if organization else name


def is_full_name(text: str) -> bool:
    """Return whether an agent of some organization, or of none, may have this full name."""
    return is_name(text.rpartition("/")[2])


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
