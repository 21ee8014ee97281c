"""The clock by which a process judges that others are silent.

Code that compares the present with a time in the past takes a clock as a parameter. A past time can seem far away not
only because others are silent, but also because this process did not run (stopped, swapped out, its machine suspended)
or its clock jumped. `stood_still` distinguishes these cases.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["TEST_VARIABLE", "Clock", "chosen_clock", "stood_still"]

Clock = Callable[[], float]
"""Seconds since an arbitrary moment, as time.monotonic returns."""

TEST_VARIABLE: Final = "SWITCHML_TEST_CLOCK"
"""For tests: names a file with the seconds by which the process's clock is wrong; it may change at any time."""


def chosen_clock() -> Clock:
    """Return time.monotonic, or a wrong clock if a test asks for one."""
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
    """Return whether a process that reads its clock every `step` seconds was suspended, or its clock jumped."""
    return not 0 <= now - before <= 2 * step
