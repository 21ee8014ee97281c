"""Priorities of jobs: from 0, the default, to the most urgent one."""

from typing import Final

__all__ = ["MAX_PRIORITY"]

MAX_PRIORITY: Final = 7
