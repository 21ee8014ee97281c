"""Compressed collectives for `fully_shard`.

    model.set_custom_reduce_scatter(ReduceScatter(by_name("lanes", bits=8)))
    model.set_custom_all_gather(AllGather(bits=8))

`fully_shard` calls them for each of its groups of parameters; call the setters of each module that it has sharded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp._fully_shard import _fsdp_api

from switchml.torch.compression.compressor import Compressor, Place, next_of
from switchml.torch.compression.payloads import as_bytes
from switchml.torch.compression.requests import Request
from switchml.torch.compression.table import require_scatterable
from switchml.torch.process_group import SwitchMLProcessGroup

__all__ = ["AllGather", "ReduceScatter"]

_BLOCK: Final = 256  # elements with one unit
_DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16)


class _Memory:
    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return memory for a collective."""
        return torch.empty(*size, dtype=dtype, device=device)


class ReduceScatter(_Memory, _fsdp_api.ReduceScatter):  # type: ignore[misc]
    """A reduce-scatter of gradients with a method whose results can be decoded in parts.

    Args:
        compressor: the method: one request, and positional.
        seed: of random numbers; the same on all ranks.

    Raises:
        ValueError: another method.

    """

    def __init__(self, compressor: Compressor, seed: int = 0) -> None:
        require_scatterable(compressor)
        self._compressor = compressor
        self._seed = seed
        self._calls = 0

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        """Average `input_tensor`; each rank gets its part. Returns when it has it.

        Raises:
            ValueError: another operation than AVG, or an asynchronous call.
            TypeError: tensors that cannot be compressed, or a group that is not one of SwitchML.

        """
        _require_usable(input_tensor, group)
        if op != dist.ReduceOp.AVG or async_op:
            raise ValueError(
                f"a compressed reduce-scatter is a synchronous AVG, not {op}{' with async_op' if async_op else ''}; "
                "fully_shard asks for AVG if the gradients are float32 or bfloat16 and no divide factor is set"
            )
        self._compressor.check(group.size())
        self._calls += 1
        place = Place("reduce-scatter", self._calls, group.rank(), group.size(), self._seed)
        gradient = input_tensor.detach().float()
        bad = not bool(gradient.isfinite().all())
        rounds = self._compressor.rounds(torch.zeros_like(gradient) if bad else gradient, place)
        request = next_of(rounds, None)
        assert isinstance(request, Request)
        part = request.scatter(group, bad)
        outcome = None if part is None else next_of(rounds, part)
        if outcome is None:
            output_tensor.fill_(float("nan"))
            return
        assert not isinstance(outcome, Request)
        output_tensor.copy_(outcome.average.view(output_tensor.shape))


class AllGather(_Memory, _fsdp_api.AllGather):  # type: ignore[misc]
    """An all-gather of parameters in 8 bits, with the largest magnitude of each 256 elements as their unit.

    All ranks, also the owner of a shard, compute with the rounded parameters. The optimizer keeps the exact ones.

    Args:
        bits: 8.

    """

    def __init__(self, bits: int = 8) -> None:
        if bits != 8:
            raise ValueError(f"bits is {bits!r}; it must be 8")

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> None:
        """Gather `input_tensor` of all ranks. Returns when it is there, also with `async_op`.

        Raises:
            TypeError: tensors that cannot be compressed, or a group that is not one of SwitchML.

        """
        _require_usable(input_tensor, group)
        values = input_tensor.detach().float().view(-1)
        blocks = torch.nn.functional.pad(values, (0, -len(values) % _BLOCK)).view(-1, _BLOCK)
        unit = blocks.abs().amax(1) / 127
        codes = torch.where(unit[:, None] > 0, blocks / unit[:, None], 0.0).round_().to(torch.int8)
        own = as_bytes(unit, codes)
        rows = own.new_empty((group.size(), len(own)))
        dist.all_gather_single(rows.view(-1), own, group=group)
        units = rows[:, : 4 * len(unit)].contiguous().view(torch.float32)
        decoded = rows[:, 4 * len(unit) :].view(torch.int8).view(group.size(), -1, _BLOCK) * units[:, :, None]
        output_tensor.copy_(decoded.view(group.size(), -1)[:, : len(values)].reshape(output_tensor.shape))


def _require_usable(tensor: Tensor, group: Any) -> None:
    if not isinstance(group, SwitchMLProcessGroup):
        raise TypeError(f"compression needs a process group of the switchml backend, not {group!r}")
    if tensor.dtype not in _DTYPES or tensor.device.type != "cpu":
        raise TypeError(
            f"compression takes float32, float16 or bfloat16 on the CPU, not {tensor.dtype} on {tensor.device}"
        )
