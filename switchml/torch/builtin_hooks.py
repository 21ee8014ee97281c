"""PyTorch's built-in communication hooks (`DistributedDataParallel._register_builtin_comm_hook`) on SwitchML groups.

The built-in hooks are C++, and assert that the future of an all-reduce holds a list of tensors in C++. A future that is
made in Python holds a Python object, and PyTorch has no way to make the other kind. So models on a SwitchML group get
equivalent hooks in Python instead.

DDP checks the annotations of hooks at run time, so this file does not use postponed evaluation of annotations.
"""

import functools
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from switchml.torch.device_backend import switchml_group
from switchml.torch.hooks import all_reduce_hook

__all__ = ["replace_builtin_hooks"]


def _fp16_compress_hook(
    process_group: dist.ProcessGroup | None, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Average `bucket` in float16."""
    buffer = bucket.buffer()
    compressed = buffer.to(torch.float16)
    work = dist.all_reduce(compressed, op=dist.ReduceOp.AVG, group=process_group, async_op=True)
    return work.get_future().then(lambda future: buffer.copy_(future.value()[0]))


_HOOKS: Final = {
    dist.BuiltinCommHookType.ALLREDUCE: all_reduce_hook,
    dist.BuiltinCommHookType.FP16_COMPRESS: _fp16_compress_hook,
}


@functools.cache
def replace_builtin_hooks() -> None:
    """Make models on a SwitchML group register hooks in Python instead of the built-in ones."""
    builtin = DistributedDataParallel._register_builtin_comm_hook

    @functools.wraps(builtin)
    def register(model: Any, comm_hook_type: Any) -> None:
        if switchml_group(model.process_group) is None:
            builtin(model, comm_hook_type)
            return
        model.logger._set_comm_hook_name(str(comm_hook_type))
        dist._register_comm_hook(model.reducer, model.process_group, _HOOKS[comm_hook_type])

    DistributedDataParallel._register_builtin_comm_hook = register
