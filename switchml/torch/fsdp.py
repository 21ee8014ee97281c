"""Overlap for models that `fully_shard` (FSDP2) has sharded on CPUs.

On a GPU, FSDP gathers parameters and scatters gradients on streams, while the model computes. On CPUs there are no
streams, so it waits for each collective before it goes on. In the network both kinds can be under way at the same time:
a gather fills the links to the ranks, and a scatter those from them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard import _fsdp_api

__all__ = ["overlap"]


def overlap(model: nn.Module, depth: int = 2) -> None:
    """Let the collectives of a model overlap with its computation, and gathers with scatters.

    Call it after `fully_shard`, and after the setters of custom collectives if there are any. All ranks must call it,
    because it makes a process group for the scatters. Results have the same bits as without it, except with stochastic
    rounding, whose random numbers are those of another group. Each rank needs more memory: for the parameters of
    `depth` more modules, and the gradients of as many.

    - Modules gather their parameters while the `depth` modules before them compute, in the order of
      ``model.modules()`` in the forward pass, and in the reverse order in the backward pass.
    - Scatters of gradients end before ``backward`` returns, while other modules compute. A module waits for its own
      scatter at once where FSDP changes the result right after it: if gradients accumulate in ``grad`` or have hooks,
      if they are reduced in another type than that of the parameters, or over replicas (HSDP) as well.
    - The last module keeps its parameters between the passes, because its backward pass comes next.

    Args:
        model: the root that `fully_shard` was called for last.
        depth: the number of modules whose collectives may be under way, at least 1.

    Raises:
        TypeError: `model` is not sharded, or `depth` is not an integer.
        ValueError: `depth` is less than 1, or the parameters are not in CPU memory.

    """
    if not isinstance(model, FSDPModule):
        raise TypeError(f"overlap takes a model that fully_shard was called for, not {type(model).__name__}")
    if not isinstance(depth, int) or isinstance(depth, bool):
        raise TypeError(f"depth is {depth!r}; it must be an integer")
    if depth < 1:
        raise ValueError(f"depth is {depth}; it must be at least 1")
    modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
    _require_cpu(modules)
    _prefetch(modules, depth)
    model._set_unshard_async_op(True)
    model.set_separate_reduce_scatter_group(True)
    modules[-1].set_reshard_after_forward(False, recurse=False)
    under_way = _UnderWay(depth)
    for module in modules:
        for parameters in _parameter_groups(module):
            scatter = parameters._reduce_scatter_comm
            inner = scatter.inner if isinstance(scatter, _LaterScatter) else scatter
            parameters._reduce_scatter_comm = _LaterScatter(inner, parameters, under_way)


def _parameter_groups(module: Any) -> Sequence[Any]:
    groups: Sequence[Any] = module._get_fsdp_state()._fsdp_param_groups
    return groups


def _require_cpu(modules: Sequence[Any]) -> None:
    for module in modules:
        for parameters in _parameter_groups(module):
            if parameters.device.type != "cpu":
                raise ValueError(
                    f"overlap is for parameters in CPU memory, and these are on {parameters.device}, where FSDP "
                    "overlaps by itself, on streams"
                )


def _prefetch(modules: Sequence[Any], depth: int) -> None:
    """Let each module start the gathers of those that follow it in a pass; the root comes first in both."""
    root, *others = modules
    for order, prefetch in (
        ([root, *others], "set_modules_to_forward_prefetch"),
        ([root, *reversed(others)], "set_modules_to_backward_prefetch"),
    ):
        for index, module in enumerate(order):
            getattr(module, prefetch)(order[index + 1 : index + 1 + depth])


class _UnderWay:
    """The latest scatters of a model, of which a few may be under way."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._works: deque[Any] = deque()

    def add(self, work: Any) -> None:
        """Take a scatter, which ends before the backward pass does; if there are too many, the first must end now."""
        torch.autograd.Variable._execution_engine.queue_callback(work.wait)
        self._works.append(work)
        while len(self._works) > self._most:
            self._works.popleft().wait()


class _LaterScatter(_fsdp_api.ReduceScatter):  # type: ignore[misc]
    """A reduce-scatter that goes on while the backward pass does, where FSDP does not need its result at once."""

    def __init__(self, inner: Any, parameters: Any, under_way: _UnderWay) -> None:
        self.inner = inner
        self._parameters = parameters
        self._under_way = under_way

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return memory for a collective."""
        allocated: Tensor = self.inner.allocate(size, dtype=dtype, device=device)
        return allocated

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,  # noqa: ARG002 - FSDP's
    ) -> None:
        """Start the scatter, and wait for it if FSDP changes the result right after it."""
        work = self.inner(output_tensor, input_tensor, group, op, async_op=True)
        if self._is_final(output_tensor, op):
            self._under_way.add(work)
        else:
            work.wait()

    def _is_final(self, scattered: Tensor, op: Any) -> bool:
        """Return whether the result of the scatter is the gradient."""
        parameters = self._parameters
        return bool(
            op == dist.ReduceOp.AVG
            and parameters._all_reduce_hook is None
            and not hasattr(parameters.mesh_info, "replicate_process_group")
            and not any(_changes_gradient(one, scattered.dtype) for one in parameters.fsdp_params)
        )


def _changes_gradient(parameter: Any, dtype: torch.dtype) -> bool:
    """Return whether FSDP casts a result of this type, adds it to a gradient, copies it or calls hooks with it."""
    sharded = parameter.sharded_param
    # Since PyTorch 2.15 the gradients of a parameter can have another type than itself, or any (None).
    wanted = getattr(parameter, "sharded_grad_dtype", parameter.orig_dtype)
    return (
        wanted not in (None, dtype)
        or sharded.grad is not None
        or parameter.offload_to_cpu
        or bool(getattr(sharded, "_post_accumulate_grad_hooks", None))
    )
