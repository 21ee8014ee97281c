"""Operations over Gloo that only move data, also for dtypes that Gloo does not support."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions

from switchml.client.keyed_rows import merged
from switchml.torch.deadlines import Deadline

__all__ = ["all_gather_over_gloo", "barrier_over_gloo", "broadcast_over_gloo", "union_over_gloo"]


def all_gather_over_gloo(gloo: Any, output: Tensor, given: Tensor, timeout: timedelta) -> Any:
    """Start an all-gather of contiguous tensors, and return Gloo's work."""
    options = AllgatherOptions()
    options.timeout = timeout
    return gloo._allgather_base(_bytes_of(output), _bytes_of(given), options)


def broadcast_over_gloo(gloo: Any, tensor: Tensor, root: int, timeout: timedelta) -> Any:
    """Start a broadcast of a contiguous tensor, and return Gloo's work."""
    options = dist.BroadcastOptions()
    options.rootRank = root
    options.timeout = timeout
    return gloo.broadcast([_bytes_of(tensor)], options)


def barrier_over_gloo(gloo: Any, timeout: timedelta) -> Any:
    """Start a barrier, and return Gloo's work."""
    options = dist.BarrierOptions()
    options.timeout = timeout
    return gloo.barrier(options)


def union_over_gloo(gloo: Any, keys: Tensor, world_size: int, deadline: Deadline) -> Tensor:
    """Return the union of the int64 `keys` of all ranks, as `Communicator.union_of_keys` does."""
    counts = torch.empty(world_size, dtype=torch.int64)
    all_gather_over_gloo(gloo, counts, torch.tensor([len(keys)]), deadline.left).wait()
    padded = torch.full((int(counts.max()),), -1)
    padded[: len(keys)] = keys
    table = torch.empty((world_size, len(padded)), dtype=torch.int64)
    all_gather_over_gloo(gloo, table, padded, deadline.left).wait()
    return torch.from_numpy(np.ascontiguousarray(merged(table.numpy(), counts.numpy())))


def _bytes_of(tensor: Tensor) -> Tensor:
    """Return a view of the memory of a contiguous tensor."""
    return tensor.flatten().view(torch.uint8)
