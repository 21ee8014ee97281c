"""The path of each collective: through the switch, or over Gloo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

import torch

from switchml.torch.encodings import SUM_DTYPES
from switchml.torch.reductions import NETWORK_OPERATIONS, reduction_of

__all__ = [
    "EMBEDDED",
    "LEAST_LONG_SUM_BYTES",
    "LONG_SUMS_OVER_GLOO",
    "MOST_BROADCAST_BYTES",
    "MOST_GATHERED_BYTES",
    "MOST_WORDS",
    "PATHS",
    "Link",
    "LongSumsOverGloo",
    "Medium",
    "Path",
    "PathRule",
    "long_sums_table",
    "path_of",
    "path_of_long_sum",
    "table",
]

Path = Literal["network", "gloo"]
Medium = Literal["shared memory", "loopback", "links"]
"""The connection between ranks: memory that all of them share with the switch, the loopback network of the one host
that they are on, or links."""


class Link(NamedTuple):
    """Properties of the path to the switch that all ranks of a group share.

    Attributes:
        optional_values: ranks that have nothing to contribute need not send zeros.
        medium: the connection between the ranks; None if it is not known.
        values: the 32-bit values of a packet; None if they are not known.

    """

    optional_values: bool = False
    medium: Medium | None = None
    values: int | None = None

    @property
    def shared_memory(self) -> bool:
        """True if the switch is on their host and reads their values where they are, without packets."""
        return self.medium == "shared memory"


EMBEDDED: Final = Link(optional_values=True, values=2048)
"""The way to the fabric that `switchml-ctl up` starts: exact sums over Gloo have its bits if there was never a job."""

MOST_BROADCAST_BYTES: Final = 1 << 16
"""Larger broadcasts go over Gloo, unless the ranks share memory with the switch.

Measured on one machine, four ranks are 1.49, 1.06, 0.77, 0.92 and 1.07 times as fast as Gloo over UDP, with 8 KiB, 64
KiB, 512 KiB, 4 MiB and 64 MiB. Over shared memory they are faster at each of these sizes, 1.1 to 1.5 times.
"""

MOST_GATHERED_BYTES: Final = 1 << 16
"""Larger results of an all-gather come over Gloo if every rank must send as many bytes as it gets: its own and zeros.

Measured on one machine, four ranks then take about half of Gloo's time or less up to 512 KiB, and twice its time for 4
MiB. Without zeros they are faster than Gloo at any size, over UDP as over shared memory.
A link that limits the time has to carry N / (N - 1) times Gloo's bytes. At 200 Mb/s and 64 KiB, that costs four ranks
0.7 ms, about as much as Gloo's further round trips.
"""

LEAST_LONG_SUM_BYTES: Final = 1 << 20
"""Smaller sums of int64 go through the network whatever their values are."""

MOST_WORDS: Final = 3
"""The words of a packet that an int64 takes at most."""


@dataclass(frozen=True)
class LongSumsOverGloo:
    """Sums of int64 that are faster over Gloo: over this medium, if an element takes at least `words` in packets.

    Attributes:
        medium: the connection between the ranks.
        least_ranks, most_ranks: the sizes of groups.
        words: one, two or three words for an element; the mean of all elements.

    """

    medium: Medium
    least_ranks: int
    most_ranks: int
    words: float


LONG_SUMS_OVER_GLOO: Final = (
    LongSumsOverGloo("shared memory", 4, 64, 2.5),
    LongSumsOverGloo("loopback", 4, 64, 1.5),
    LongSumsOverGloo("links", 2, 2, 2.1),
    LongSumsOverGloo("links", 3, 3, 2.7),
)
"""Measured on one machine with two cores, with 2 and 4 ranks; for links, computed from the bytes that a rank sends.

