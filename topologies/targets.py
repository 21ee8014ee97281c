"""The targets of the switches in a topology."""

from typing import Final

__all__ = ["TARGETS", "TOFINO"]

TARGETS: Final = ("soft", "bmv2")
"""The targets of switches that can be started on this machine."""

TOFINO: Final = "tofino"
"""The target of a switch that exists already."""
