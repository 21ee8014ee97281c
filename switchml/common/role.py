"""The roles that certificates give."""

from enum import Enum

__all__ = ["Role"]


class Role(str, Enum):
    """The role that a certificate gives."""

    CONTROLLER = "controller"
    SWITCH = "switch"
    AGENT = "agent"
    ADMIN = "admin"
    OPERATOR = "operator"
    VIEWER = "viewer"
