"""How far something is that takes long."""

__all__ = ["Progress"]


class Progress:
    """Hears how much work there is in all, in any unit, and when a part of it is done; this one ignores both."""

    def expect(self, work: float) -> None:
        """Hear that there is this much work in all."""

    def did(self, work: float = 1.0) -> None:
        """Hear that a part of it is done."""
