"""The SwitchML packet in Python."""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final

from switchml.dataplane.codes import CODED_FORMATS, integers_of_codes
from switchml.dataplane.constants import (
    OWNER_EVERYONE,
    OWNER_EXCEPT,
    OWNER_FIRST,
    PROTOCOL_HEADER_BYTES,
    PROTOCOL_VERSION,
    Flag,
    Format,
    Kind,
)

__all__ = ["NO_FLAGS", "Packet", "WireError"]

NO_FLAGS: Final = Flag(0)

_HEADER = struct.Struct("!BBHBBHHHHBBIIII")
assert _HEADER.size == PROTOCOL_HEADER_BYTES
_MASK = 0xFFFFFFFF


class WireError(ValueError):
    """The bytes are not a SwitchML packet."""


@dataclass(frozen=True)
class Packet:
    """A SwitchML header and its values: signed 32-bit integers, or codes of one byte in a contribution in codes.

    ``slot`` is the register index: pool index * 2 + half. ``secret`` is that of the job's epoch. ``owner`` is
    OWNER_EVERYONE, or OWNER_FIRST plus the rank that alone reads the values of the RESULT; between switches of a tree
    it is the sender below that completed the phase. In a tree, ranks go by their numbers at the switch.
    """

    job: int
    worker: int
    slot: int
    phase: int
    epoch: int
    values: tuple[int, ...] = field(default=(), repr=False)
    count: int = 0
    exponent: int = 0
    chunk: int = 0
    check: int = 0
    flags: Flag = NO_FLAGS
    format: int = Format.INT32
    kind: int = Kind.CONTRIBUTION
    version: int = PROTOCOL_VERSION
    secret: int = 0
    owner: int = OWNER_EVERYONE

    def pack(self) -> bytes:
        """Return the UDP payload."""
        header = _HEADER.pack(
            self.version,
            self.kind,
            self.job,
            self.worker,
            self.format,
            self.exponent,
            self.slot,
            self.count,
            self.epoch,
            self.owner,
            self.flags,
            self.phase,
            self.chunk,
            self.check,
            self.secret,
        )
        if self.format in CODED_FORMATS:
            return header + bytes(self.values)
        return header + struct.pack(f"!{len(self.values)}I", *(value & _MASK for value in self.values))

    @property
    def integers(self) -> tuple[int, ...]:
        """The values, or the integers that they stand for if they are codes."""
        if self.format not in CODED_FORMATS:
            return self.values
        table = integers_of_codes(Format(self.format))
        return tuple(table[code] for code in self.values)

    @classmethod
    def unpack(cls, data: bytes) -> Packet:
        """Parse a UDP payload whose values are words.

        Raises:
            WireError: it is shorter than a header or the values are not whole words.

        """
        if len(data) < _HEADER.size or len(data) % 4:
            raise WireError(f"{len(data)} bytes are not a SwitchML packet")
        version, kind, job, worker, fmt, exponent, slot, count, epoch, owner, flags, phase, chunk, check, secret = (
            _HEADER.unpack_from(data)
        )
        values = struct.unpack_from(f"!{(len(data) - _HEADER.size) // 4}i", data, _HEADER.size)
        return cls(
            *(job, worker, slot, phase, epoch, values, count, exponent, chunk, check, Flag(flags), fmt, kind, version),
            secret=secret,
            owner=owner,
        )

    def copy_for(self, ranks: Collection[int]) -> Packet:
        """Return the copy of a RESULT that goes to these ranks, from a switch that sends values to their readers."""
        named = (self.owner & ~OWNER_EXCEPT) - OWNER_FIRST
        one_reads = any((rank == named) != bool(self.owner & OWNER_EXCEPT) for rank in ranks)
        if not self.values or self.owner == OWNER_EVERYONE or one_reads:
            return self
        return replace(self, values=(), count=0, flags=self.flags | Flag.WITHOUT_VALUES)
