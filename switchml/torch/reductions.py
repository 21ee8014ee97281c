"""Reductions: c10d's ReduceOp as values that can be compared and printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.distributed import ReduceOp

__all__ = ["NETWORK_OPERATIONS", "Reduction", "reduction_of"]

NETWORK_OPERATIONS: Final = ("sum", "avg", "premul_sum")
"""The operations that the switch supports: sums, and sums multiplied by a factor before or after."""


@dataclass(frozen=True)
class Reduction:
    """An operation by its name in lower case. `factor` multiplies each rank's contribution (premul_sum only)."""

    name: str
    factor: float | torch.Tensor | None = None

    @property
    def network(self) -> bool:
        """True if the network supports the operation, for some dtypes."""
        return self.name in NETWORK_OPERATIONS


def reduction_of(op: object) -> Reduction:
    """Return the reduction for `op`.

    Args:
        op: a `ReduceOp`, a `ReduceOp.RedOpType`, or a name.

    Raises:
        ValueError: it is something else.

    """
    if isinstance(op, Reduction):
        return op
    if isinstance(op, str):
        name, factor = op.lower(), None
    else:
        # This is the only way to read the factor of PREMUL_SUM from Python.
        state: Any = None if isinstance(op, ReduceOp.RedOpType) else getattr(op, "__getstate__", None)
        kind, factor = state() if state is not None and isinstance(op, ReduceOp) else (op, None)
        name = str(getattr(kind, "name", kind)).lower()
    if name.upper() not in ReduceOp.RedOpType.__members__ or name == "unused":
        raise ValueError(f"{op!r} is not an operation of torch.distributed.ReduceOp")
    return Reduction(name, factor)
