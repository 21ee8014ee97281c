"""Which client drives a switch, by its control interface."""

from __future__ import annotations

from ptf_tests.control import Control
from ptf_tests.targets import Description

__all__ = ["open_control"]


def open_control(description: Description) -> Control:
    """Return the control of a running switch, which connects when it is entered."""
    if description.bfrt:
        from ptf_tests.control_bfrt import BfrtControl

        return BfrtControl(description)
    from ptf_tests.control_p4runtime import P4RuntimeControl

    return P4RuntimeControl(description)
