"""The valid port numbers of switches."""

from __future__ import annotations

from typing import Final

__all__ = ["HIGHEST_PORT", "highest_port"]

HIGHEST_PORT: Final = 511
"""The highest port number of any target: packets carry it through the pipeline in nine bits."""

_HIGHEST_PORT_OF: Final = {"bmv2": HIGHEST_PORT - 1}  # simple_switch drops packets to port 511


def highest_port(target: str) -> int:
    """Return the highest port number of switches of a target; ports count from 1."""
    return _HIGHEST_PORT_OF.get(target, HIGHEST_PORT)
