"""Text from other programs as one line that is safe to print on a terminal."""

from __future__ import annotations

from typing import Final

__all__ = ["REASON_LENGTH", "WORD_LENGTH", "printable", "shortened"]

REASON_LENGTH: Final = 1000
"""The most characters of a reason that one program gives another."""

WORD_LENGTH: Final = 80
"""The most characters of a word in the description of a call, such as the name of its operation."""

_GAP: Final = " ... "


def printable(text: str, most: int | None = None) -> str:
    r"""Return at most `most` characters of a text, with line ends and control characters as escapes (``\x1b``)."""
    beginning = text[:most]
    if not beginning.isprintable():
        beginning = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in beginning)
    return beginning[:most]


def shortened(text: str, most: int) -> str:
    """Return a text with at most `most` characters; " ... " replaces the middle of a longer one."""
    if len(text) <= most:
        return text
    kept = most - len(_GAP)
    end = kept // 3
    return text[: kept - end] + _GAP + text[-end:]
