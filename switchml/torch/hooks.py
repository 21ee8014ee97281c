"""Communication hooks for `torch.nn.parallel.DistributedDataParallel`.

    model.register_comm_hook(None, hooks.all_reduce_hook)
    model.register_comm_hook(hooks.PriorityState(), hooks.priority_hook)
    model.register_comm_hook(hooks.InOrder(state, powerSGD_hook.powerSGD_hook), hooks.in_order_hook)

The first two average the gradients over the ranks and give the same bits; `priority_hook` chooses the order of the
transfers. `in_order_hook` runs a hook of another library for one bucket after another.

DDP checks the annotations of hooks at run time, so this file does not use postponed evaluation of annotations.
"""

import torch
import torch.distributed as dist

from switchml.torch.in_order import InOrder
from switchml.torch.priority import PriorityState

__all__ = ["InOrder", "PriorityState", "all_reduce_hook", "in_order_hook", "priority_hook"]


def all_reduce_hook(
    process_group: dist.ProcessGroup | None, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Average `bucket` over the ranks of `process_group` (None: all), rounding once.

    Without a hook DDP divides before it sums, which costs one more pass over the gradients and one more rounding.
    """
    work = dist.all_reduce(bucket.buffer(), op=dist.ReduceOp.AVG, group=process_group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def priority_hook(state: PriorityState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average `bucket` over the ranks; gradients that the next forward pass needs first go first (`PriorityState`)."""
    return state.submit(bucket)


def in_order_hook(state: InOrder, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Run the hook of `state` for `bucket` after it has ended for the previous bucket, see `InOrder`."""
    return state.submit(bucket)
