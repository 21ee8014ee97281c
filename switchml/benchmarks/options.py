"""Values of options: lists of sizes, of worker counts and of names, and the names that there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, TypeVar

from switchml.benchmarks import open_mpi
from switchml.common.shares import share
from switchml.dataplane.constants import PROTOCOL_MAX_VALUES, PROTOCOL_MAX_WORKERS

__all__ = [
    "COLLECTIVES",
    "ELEMENT_TYPES",
    "LINK_PEERS",
    "MAGNITUDE_BITS",
    "OVERLAPS",
    "PEERS",
    "SPARSE_PEERS",
    "TRANSPORTS",
    "VARIANTS",
    "TransportVariant",
    "densities",
    "each",
    "names",
    "packet_values",
    "queues",
    "rates",
    "shares",
    "size_text",
    "sizes",
    "worker_counts",
]

T = TypeVar("T")

TRANSPORTS: Final = ("shm", "udp")
"""The transports by which SwitchML's ranks reach their switch."""


@dataclass(frozen=True)
class TransportVariant:
    """Another way to sum over one of the TRANSPORTS: over another wire, or without direct calls."""

    transport: str
    wire: str = ""
    direct: bool = True


VARIANTS: Final = {
    "shm-float": TransportVariant("shm", wire="floats"),
    "udp-float": TransportVariant("udp", wire="floats"),
    "shm-switch": TransportVariant("shm", direct=False),
}
"""By name: the switch adds up floats as such (docs/guides/floats.md), or it adds up all values."""

PEERS: Final = ("gloo", *open_mpi.TRANSPORTS)
"""The systems that SwitchML is compared with."""

LINK_PEERS: Final = ("gloo", "mpi-tcp")
"""Those of them that use a network."""


SPARSE_PEERS: Final = ("gloo", "allgather-sparse")
"""Gloo's dense all-reduce, and an all-gather of the numbers and values of blocks over Gloo."""

OVERLAPS: Final = ("random", "all", "none")
"""The blocks that all ranks have in common: those that chance gives them, all, or none."""


ELEMENT_TYPES: Final = ("float32", "int64")
"""The types of elements that `bench allreduce` sums."""

MAGNITUDE_BITS: Final = 20
"""The usual magnitude of int64: such a value takes one word in packets, whatever the number of ranks."""


COLLECTIVES: Final = ("all_reduce", "reduce_scatter", "all_gather", "scatter_and_gather", "broadcast")
"""Operations that are measured. The size is that of the whole tensor, which has the parts of all workers.

`scatter_and_gather` is a reduce-scatter and an all-gather at the same time, each of this size, as in the backward pass
of sharded training.
"""

_RATES: Final = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_RATE: Final = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*([kmg]bit)")
_SLOWEST: Final = 10**6
_FASTEST: Final = 100 * 10**9
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_TIME: Final = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(us|ms|s)")
_SHORTEST_QUEUE: Final = 1e-4
_LONGEST_QUEUE: Final = 10.0
_UNITS: Final = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_LARGEST: Final = 1 << 33
_SIZE: Final = re.compile(r"(\d{1,12})\s*([A-Za-z]*)")


def sizes(text: str) -> list[int]:
    """Return the sizes in bytes of "4KiB,64MiB": whole float32 values, up to 8 GiB. Raises ValueError."""
    return each(text, _size)


def _size(word: str) -> int:
    match = _SIZE.fullmatch(word)
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise ValueError(f"{word!r} is not a size; write 4KiB, 64MiB or a number of bytes")
    size = int(match[1]) * unit
    if not 4 <= size <= _LARGEST or size % 4:
        raise ValueError(f"{word} is not a size of a float32 tensor: a multiple of 4 bytes up to {size_text(_LARGEST)}")
    return size


def size_text(size: int) -> str:
    """Return a size as people write it: 64 MiB."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def worker_counts(text: str) -> list[int]:
    """Return the numbers of "2,4,8". Raises ValueError for a number of workers that no job can have."""

    def count(word: str) -> int:
        if not word.isdecimal() or not 2 <= int(word) <= PROTOCOL_MAX_WORKERS:
            raise ValueError(f"{word!r} is not a number of workers from 2 to {PROTOCOL_MAX_WORKERS}")
        return int(word)

    return each(text, count)


def shares(text: str) -> list[float]:
    """Return the fractions of "0,0.1%,0.01". Raises ValueError for one outside 0..1, or 1: nothing would arrive."""

    def below_one(word: str) -> float:
        value = share(word)
        if value == 1:
            raise ValueError(f"{word} of the packets cannot be lost; the fraction must be below 1")
        return value

    return each(text, below_one)


def densities(text: str) -> list[float]:
    """Return the shares of blocks with values of "0.001,1%,1". Raises ValueError for one outside 0..1."""
    return each(text, share)


def packet_values(text: str) -> list[int]:
    """Return the numbers of values in a packet of "256,2048". Raises ValueError for one that no fabric has."""

    def count(word: str) -> int:
        if not word.isdecimal() or not 1 <= int(word) <= PROTOCOL_MAX_VALUES:
            raise ValueError(f"{word!r} is not a number of values from 1 to {PROTOCOL_MAX_VALUES}")
        return int(word)

    return each(text, count)


def rates(text: str) -> list[int]:
    """Return the rates of "200mbit,1gbit" in bits per second. Raises ValueError."""

    def rate(word: str) -> int:
        match = _RATE.fullmatch(word.lower())
        if match is None:
            raise ValueError(f"{word!r} is not a rate; write 200mbit or 1gbit")
        value = round(float(match[1]) * _RATES[match[2]])
        if not _SLOWEST <= value <= _FASTEST:
            raise ValueError(f"{word} is outside 1mbit..100gbit")
        return value

    return each(text, rate)


def queues(text: str) -> list[float]:
    """Return the seconds that packets wait at most in queues, of "50ms,400ms". Raises ValueError."""

    def queue(word: str) -> float:
        match = _TIME.fullmatch(word.lower())
        if match is None:
            raise ValueError(f"{word!r} is not the length of a queue; write 50ms")
        value = float(match[1]) * _SECONDS[match[2]]
        if not _SHORTEST_QUEUE <= value <= _LONGEST_QUEUE:
            raise ValueError(f"{word} is outside 100us..10s")
        return value

    return each(text, queue)


def names(text: str, known: Collection[str]) -> list[str]:
    """Return the names of "gloo,mpi-tcp"; "" has no names. Raises ValueError for an unknown name."""

    def name(word: str) -> str:
        if word not in known:
            raise ValueError(f"{word!r} is not one of {', '.join(known)}")
        return word

    return each(text, name) if text.strip() else []


def each(text: str, parse: Callable[[str], T]) -> list[T]:
    """Return the parsed words of "a,b", each once. Raises what `parse` raises."""
    return list(dict.fromkeys(parse(word.strip()) for word in text.split(",")))
