"""One rank of `bench ddp`: `python -m switchml.benchmarks.workers.steps BACKEND SOCKET`.

It joins a process group of torch.distributed with this backend (switchml or gloo), connects to the benchmark's Unix
socket, sends {"rank", "pid", "share"} and then answers commands, one per line, with one line of JSON:

    step WRAPPER STEPS WARM_UP   steps of a model wrapped by ddp (DistributedDataParallel), fsdp (fully_shard)
                                or fsdp-overlap (the same with switchml.torch.fsdp.overlap)
    digest WRAPPER
    end

The first answer has the "seconds" of each step, the second one the number of "parameters" and a "digest" of all of
them, which must be the same on all ranks. A failure is answered by {"error"}, and the rank ends.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn

from switchml.benchmarks.workers import STEP_LAYERS
from switchml.benchmarks.workers.torch_rank import serve
from switchml.torch.fsdp import overlap

__all__ = ["main"]

_WIDTH: Final = 1024  # four layers of 1024 x 1024 and their biases: 4.2 million parameters, 16 MiB
_BATCH: Final = 8
_BUCKET_MEGABYTES: Final = 4  # one layer each


def _network() -> Any:
    torch.manual_seed(1)
    return nn.Sequential(*(part for _ in range(STEP_LAYERS) for part in (nn.Linear(_WIDTH, _WIDTH), nn.ReLU())))


def _ddp() -> Any:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(_network(), bucket_cap_mb=_BUCKET_MEGABYTES, gradient_as_bucket_view=True)


def _fsdp() -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    network = _network()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in network:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(network, mesh=mesh)


def _fsdp_overlap() -> Any:
    network = _fsdp()
    overlap(network)
    return network


WRAPPERS: Final[dict[str, Callable[[], Any]]] = {"ddp": _ddp, "fsdp": _fsdp, "fsdp-overlap": _fsdp_overlap}


class Training:
    """A wrapped model and its optimizer; each rank has its own data."""

    def __init__(self, wrapper: str) -> None:
        self._model = WRAPPERS[wrapper]()
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3)
        self._data = torch.randn(_BATCH, _WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))

    def step(self) -> float:
        """Make one step, and return its seconds."""
        dist.barrier()
        begin = time.perf_counter()
        self._model(self._data).square().mean().backward()
        self._optimizer.step()
        elapsed = time.perf_counter() - begin
        self._optimizer.zero_grad()
        return elapsed

    def steps(self, steps: int, warm_up: int) -> dict[str, Any]:
        """Make steps, and return their seconds."""
        return {"seconds": [self.step() for _ in range(warm_up + steps)][warm_up:]}

    def digest(self) -> dict[str, Any]:
        """Return the number of parameters and their digest; gather them from the ranks where they are sharded."""
        total, digest = 0, hashlib.sha256()
        for parameter in self._model.parameters():
            whole = (parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter).detach()
            digest.update(whole.numpy().tobytes())
            total += whole.numel()
        return {"parameters": total, "digest": digest.hexdigest()}


def main() -> int:
    """Serve until the end; return the exit status."""
    trainings: dict[str, Training] = {}

    def answer(command: str, wrapper: str, *numbers: str) -> dict[str, Any]:
        if wrapper not in trainings:
            trainings[wrapper] = Training(wrapper)
        training = trainings[wrapper]
        return training.digest() if command == "digest" else training.steps(*map(int, numbers))

    return serve(answer, trainings.clear)


if __name__ == "__main__":
    sys.exit(main())
