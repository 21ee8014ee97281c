"""What the agent tells others that it cannot do."""

from __future__ import annotations

__all__ = ["AgentError", "AssignmentRefused", "AttachRefused", "BadMessage", "RegistrationRefused", "SocketUnusable"]


class AgentError(Exception):
    """Anything that the agent itself raises."""


class AssignmentRefused(AgentError):
    """The controller's assignment cannot be carried out; the message goes back to it."""


class AttachRefused(AgentError):
    """A process may not have the rank it asked for. `error` is the word for it in the protocol."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error


class BadMessage(AgentError):
    """A training process sent something that is no message of the protocol."""


class RegistrationRefused(AgentError):
    """The controller will not have this agent: another version, or its name is taken. Trying again is no use."""


class SocketUnusable(AgentError):
    """The Unix socket cannot be made at its path."""
