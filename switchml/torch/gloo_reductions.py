"""Reductions over Gloo, for all operations and dtypes, also those that Gloo itself does not support."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from switchml.client.errors import UnsupportedTensor
from switchml.torch import averages
from switchml.torch.reductions import Reduction

__all__ = ["GlooReduction", "GlooScatter", "require_reducible"]

_NATIVE: Final = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
)
_THROUGH: Final = {torch.bool: torch.int32, torch.int16: torch.int32}
_BITWISE: Final = ("band", "bor", "bxor")


def require_reducible(tensor: Tensor, reduction: Reduction) -> None:
    """Check that Gloo can reduce `tensor`.

    Raises:
        UnsupportedTensor: it cannot, or the operation is not defined for the dtype.

    """
    if tensor.dtype not in (*_NATIVE, *_THROUGH):
        raise UnsupportedTensor(
            f"{reduction.name} of {tensor.dtype} is supported neither in the network nor over Gloo. The tensor is "
            "unchanged; convert it to float32, float64, float16, bfloat16, int8, uint8, int16, int32, int64 or bool "
            "first."
        )
    if reduction.name in _BITWISE and tensor.dtype.is_floating_point:
        raise UnsupportedTensor(
            f"{reduction.name} takes integers and bool, not {tensor.dtype}. The tensor is unchanged; use MIN, MAX or "
            "SUM, or view it as an integer dtype."
        )


class GlooReduction:
    """One tensor, reduced over Gloo.

    Attributes:
        buffer: the tensor that Gloo reduces; the caller's tensor itself if possible.
        op: Gloo's operation.

    """

    def __init__(self, target: Tensor, reduction: Reduction, world_size: int) -> None:
        require_reducible(target, reduction)
        wide = _THROUGH.get(target.dtype)
        if reduction.name in ("sum", "avg", "premul_sum") and target.dtype in (torch.float16, torch.bfloat16):
            wide = torch.float32  # one rounding, as in the network
        elif reduction.name == "avg" and not target.dtype.is_floating_point:
            wide = torch.int64
        self._target = target
        self._average_of = world_size if reduction.name == "avg" else 0
        self._in_two_parts = reduction.name == "avg" and target.dtype == torch.int64
        self.buffer = (
            target if wide is None and target.is_contiguous() else target.to(wide or target.dtype).contiguous()
        )
        if self._in_two_parts:
            self.buffer = averages.parts(self.buffer, world_size)
        if reduction.factor is not None:
            self.buffer = self.buffer * reduction.factor
        kind = "sum" if reduction.name in ("avg", "premul_sum") else reduction.name
        self.op = getattr(dist.ReduceOp, kind.upper())

    def start(self, gloo: Any, timeout: timedelta) -> Any:
        """Start the all-reduce, and return Gloo's work."""
        options = dist.AllreduceOptions()
        options.reduceOp = self.op
        options.timeout = timeout
        return gloo.allreduce([self.buffer], options)

    def empty_result(self, shape: torch.Size) -> Tensor:
        """Return a buffer for the result of a tensor of `shape`."""
        return torch.empty((*shape, 2) if self._in_two_parts else shape, dtype=self.buffer.dtype)

    def is_result(self, tensor: Tensor) -> bool:
        """Return whether Gloo can write the result directly to `tensor`."""
        same = tensor.dtype == self.buffer.dtype and not self._in_two_parts
        return same and tensor.is_contiguous() and tensor.device.type == "cpu"

    def finish(self, result: Tensor | None = None, target: Tensor | None = None) -> None:
        """Write the result (default: from the buffer) into `target` (default: the caller's tensor)."""
        result = self.buffer if result is None else result
        target = self._target if target is None else target
        if self._in_two_parts:
            result = averages.average(result, self._average_of)
        elif self._average_of:
            result.div_(self._average_of, rounding_mode=None if result.dtype.is_floating_point else "trunc")
        if result is not target:
            target.copy_(result != 0 if target.dtype == torch.bool else result)


class GlooScatter:
    """One tensor, reduced over Gloo so that each rank gets one of its equal parts; the tensor is only read."""

    def __init__(self, given: Tensor, output: Tensor, reduction: Reduction, world_size: int) -> None:
        self._reduction = GlooReduction(given.flatten(), reduction, world_size)
        self._output = output
        with torch.inference_mode(False):  # Gloo writes it in `wait`, which may run outside of inference mode
            self._result = self._reduction.empty_result(torch.Size((output.numel(),)))

    def start(self, gloo: Any, timeout: timedelta) -> Any:
        """Start the reduce-scatter, and return Gloo's work."""
        options = dist.ReduceScatterOptions()
        options.reduceOp = self._reduction.op
        options.timeout = timeout
        return gloo._reduce_scatter_base(self._result, self._reduction.buffer, options)

    def finish(self) -> None:
        """Write the result to the output, which is contiguous."""
        self._reduction.finish(self._result, self._output.view(-1))
