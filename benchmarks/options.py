"""Values of options: lists of sizes, of worker counts and of names, and the names that there are."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeVar

from switchml.benchmarks import open_mpi
from switchml.common.shares import share
from switchml.dataplane.constants import PROTOCOL_MAX_VALUES, PROTOCOL_MAX_WORKERS, PROTOCOL_MAX_WORLD
from switchml.schedules import MOST_CLASSES, Policy, policy_of

__all__ = [
    "COLLECTIVES",
    "COMPRESSION_METHODS",
    "ELEMENT_TYPES",
    "GRADIENTS",
    "IN_FLOATS",
    "LINK_PEERS",
    "MAGNITUDE_BITS",
    "MODES",
    "OVERLAPS",
    "PEERS",
    "SCHEDULES",
    "SPARSE_PEERS",
    "TRAININGS",
    "TRANSPORTS",
    "densities",
    "durations",
    "factors",
    "method_arguments",
    "methods",
    "momenta",
    "names",
    "packet_values",
    "policies",
    "policy",
    "queues",
    "rates",
    "shares",
    "spreads",
    "size_text",
    "sizes",
    "tree_text",
    "trees",
    "worker_counts",
]

T = TypeVar("T")

TRANSPORTS: Final = ("shm", "udp")
"""The transports by which SwitchML's ranks reach their switch."""

IN_FLOATS: Final = {f"{transport}-float": transport for transport in TRANSPORTS}
"""The same transports where the switch adds up floats as such (docs/floats.md), by their names as systems."""

PEERS: Final = ("gloo", *open_mpi.TRANSPORTS)
"""The systems that SwitchML is compared with."""

LINK_PEERS: Final = ("gloo", "mpi-tcp")
"""Those of them that use a network."""

MODES: Final = ("ps1", "psN", "ring", "switch", "switch16")
"""Ways to all-reduce: one parameter server, one on each worker's host, Gloo's ring, a switch, 16 bits an element."""

SPARSE_PEERS: Final = ("gloo", "allgather-sparse")
"""Gloo's dense all-reduce, and an all-gather of the numbers and values of blocks over Gloo."""

OVERLAPS: Final = ("random", "all", "none")
"""The blocks that all ranks have in common: those that chance gives them, all, or none."""

GRADIENTS: Final = {"DeepLight": 0.01, "LSTM": 0.06, "NCF": 0.16, "VGG19": 0.68, "ResNet152": 0.79, "BERT": 0.91}
"""Densities of the gradients of six models, as reported with OmniReduce (Fei et al., SIGCOMM 2021)."""

ELEMENT_TYPES: Final = ("float32", "int64")
"""The types of elements that `bench allreduce` sums."""

MAGNITUDE_BITS: Final = 20
"""The usual magnitude of int64: such a value takes one word in packets, whatever the number of ranks."""

COMPRESSION_METHODS: Final = (
    *("wire:bits=16", "wire:bits=8", "int8", "qsgd:levels=15", "thc", "powersgd:rank=2"),
    *("shared_topk:density=0.01", "block_topk:density=0.01", "topk:density=0.01", "sidco:density=0.01", "onebit"),
)
"""The methods that `bench compression` compares by default."""

SCHEDULES: Final = ("p3", "bytescheduler:partition=500000:credit=1000000", "tictac-tic", "tictac-tac")
"""The policies that `bench schedule` compares by default, with partitions for its small model."""

TRAININGS: Final = ("digits", "text")
"""The trainings of `bench compression`."""

COLLECTIVES: Final = ("all_reduce", "reduce_scatter", "all_gather", "scatter_and_gather", "broadcast")
"""Operations that are measured. The size is that of the whole tensor, which has the parts of all workers.

`scatter_and_gather` is a reduce-scatter and an all-gather at the same time, each of this size, as in the backward pass
of sharded training.
"""

_RATES: Final = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_RATE: Final = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*([kmg]bit)")
_SLOWEST: Final = 10**6
_FASTEST: Final = 100 * 10**9
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_TIME: Final = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(us|ms|s)")
_SHORTEST_QUEUE: Final = 1e-4
_LONGEST_QUEUE: Final = 10.0
_DURATION: Final = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*(ns|us|ms|s)")
_LONGEST_DURATION: Final = 10.0
_MOST_LEVELS: Final = 4
_ARGUMENT: Final = re.compile(r"(\w+)=([\w.+-]+)")
_UNITS: Final = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_LARGEST: Final = 1 << 33
_SIZE: Final = re.compile(r"(\d{1,12})\s*([A-Za-z]*)")


def sizes(text: str) -> list[int]:
    """Return the sizes in bytes of "4KiB,64MiB": whole float32 values, up to 8 GiB. Raises ValueError."""
    return _each(text, _size)


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

    return _each(text, count)


def shares(text: str) -> list[float]:
    """Return the fractions of "0,0.1%,0.01". Raises ValueError for one outside 0..1, or 1: nothing would arrive."""

    def below_one(word: str) -> float:
        value = share(word)
        if value == 1:
            raise ValueError(f"{word} of the packets cannot be lost; the fraction must be below 1")
        return value

    return _each(text, below_one)


def densities(text: str) -> list[float]:
    """Return the shares of blocks with values of "0.001,1%,1". Raises ValueError for one outside 0..1."""
    return _each(text, share)


def factors(text: str) -> list[float]:
    """Return the factors of "0.5,1,3". Raises ValueError for one that is not a positive number."""
    wanted = "a factor of the learning rate; write a positive number, such as 0.5 or 3"
    return _each(text, lambda word: _number(word, lambda value: 0 < value < math.inf, wanted))


