"""Fractions of packets, as users write them."""

import math

__all__ = ["share"]


def share(text: str) -> float:
    """Return the fraction from 0 to 1 that "0.01" or "1%" means.

    Raises ValueError.
    """
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a share; write 0.01 or 1%") from None
    if math.isnan(value) or not 0 <= value <= 1:
        raise ValueError(f"{text} is outside 0..1")
    return value
