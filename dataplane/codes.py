"""The integers that codes of one byte stand for, in Python: for tools and tests, never on the data path."""

from __future__ import annotations

from typing import Final

from switchml.dataplane import constants
from switchml.dataplane.constants import Format

__all__ = ["CODED_FORMATS", "integers_of_codes"]

CODED_FORMATS: Final = (Format.NATURAL8, Format.DYNAMIC8)
"""The formats of contributions whose values are codes."""

_SIGN: Final = 128
_MODULUS: Final = 2**32


def integers_of_codes(code_format: Format) -> list[int]:
    """Return the integers of codes 0 to 255 in one of `CODED_FORMATS`, signed (constants.toml, [format])."""
    magnitude = {Format.NATURAL8: _natural, Format.DYNAMIC8: _dynamic}[code_format]
    magnitudes = [magnitude(number) if number else 0 for number in range(_SIGN)]
    return magnitudes + [-number for number in magnitudes]


def _natural(number: int) -> int:
    return (1 << (number - 1)) % _MODULUS


def _dynamic(number: int) -> int:
    bits = number.bit_length() - 1
    start: int = getattr(constants, f"DYNAMIC8_START_{bits}")
    step: int = getattr(constants, f"DYNAMIC8_STEP_{bits}") if bits else 0
    return start + (number - (1 << bits)) * step
