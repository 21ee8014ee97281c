"""Policies of `switchml.client.schedules`, as the options of this study name them."""

from __future__ import annotations

import dataclasses
from typing import Any

from switchml.benchmarks.options import each
from switchml.client.schedules import MOST_CLASSES, Policy, policy_of

__all__ = ["policies", "policy"]


def policies(text: str) -> list[str]:
    """Return the policies of "p3,bytescheduler:partition=500000". Raises ValueError for other text."""

    def one(word: str) -> str:
        policy(word)
        return word

    return each(text, one)


def policy(word: str) -> Policy:
    """Return a policy such as "bytescheduler:partition=500000:credit=1000000". Raises ValueError for other text."""
    name, *given = word.split(":")
    arguments: dict[str, Any] = {}
    for argument in given:
        what, _, number = argument.partition("=")
        if what not in ("classes", "partition", "credit") or not number.isdecimal():
            raise ValueError(f"{argument!r} in {word!r} must be classes=N, partition=BYTES or credit=BYTES")
        arguments[what] = int(number)
    found = dataclasses.replace(policy_of(name), **arguments)
    if found.classes is None or found.classes > MOST_CLASSES:
        raise ValueError(f"{word!r} has {found.classes} classes; there can be 1 to {MOST_CLASSES}")
    return found
