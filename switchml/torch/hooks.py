"""Communication hooks for `torch.nn.parallel.DistributedDataParallel`.

    model.register_comm_hook(None, hooks.all_reduce_hook)
    model.register_comm_hook(hooks.InOrder(state, powerSGD_hook.powerSGD_hook), hooks.in_order_hook)

The first one averages the gradients over the ranks. `in_order_hook` runs a hook of another library for one bucket after
another. For the order in which the next forward pass needs gradients, see `switchml.torch.scheduling`.

DDP checks the annotations of hooks at run time, so this file does not use postponed evaluation of annotations.
"""

import torch
import torch.distributed as dist

from switchml.torch.in_order import InOrder

__all__ = ["InOrder", "all_reduce_hook", "in_order_hook"]


def all_reduce_hook(
    process_group: dist.ProcessGroup | None, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Average `bucket` over the ranks of `process_group` (None: all), rounding once.

    Without a hook DDP divides before it sums, which costs one more pass over the gradients and one more rounding.
    """
    work = dist.all_reduce(bucket.buffer(), op=dist.ReduceOp.AVG, group=process_group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def in_order_hook(state: InOrder, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Run the hook of `state` for `bucket` after it has ended for the previous bucket, see `InOrder`."""
    return state.submit(bucket)
