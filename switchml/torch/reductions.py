"""What c10d's ReduceOp asks for, as something that can be compared and printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.distributed import ReduceOp

__all__ = ["NETWORK_OPERATIONS", "Reduction", "reduction_of"]

NETWORK_OPERATIONS: Final = ("sum", "avg", "premul_sum")
"""The operations that the switch can do: sums, and what a factor before or after makes of them."""


@dataclass(frozen=True)
class Reduction:
    """An operation by its name in lower case. `factor` multiplies each rank's contribution (premul_sum only)."""

    name: str
    factor: float | torch.Tensor | None = None

    @property
    def network(self) -> bool:
        """Whether it is done in the network, for the dtypes that are."""
        return self.name in NETWORK_OPERATIONS


def reduction_of(op: object) -> Reduction:
    """Return what `op` stands for.

    Args:
        op: a `ReduceOp`, a `ReduceOp.RedOpType`, or a name.

    Raises:
        ValueError: it is none of these.

    """
    if isinstance(op, Reduction):
        return op
    if isinstance(op, str):
        name, factor = op.lower(), None
    else:
        # The only way from Python to the factor of PREMUL_SUM.
        state: Any = None if isinstance(op, ReduceOp.RedOpType) else getattr(op, "__getstate__", None)
        kind, factor = state() if state is not None and isinstance(op, ReduceOp) else (op, None)
        name = str(getattr(kind, "name", kind)).lower()
    if name.upper() not in ReduceOp.RedOpType.__members__ or name == "unused":
        raise ValueError(f"{op!r} is no operation of torch.distributed.ReduceOp")
    return Reduction(name, factor)
