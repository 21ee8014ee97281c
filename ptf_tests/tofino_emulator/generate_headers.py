"""Generate Python source that extracts headers from bytes and emits them; and functions that such code calls."""

from __future__ import annotations

import binascii
import struct
from collections.abc import Sequence
from typing import Any

from ptf_tests.tofino_emulator.undefined import ModelError, Undefined

__all__ = ["emission_text", "extraction_lines", "hash_value", "internet_checksum", "pack_fields"]

_STRUCT_CODES = {8: "B", 16: "H", 32: "I", 64: "Q"}


def _struct_format(fields: Sequence[tuple[str, int]]) -> str | None:
    codes = [_STRUCT_CODES.get(width) for _, width in fields]
    return None if None in codes else "!" + "".join(code for code in codes if code)


def extraction_lines(fields: Sequence[tuple[str, int]]) -> list[str]:
    """Return statements that set variables of these (name, width) from ``data`` at ``offset``."""
    form = _struct_format(fields)
    names = [name for name, _ in fields]
    if form is not None:
        return [f"({''.join(f'{name}, ' for name in names)}) = unpack_from({form!r}, data, offset)"]
    left = sum(abs(width) for _, width in fields)
    lines = [f"bits = int.from_bytes(data[offset:offset + {left // 8}], 'big')"]
    for name, width in fields:
        left -= abs(width)
        text = f"bits >> {left} & {(1 << abs(width)) - 1}" if left else f"bits & {(1 << abs(width)) - 1}"
        lines.append(
            f"{name} = {text}" if width > 0 else f"{name} = (({text}) ^ {1 << (-width - 1)}) - {1 << (-width - 1)}"
        )
    return lines


def emission_text(fields: Sequence[tuple[str, int]]) -> str:
    """Return the expression of the bytes of variables of these (name, width); it may append to ``leftovers``."""
    form = _struct_format(fields)
    if form is not None:
        return f"pack_fields(leftovers, {form!r}, {', '.join(name for name, _ in fields)})"
    left = sum(abs(width) for _, width in fields)
    size = left // 8
    parts = []
    for name, width in fields:
        left -= abs(width)
        value = name if width > 0 else f"({name} & {(1 << -width) - 1})"
        parts.append(f"{value} << {left}" if left else value)
    return f"({' | '.join(parts)}).to_bytes({size}, 'big')"


def pack_fields(leftovers: list[Undefined], form: str, *values: Any) -> bytes:
    """Return fields as ``struct.pack`` does. Undefined fields get some pattern, as containers hold anything.

    They are appended to ``leftovers``; a program may emit them into a packet that it reads itself after recirculation.
    """
    if any(isinstance(value, Undefined) for value in values):
        leftovers += (value for value in values if isinstance(value, Undefined))
        patterns = {code: int.from_bytes(b"\x5a" * (width // 8), "big") for width, code in _STRUCT_CODES.items()}
        codes = zip(values, form.lstrip("!"), strict=True)
        values = tuple(patterns[code] if isinstance(value, Undefined) else value for value, code in codes)
    return struct.pack(form, *values)


def _joined(fields: Sequence[tuple[int, int]]) -> tuple[int, int]:
    bits, total = 0, 0
    for value, width in fields:
        bits = bits << width | value & ((1 << width) - 1)
        total += width
    return bits, total


def internet_checksum(fields: Sequence[tuple[int, int]], zeros_as_ones: bool = False) -> int:
    """Return the checksum (RFC 1071) over (value, width) fields, whose total must be whole words of 16 bits."""
    bits, total = _joined(fields)
    if total % 16:
        raise ModelError(f"a checksum over {total} bits: the hardware adds words of 16")
    result = 0
    while bits:
        result += bits & 0xFFFF
        bits >>= 16
    while result > 0xFFFF:
        result = (result & 0xFFFF) + (result >> 16)
    result ^= 0xFFFF
    return 0xFFFF if zeros_as_ones and result == 0 else result


def hash_value(algorithm: str, width: int, fields: Sequence[tuple[int, int]]) -> int:
    """Return the lowest ``width`` bits of a hash over (value, width) fields."""
    bits, total = _joined(fields)
    if algorithm == "CRC32":
        bits = binascii.crc32(bits.to_bytes((total + 7) // 8, "big"))
    elif algorithm != "IDENTITY":
        raise ModelError(f"the hash algorithm {algorithm} is not modelled")
    return bits & ((1 << width) - 1)
