"""P4Runtime byte strings: integers of any width, big-endian (specification, "Bytestrings")."""

from __future__ import annotations

import grpc

from switchml.dataplane.softswitch.errors import P4RuntimeError

__all__ = ["decode", "encode"]


def decode(data: bytes, bits: int, what: str) -> int:
    """Return the unsigned integer that ``data`` encodes; leading zero bytes are accepted.

    Raises P4RuntimeError OUT_OF_RANGE, which names ``what``, for an empty string or a value wider than ``bits``.
    """
    if not data:
        raise P4RuntimeError(grpc.StatusCode.OUT_OF_RANGE, f"{what} is an empty byte string; zero is one zero byte")
    significant = data.lstrip(b"\0")
    value = int.from_bytes(significant[: (bits + 7) // 8 + 1], "big")
    if len(significant) > (bits + 7) // 8 or value >> bits:
        raise P4RuntimeError(
            grpc.StatusCode.OUT_OF_RANGE, f"{what} does not fit into {bits} bits: {_shown(significant)}"
        )
    return value


def encode(value: int) -> bytes:
    """Return the canonical (shortest) byte string of a non-negative integer."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def _shown(data: bytes) -> str:
    return "0x" + (data.hex() if len(data) <= 16 else data[:16].hex() + "...")
