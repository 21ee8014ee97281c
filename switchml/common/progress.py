"""Progress reports of lengthy operations."""

__all__ = ["Progress"]


class Progress:
    """Receive the total amount of work, in any unit, and the amounts done; this implementation ignores both."""

    def expect(self, work: float) -> None:
        """Set the total amount of work."""

    def did(self, work: float = 1.0) -> None:
        """Report that a part of it is done."""
