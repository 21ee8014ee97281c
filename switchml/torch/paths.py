"""The path of each collective: through the switch, or over Gloo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import torch

from switchml.torch.encodings import SUM_DTYPES
from switchml.torch.reductions import NETWORK_OPERATIONS, reduction_of

__all__ = ["MOST_BROADCAST_BYTES", "PATHS", "Path", "Route", "path_of", "table"]

Path = Literal["network", "gloo"]

MOST_BROADCAST_BYTES: Final = 1 << 13
"""Larger broadcasts go over Gloo, because in the network every rank sends as many bytes as the root."""


@dataclass(frozen=True)
class Route:
    """The path of one operation.

    Attributes:
        path: "network", or "gloo" for all tensors.
        ops: reductions that go through the network; None if the operation does not reduce.
        dtypes: dtypes that go through the network; None for all.
        most_bytes: larger tensors go over Gloo; None for no limit.
        note: remarks.

    """

    path: Path
    ops: tuple[str, ...] | None = None
    dtypes: tuple[torch.dtype, ...] | None = None
    most_bytes: int | None = None
    note: str = ""


_REDUCED: Final = Route("network", NETWORK_OPERATIONS, SUM_DTYPES, None, "other reductions, sparse tensors: Gloo")
_GLOO: Final = Route("gloo")
_GLOO_REDUCED: Final = Route("gloo", note="AVG and PREMUL_SUM as well, which Gloo lacks")

PATHS: Final[dict[str, Route]] = {
    "all_reduce": _REDUCED,
    "all_reduce_coalesced": _REDUCED,
    "reduce": _REDUCED,
    "broadcast": Route("network", most_bytes=MOST_BROADCAST_BYTES, note="larger ones: Gloo"),
    "barrier": Route("network"),
    "reduce_scatter": _GLOO_REDUCED,
    "reduce_scatter_single": _GLOO_REDUCED,
    "reduce_scatter_single_coalesced": _GLOO_REDUCED,
    "all_gather": _GLOO,
    "all_gather_coalesced": _GLOO,
    "all_gather_single": _GLOO,
    "all_gather_single_coalesced": _GLOO,
    "gather": _GLOO,
    "scatter": _GLOO,
    "all_to_all": _GLOO,
    "all_to_all_single": _GLOO,
    "send": _GLOO,
    "recv": _GLOO,
    "recv_anysource": _GLOO,
    "monitored_barrier": Route(
        "gloo", note="as a method of the group: dist.monitored_barrier asks for the gloo backend"
    ),
    "object collectives": Route("gloo", note="made of all_gather, gather, scatter, send and recv, and of broadcast"),
}
"""The path of each operation in a group of 2 to 64 ranks that is a job of the switch; other groups use Gloo."""


def path_of(
    operation: str,
    dtype: torch.dtype | None = None,
    op: object = None,
    nbytes: int | None = None,
    sparse: bool = False,
) -> Path:
    """Return the path of a collective in a group that is a job of the switch.

    Args:
        operation: a key of `PATHS`.
        dtype: the dtype of its tensors; None for float32.
        op: `ReduceOp` or its name, for operations that reduce; None for SUM.
        nbytes: bytes of a tensor; None for a small one.
        sparse: True for sparse tensors.

    Raises:
        KeyError: there is no such operation.
        ValueError: `op` is not an operation of `ReduceOp`.

    """
    route = PATHS[operation]
    if route.path == "gloo":
        return "gloo"
    reduction = reduction_of("sum" if op is None else op)
    network = (
        not sparse
        and (route.ops is None or reduction.name in route.ops)
        and (route.dtypes is None or (dtype or torch.float32) in route.dtypes)
        and (route.most_bytes is None or (nbytes or 0) <= route.most_bytes)
    )
    return "network" if network else "gloo"


def table() -> str:
    """Return `PATHS` as the Markdown table in docs/pytorch.md."""
    lines = ["| operation | way | reductions in the network | remarks |", "|---|---|---|---|"]
    for operation, route in PATHS.items():
        ops = ", ".join(op.upper() for op in route.ops or ()) or "-"
        limit = f"up to {route.most_bytes} bytes; " if route.most_bytes is not None else ""
        lines.append(f"| `{operation}` | {route.path} | {ops} | {limit}{route.note} |")
    return "\n".join(lines)
