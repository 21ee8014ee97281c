"""Text from other programs as one line that is safe to print on a terminal."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str, most: int | None = None) -> str:
    r"""Return at most `most` characters of a text, with line ends and control characters as escapes (``\x1b``)."""
    beginning = text[:most]
    if not beginning.isprintable():
        beginning = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in beginning)
    return beginning[:most]
