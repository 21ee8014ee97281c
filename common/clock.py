"""The clock by which processes judge that others are silent.

Everything that compares with a time in the past takes a clock as a parameter. Besides other processes, what can make
the past seem far away is that this process did not run (stopped, swapped out, its machine suspended), or that its clock
jumped. `stood_still` tells that from a silence of the others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["TEST_VARIABLE", "Clock", "chosen_clock", "stood_still"]

Clock = Callable[[], float]
"""Seconds since any moment; time.monotonic is one."""

TEST_VARIABLE: Final = "SWITCHML_TEST_CLOCK"
"""For tests: a file that holds by how many seconds the clock of a process is wrong; it may change at any time."""


def chosen_clock() -> Clock:
    """Return time.monotonic, or a wrong clock where a test asks for it."""
    path = os.environ.get(TEST_VARIABLE)
    if not path:
        return time.monotonic
    offset = Path(path)

    def wrong() -> float:
        try:
            return time.monotonic() + float(offset.read_text() or 0)
        except FileNotFoundError:
            return time.monotonic()

    return wrong


def stood_still(before: float, now: float, step: float) -> bool:
    """Whether a process that looks at its clock every `step` seconds did not run in between, or its clock jumped."""
    return not 0 <= now - before <= 2 * step