def momenta(text: str) -> list[float]:
    """Return the momenta of "0.9,0". Raises ValueError for one that is not at least 0 and below 1."""
    wanted = "a momentum; write a number from 0 to below 1, such as 0.9"
    return _each(text, lambda word: _number(word, lambda value: 0 <= value < 1, wanted))


def _number(word: str, fits: Callable[[float], bool], wanted: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not fits(value):
        raise ValueError(f"{word!r} is not {wanted}")
    return value


def packet_values(text: str) -> list[int]:
    """Return the numbers of values in a packet of "256,2048". Raises ValueError for one that no fabric has."""

    def count(word: str) -> int:
        if not word.isdecimal() or not 1 <= int(word) <= PROTOCOL_MAX_VALUES:
            raise ValueError(f"{word!r} is not a number of values from 1 to {PROTOCOL_MAX_VALUES}")
        return int(word)

    return _each(text, count)


def spreads(text: str) -> list[int]:
    """Return the powers of two of "0,20". Raises ValueError for one above 200: the numbers would not be floats."""

    def power(word: str) -> int:
        if not word.isdecimal() or int(word) > 200:
            raise ValueError(f"{word!r} is not a power of two from 0 to 200")
        return int(word)

    return _each(text, power)


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

    return _each(text, rate)


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

    return _each(text, queue)


def durations(text: str) -> list[float]:
    """Return the seconds of "0,85ns,1ms". Raises ValueError for one above ten seconds."""

    def duration(word: str) -> float:
        match = _DURATION.fullmatch(word)
        if match is None and word != "0":
            raise ValueError(f"{word!r} is not a duration; write 85ns, 12us, 1ms or 0")
        value = float(match[1]) * _SECONDS[match[2]] if match else 0.0
        if value > _LONGEST_DURATION:
            raise ValueError(f"{word} is above 10s")
        return value

    return _each(text, duration)


def trees(text: str) -> list[tuple[int, ...]]:
    """Return the trees of "8,16x64": the children of each switch, from the root down.

    Raises ValueError for a tree that no job can have.
    """

    def tree(word: str) -> tuple[int, ...]:
        children = word.split("x")
        if not all(count.isdecimal() and 1 <= int(count) <= PROTOCOL_MAX_WORKERS for count in children):
            raise ValueError(
                f"{word!r} is not a tree; write 16x64, with 1 to {PROTOCOL_MAX_WORKERS} children of a switch"
            )
        found = tuple(int(count) for count in children)
        if len(found) > _MOST_LEVELS:
            raise ValueError(f"{word} has {len(found)} levels of switches; at most {_MOST_LEVELS} are simulated")
        if not 2 <= math.prod(found) <= PROTOCOL_MAX_WORLD:
            raise ValueError(f"{word} has {math.prod(found)} ranks; a job has 2 to {PROTOCOL_MAX_WORLD}")
        return found

    return _each(text, tree)


def tree_text(tree: Sequence[int]) -> str:
    """Return a tree as people write it: 16x64."""
    return "x".join(str(children) for children in tree)


def names(text: str, known: Collection[str]) -> list[str]:
    """Return the names of "gloo,mpi-tcp"; "" has no names. Raises ValueError for an unknown name."""

    def name(word: str) -> str:
        if word not in known:
            raise ValueError(f"{word!r} is not one of {', '.join(known)}")
        return word

    return _each(text, name) if text.strip() else []


def methods(text: str) -> list[str]:
    """Return the methods of compression of "lanes:bits=8,topk". Raises ValueError for other text."""

    def method(word: str) -> str:
        method_arguments(word)
        return word

    return _each(text, method)


def method_arguments(word: str) -> tuple[str, dict[str, Any]]:
    """Return name and arguments of a method such as "qsgd:levels=15:norm=max". Raises ValueError for other text."""
    name, *given = word.split(":")
    arguments: dict[str, Any] = {}
    for argument in given:
        match = _ARGUMENT.fullmatch(argument)
        if match is None:
            raise ValueError(f"{argument!r} in {word!r} is not an argument of a method; write NAME=VALUE")
        arguments[match[1]] = _value(match[2])
    if not name.isidentifier():
        raise ValueError(f"{word!r} is not a method; write a name, and its arguments as in qsgd:levels=15:norm=max")
    return name, arguments


def policies(text: str) -> list[str]:
    """Return the policies of "p3,bytescheduler:partition=500000". Raises ValueError for other text."""

    def one(word: str) -> str:
        policy(word)
        return word

    return _each(text, one)


def policy(word: str) -> Policy:
    """Return a policy such as "bytescheduler:partition=500000:credit=1000000". Raises ValueError for other text."""
    name, *given = word.split(":")
    arguments: dict[str, Any] = {}
    for argument in given:
        what, _, number = argument.partition("=")
        if what not in ("classes", "partition", "credit") or not number.isdecimal():
            raise ValueError(f"{argument!r} in {word!r} must be classes=N, partition=BYTES or credit=BYTES")
        arguments[what] = int(number)
    found = dataclasses.replace(policy_of(name), **arguments)
    if found.classes is None or found.classes > MOST_CLASSES:
        raise ValueError(f"{word!r} has {found.classes} classes; there can be 1 to {MOST_CLASSES}")
    return found


def _value(text: str) -> int | float | str:
    if text.isdecimal():
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def _each(text: str, parse: Callable[[str], T]) -> list[T]:
    return list(dict.fromkeys(parse(word.strip()) for word in text.split(",")))
