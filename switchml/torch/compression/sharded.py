"""Compressed collectives for `fully_shard`.

    model.set_custom_reduce_scatter(CompressedReduceScatter(by_name("lanes", bits=8)))
    model.set_custom_all_gather(CompressedAllGather(bits=8))

`fully_shard` calls them for each of its groups of parameters; call the setters of each module that it has sharded.

    CompressedReplicas(model, by_name("topk", density=0.01), group=mesh["replicate"].get_group())

is for a model that is sharded inside each host, and has replicas on several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard import _fsdp_api

from switchml.torch.compression.compressor import Compressor, Place, next_of
from switchml.torch.compression.hook import CompressionState
from switchml.torch.compression.payloads import as_bytes
from switchml.torch.compression.requests import Gather, Pending, Request
from switchml.torch.compression.table import require_scatterable
from switchml.torch.device_backend import switchml_group
from switchml.torch.process_group import SwitchMLProcessGroup

__all__ = ["CompressedAllGather", "CompressedReduceScatter", "CompressedReplicas"]

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


class CompressedReplicas(CompressionState):
    """Averages over replicas, of the gradients that `fully_shard` has scattered, for one model.

    `fully_shard` averages gradients over the ranks of the mesh that it was given; then each module's hook averages this
    rank's part with those of its `group`, which are the same part in other replicas. The residuals belong to this
    part: they are state of a `CompressionState`, whose arguments, errors, checkpoints and scale this class has.

    Args:
        model: the root that `fully_shard` was called for last, with a mesh that does not have the replicas.
        group: the ranks that have the same part.

    Raises:
        TypeError: the model is not sharded.
        ValueError: it has replicas in the mesh that it was sharded with, which torch averages itself.

    """

    def __init__(self, model: nn.Module, compressor: Compressor, group: dist.ProcessGroup, **arguments: Any) -> None:
        self._averaged: set[str] = set()  # the modules, in this step
        super().__init__(model, compressor, group=group, **arguments)
        for name, module in _parts_of(model).items():
            module.set_all_reduce_hook(partial(self._average_part, name))

    def _sizes_of(self, model: nn.Module) -> dict[str, int]:
        return {name: _part_size(module) for name, module in _parts_of(model).items()}

    def _average_part(self, name: str, gradient: Tensor) -> None:
        """Average a rank's part of the gradients of a module, in place."""
        self._require_usable(gradient)
        if gradient.numel() != self._sizes[name]:
            raise RuntimeError(
                f"{name} has {gradient.numel()} elements of gradients, and {self._sizes[name]} of parameters: each "
                "of its parameters must have a gradient in every step, because residuals belong to places in its part"
            )
        if name in self._averaged or not self._averaged:
            self._averaged.clear()
            self._begin_step()
        self._averaged.add(name)
        self._average(gradient, {name: gradient}).wait()


def _parts_of(model: nn.Module) -> dict[str, FSDPModule]:
    """Return the modules that were sharded, by the names of this rank's parts of them.

    Raises TypeError if the model was not sharded, and ValueError if it was with replicas.
    """
    if not isinstance(model, FSDPModule):
        raise TypeError(f"model is a {type(model).__name__}; call fully_shard for it first")
    found: dict[str, FSDPModule] = {}
    for name, module in model.named_modules():
        for parameters in _groups_of(module) if isinstance(module, FSDPModule) else ():
            mesh = parameters.mesh_info
            if hasattr(mesh, "replicate_process_group"):
                raise ValueError(
                    "the mesh that fully_shard was called with has a dimension of replicas, over which it averages "
                    'itself; call it with the other one, such as mesh["shard"]'
                )
            # Ranks with other parts may write to the same checkpoint.
            found[f"{name or 'root'}, part {mesh.shard_mesh_rank} of {mesh.shard_mesh_size}"] = module
    return found


def _groups_of(module: FSDPModule) -> Sequence[Any]:
    groups: Sequence[Any] = module._get_fsdp_state()._fsdp_param_groups
    return groups


def _part_size(module: FSDPModule) -> int:
    """Return the number of elements of a rank's part of the gradients, which are padded to parts of one size."""
    trained = [one for group in _groups_of(module) for one in group.fsdp_params if one.sharded_param.requires_grad]
    return sum(math.prod(one.padded_sharded_param_size) for one in trained)


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
