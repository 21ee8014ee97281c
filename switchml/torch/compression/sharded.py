"""Compressed collectives for `fully_shard`.

    model.set_custom_reduce_scatter(CompressedReduceScatter(by_name("lanes", bits=8)))
    model.set_custom_all_gather(CompressedAllGather(bits=8))

`fully_shard` calls them for each of its groups of parameters; call the setters of each module that it has sharded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp._fully_shard import _fsdp_api

from switchml.torch.compression.compressor import Compressor, Place, next_of
from switchml.torch.compression.payloads import as_bytes
from switchml.torch.compression.requests import Gather, Pending, Request
from switchml.torch.compression.table import require_scatterable
from switchml.torch.device_backend import switchml_group
from switchml.torch.process_group import SwitchMLProcessGroup

__all__ = ["CompressedAllGather", "CompressedReduceScatter"]

_BLOCK: Final = 256  # elements with one unit
_DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16)


class _Memory:
    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return memory for a collective."""
        return torch.empty(*size, dtype=dtype, device=device)


class CompressedReduceScatter(_Memory, _fsdp_api.ReduceScatter):  # type: ignore[misc]
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
    ) -> dist.Work | None:
        """Average `input_tensor`; each rank gets its part.

        Returns:
            None, when the rank has its part; with `async_op` at once a work, whose `wait` decodes it.

        Raises:
            ValueError: another operation than AVG.
            TypeError: tensors that cannot be compressed, or a group that is not one of SwitchML.

        """
        group = _usable(input_tensor, group)
        if op != dist.ReduceOp.AVG:
            raise ValueError(
                f"a compressed reduce-scatter is an AVG, not {op}; fully_shard asks for AVG if the gradients are "
                "float32 or bfloat16 and no divide factor is set"
            )
        self._compressor.check(group.size())
        self._calls += 1
        place = Place("reduce-scatter", self._calls, group.rank(), group.size(), self._seed)
        gradient = input_tensor.detach().float()
        bad = not bool(gradient.isfinite().all())
        rounds = self._compressor.rounds(torch.zeros_like(gradient) if bad else gradient, place)
        request = next_of(rounds, None)
        assert isinstance(request, Request)

        def decode(scattered: Tensor) -> None:
            part, any_bad = Request.without_flag(scattered)
            if any_bad:
                output_tensor.fill_(float("nan"))
                return
            outcome = next_of(rounds, part)
            assert not isinstance(outcome, Request)
            output_tensor.copy_(outcome.average.view(output_tensor.shape))

        return _now_or_later(request.scatter(group, bad), decode, async_op)


class CompressedAllGather(_Memory, _fsdp_api.AllGather):  # type: ignore[misc]
    """An all-gather of parameters in 8 bits, with the largest magnitude of each 256 elements as their unit.

    All ranks, also the owner of a shard, compute with the rounded parameters. The optimizer keeps the exact ones.

    Args:
        bits: 8.

    """

    def __init__(self, bits: int = 8) -> None:
        if bits != 8:
            raise ValueError(f"bits is {bits!r}; it must be 8")

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False
    ) -> dist.Work | None:
        """Gather `input_tensor` of all ranks.

        Returns:
            None, when it is there; with `async_op` at once a work, whose `wait` decodes it.

        Raises:
            TypeError: tensors that cannot be compressed, or a group that is not one of SwitchML.

        """
        group = _usable(input_tensor, group)
        values = input_tensor.detach().float().view(-1)
        blocks = torch.nn.functional.pad(values, (0, -len(values) % _BLOCK)).view(-1, _BLOCK)
        unit = blocks.abs().amax(1) / 127
        codes = torch.where(unit[:, None] > 0, blocks / unit[:, None], 0.0).round_().to(torch.int8)
        length, units_end = len(values), 4 * len(unit)

        def decode(rows: Tensor) -> None:
            units = rows[:, :units_end].contiguous().view(torch.float32)
            decoded = rows[:, units_end:].view(torch.int8).view(len(rows), -1, _BLOCK) * units[:, :, None]
            output_tensor.copy_(decoded.view(len(rows), -1)[:, :length].reshape(output_tensor.shape))

        return _now_or_later(Gather(as_bytes(unit, codes)).start(group), decode, async_op)


class _DecodedWhenWaitedFor(dist.Work):  # type: ignore[misc]
    """A compressed collective in flight. The thread that waits for it first decodes the result."""

    def __init__(self, pending: Pending, decode: Callable[[Tensor], None]) -> None:
        super().__init__()
        self._pending: Pending | None = pending
        self._decode = decode

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the result, at most `timeout` (0: the group's), and decode it."""
        if self._pending is not None:
            self._pending.work.wait(timeout)
            self._decode(self._pending.result)
            self._pending = None
        return True


def _now_or_later(pending: Pending, decode: Callable[[Tensor], None], later: bool) -> dist.Work | None:
    work = _DecodedWhenWaitedFor(pending, decode)
    if later:
        return work
    work.wait()
    return None


def _usable(tensor: Tensor, group: Any) -> SwitchMLProcessGroup:
    """Return the group that compresses the tensor. Raises TypeError if no part of `group` can."""
    part = switchml_group(group)
    if part is None:
        raise TypeError(f"compression needs a process group of the switchml backend, not {group!r}")
    if tensor.dtype not in _DTYPES or tensor.device.type != "cpu":
        raise TypeError(
            f"compression takes float32, float16 or bfloat16 on the CPU, not {tensor.dtype} on {tensor.device}"
        )
    return part