An element takes 4 bytes for each word in packets, and 16 (N - 1) / N bytes in Gloo's ring of N ranks.
"""


@dataclass(frozen=True)
class PathRule:
    """The path of one operation.

    Attributes:
        path: "network", or "gloo" for all tensors.
        ops: reductions that go through the network; None if the operation does not reduce.
        dtypes: dtypes that go through the network; None for all.
        most_bytes: larger tensors go over Gloo; None for no limit.
        unlimited: the field of `Link` with which there is no such limit; None if there is always one.
        sparse: sparse tensors (torch.sparse_coo) go through the network too.
        note: remarks.

    """

    path: Path
    ops: tuple[str, ...] | None = None
    dtypes: tuple[torch.dtype, ...] | None = None
    most_bytes: int | None = None
    unlimited: Literal["optional_values", "shared_memory"] | None = None
    sparse: bool = False
    note: str = ""


_REDUCED: Final = PathRule("network", NETWORK_OPERATIONS, SUM_DTYPES, note="other reductions, sparse tensors: Gloo")
_ALL_REDUCED: Final = PathRule(
    "network", NETWORK_OPERATIONS, SUM_DTYPES, sparse=True, note="also of sparse tensors; other reductions: Gloo"
)
_ALL_REDUCED_OR_LONG: Final = replace(
    _ALL_REDUCED, note="also of sparse tensors; other reductions, some large sums of int64: Gloo"
)
_GLOO: Final = PathRule("gloo")
_GATHERED: Final = PathRule(
    "network", most_bytes=MOST_GATHERED_BYTES, unlimited="optional_values", note="larger ones: Gloo"
)
_BROADCAST: Final = PathRule(
    "network", most_bytes=MOST_BROADCAST_BYTES, unlimited="shared_memory", note="larger ones: Gloo"
)
_LIMITS: Final = {
    "optional_values": "if the switch needs values of every rank: ",
    "shared_memory": "if ranks share no memory with the switch: ",
}

PATHS: Final[dict[str, PathRule]] = {
    "all_reduce": _ALL_REDUCED_OR_LONG,
    "all_reduce_coalesced": _ALL_REDUCED,
    "reduce": _REDUCED,
    "broadcast": _BROADCAST,
    "barrier": PathRule("network"),
    "reduce_scatter": _REDUCED,
    "reduce_scatter_single": _REDUCED,
    "reduce_scatter_single_coalesced": _REDUCED,
    "all_gather": _GATHERED,
    "all_gather_coalesced": _GATHERED,
    "all_gather_single": _GATHERED,
    "all_gather_single_coalesced": _GATHERED,
    "gather": _GLOO,
    "scatter": _GLOO,
    "all_to_all": _GLOO,
    "all_to_all_single": _GLOO,
    "send": _GLOO,
    "recv": _GLOO,
    "recv_anysource": _GLOO,
    "monitored_barrier": PathRule(
        "gloo", note="as a method of the group: dist.monitored_barrier asks for the gloo backend"
    ),
    "object collectives": PathRule("gloo", note="made of all_gather, gather, scatter, send and recv, and of broadcast"),
}
"""The path of each operation in a group of 2 to 64 ranks that is a job of the switch; other groups use Gloo."""


def path_of(
    operation: str,
    dtype: torch.dtype | None = None,
    op: object = None,
    nbytes: int | None = None,
    sparse: bool = False,
    link: Link = Link(),  # noqa: B008 - it cannot be changed
) -> Path:
    """Return the path of a collective in a group that is a job of the switch.

    A sum of int64 that goes through the network may still go over Gloo, as `path_of_long_sum` tells.

    Args:
        operation: a key of `PATHS`.
        dtype: the dtype of its tensors; None for float32.
        op: `ReduceOp` or its name, for operations that reduce; None for SUM.
        nbytes: bytes of a tensor, which is the result of an all-gather; None for a small one.
        sparse: True for sparse tensors (torch.sparse_coo).
        link: the way to the switch (`SwitchMLProcessGroup.link`); by default one of which nothing is known.

    Raises:
        KeyError: there is no such operation.
        ValueError: `op` is not an operation of `ReduceOp`.

    """
    rule = PATHS[operation]
    if rule.path == "gloo":
        return "gloo"
    reduction = reduction_of("sum" if op is None else op)
    network = (
        (rule.sparse or not sparse)
        and (rule.ops is None or reduction.name in rule.ops)
        and (rule.dtypes is None or (dtype or torch.float32) in rule.dtypes)
        and (
            rule.most_bytes is None
            or (nbytes or 0) <= rule.most_bytes
            or (rule.unlimited is not None and getattr(link, rule.unlimited))
        )
    )
    return "network" if network else "gloo"


def path_of_long_sum(nbytes: int, words: float, world_size: int, medium: Medium | None) -> Path:
    """Return the path of an all-reduce that is a sum of int64 in a group that is a job of the switch.

    Args:
        nbytes: bytes of the tensor.
        words: the words that an element takes in packets, which the ranks learn from an earlier sum.
        world_size: the number of ranks.
        medium: the connection between them (`SwitchMLProcessGroup.link.medium`).

    """
    over_gloo = nbytes >= LEAST_LONG_SUM_BYTES and any(
        row.medium == medium and row.least_ranks <= world_size <= row.most_ranks and words >= row.words
        for row in LONG_SUMS_OVER_GLOO
    )
    return "gloo" if over_gloo else "network"


def table() -> str:
    """Return `PATHS` as the Markdown table in docs/guides/pytorch.md."""
    lines = ["| operation | way | reductions in the network | remarks |", "|---|---|---|---|"]
    for operation, rule in PATHS.items():
        ops = ", ".join(op.upper() for op in rule.ops or ()) or "-"
        limit = f"up to {rule.most_bytes} bytes; " if rule.most_bytes is not None else ""
        limit = f"{_LIMITS[rule.unlimited]}{limit}" if rule.unlimited is not None else limit
        lines.append(f"| `{operation}` | {rule.path} | {ops} | {limit}{rule.note} |")
    return "\n".join(lines)


def long_sums_table() -> str:
    """Return `LONG_SUMS_OVER_GLOO` as the Markdown table in docs/guides/pytorch.md."""
    lines = ["| ranks connected by | ranks | words for an element |", "|---|---|---|"]
    for row in LONG_SUMS_OVER_GLOO:
        ranks = str(row.least_ranks) if row.least_ranks == row.most_ranks else f"{row.least_ranks} to {row.most_ranks}"
        lines.append(f"| {row.medium} | {ranks} | {row.words:g} or more |")
    return "\n".join(lines)
