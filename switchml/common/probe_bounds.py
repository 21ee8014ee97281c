"""Bounds of a probe, which measures the paths between agents."""

from typing import Final

__all__ = ["KEY_BYTES", "MOST_BYTES", "MOST_SECONDS"]

KEY_BYTES: Final = 16
"""The size of the key by which the agents of a probe know each other."""
MOST_BYTES: Final = 64 << 20
"""The most that two agents send each other in each direction."""
MOST_SECONDS: Final = 600.0
"""The longest time that a probe takes."""
