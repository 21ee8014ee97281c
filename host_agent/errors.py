"""Errors that the agent reports to the controller and to processes."""

from __future__ import annotations

__all__ = ["AgentError", "AssignmentRefused", "AttachRefused", "BadMessage", "DeviceLost"]
__all__ += ["RegistrationRefused", "SocketUnusable"]


class AgentError(Exception):
    """Base class of the errors that the agent itself raises."""


class AssignmentRefused(AgentError):
    """The controller's assignment cannot be carried out; the message is sent back to it."""


class AttachRefused(AgentError):
    """A process may not have the rank that it asked for. `error` is the error's name in the protocol."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error


class BadMessage(AgentError):
    """A training process sent something that is not a message of the protocol."""


class DeviceLost(AgentError):
    """The device of the agent cannot be used any more; the message says why. Its ranks are lost."""


class RegistrationRefused(AgentError):
    """The controller refuses this agent: the versions differ, or its name is taken. A retry cannot succeed."""


class SocketUnusable(AgentError):
    """The Unix socket cannot be created at its path."""
