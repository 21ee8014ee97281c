"""Refuses models, optimizers and arguments that cannot be scheduled, and says what to do instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from switchml.client.schedules import MOST_CLASSES, Policy
from switchml.common.job_numbers import rank_numbers
from switchml.torch.scheduling.buckets import Bucket

__all__ = ["check_model", "check_optimizer", "check_policy", "check_same"]

_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def check_policy(policy: Policy) -> int:
    """Return the number of classes of a policy.

    Raises:
        ValueError: it is not one with which models can be trained.

    """
    if policy.classes is None or policy.classes > MOST_CLASSES:
        raise ValueError(f"policy.classes is {policy.classes}; training takes 1 to {MOST_CLASSES} classes")
    return policy.classes


def check_optimizer(optimizer: Any) -> None:
    """Raise unless `optimizer` can step some parameters earlier than others.

    Raises:
        TypeError: it is not an optimizer, or it needs all gradients at once.

    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer is {optimizer!r}; it must be a torch.optim.Optimizer")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TypeError("LBFGS needs the gradients of all parameters at once; train with DistributedDataParallel")
    if hasattr(optimizer, "average_gradients"):
        raise TypeError("optimizer is already one that averages gradients; give the plain one")


def check_model(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """Return the parameters that are trained.

    Raises:
        TypeError: the model or a parameter is of a kind that cannot be scheduled.
        ValueError: the optimizer has parameters that the model does not have, or none that is trained.

    """
    if isinstance(model, DistributedDataParallel):
        raise TypeError("model is a DistributedDataParallel; give the model in it: the optimizer averages gradients")
    if isinstance(model, FSDPModule | FullyShardedDataParallel):
        raise TypeError("model is sharded (FSDP); each rank needs all parameters to schedule their gradients")
    if hasattr(model, "_orig_mod"):
        raise TypeError(
            "model is compiled as a whole, so that nothing can wait between its modules; give the model, and compile "
            "the modules in it"
        )
    names = {parameter: name for name, parameter in model.named_parameters()}
    wanted = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if any(parameter not in names for parameter in wanted):
        raise ValueError("the optimizer has parameters that `model` does not have; give a module that has all of them")
    trained = [parameter for parameter in wanted if parameter.requires_grad]
    if not trained:
        raise ValueError("the optimizer has no parameter that requires a gradient")
    for parameter in trained:
        _check_parameter(names[parameter], parameter)
    for parameter in wanted:  # also frozen ones: the optimizer would step them with a gradient that is not averaged
        if parameter.grad is not None:
            raise ValueError(f"{names[parameter]} has a gradient already; call zero_grad() first")
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse and module.weight in set(trained):
            raise TypeError(
                f"the gradients of {name} are sparse, and scheduling takes dense ones: use sparse=False, or another "
                "optimizer for this module"
            )
    return trained


def _check_parameter(name: str, parameter: Tensor) -> None:
    if isinstance(parameter, DTensor):
        raise TypeError(f"{name} is a DTensor; each rank needs the whole parameter")
    if parameter.device.type != "cpu":
        raise TypeError(f"{name} is on {parameter.device}; scheduling takes parameters on the CPU")
    if parameter.dtype not in _DTYPES:
        raise TypeError(f"{name} is {parameter.dtype}; scheduling takes float32, float64, float16 and bfloat16")


def check_same(group: dist.ProcessGroup, buckets: Sequence[Bucket], arguments: object) -> None:
    """Raise unless all ranks have the same buckets and arguments.

    Raises:
        ValueError: they have not.

    """
    own = [
        (name, tuple(parameter.shape), str(parameter.dtype))
        for bucket in buckets
        for name, parameter in zip(bucket.names, bucket.parameters, strict=True)
    ]
    everyones: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyones, (own, arguments), group=group)
    for what, place in (("parameters", 0), ("arguments", 1)):
        others = [rank for rank, said in enumerate(everyones) if said[place] != everyones[0][place]]
        if others:
            raise ValueError(
                f"these ranks of the group have other {what} than rank 0: {rank_numbers(others)}; make the "
                "ScheduledOptimizer with the same model and arguments on all ranks"
            )
