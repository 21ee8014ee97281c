"""One rank of the study: `python -m studies.bytescheduler.rank BACKEND SOCKET`.

Its commands (torch_rank.py), with a model of BYTES whose forward pass takes SECONDS:

    costs BYTES SECONDS CALLS            the median seconds of each layer alone, and of sums of all gradients
    begin POLICY BYTES SECONDS WARM_UP   a new model, with a policy as `options.policy` describes it, and first steps
    steps STEPS                          further steps, the last ones

The layers have real parameters, gradients and steps, but few computations: in the time that they would take, the rank
sleeps, like one whose model is on a device. The ranks on one machine do not wait for each other's computing.
"""

from __future__ import annotations

import hashlib
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from studies.bytescheduler.policies import policy
from studies.bytescheduler.simulation import Layer, vgg_like
from switchml.benchmarks.workers.torch_rank import serve
from switchml.torch.scheduling import ScheduledOptimizer
from switchml.torch.scheduling.buckets import GRAIN

__all__ = ["main"]

_WIDTH: Final = 1024
_BATCH: Final = 2
_RATE: Final = 1e-4
_MOMENTUM: Final = 0.9


class _Busy(torch.autograd.Function):  # type: ignore[misc]
    """Returns its input after some time, and its gradient after another time."""

    @staticmethod
    def forward(context: Any, x: Tensor, seconds: float, backward_seconds: float) -> Tensor:
        context.seconds = backward_seconds
        time.sleep(seconds)
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        time.sleep(context.seconds)
        return *gradients, None, None


class _Residual(nn.Module):  # type: ignore[misc]
    """A layer of `size` bytes that takes its time."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(layer.size // 4 // _WIDTH, _WIDTH) / _WIDTH)
        self._layer = layer

    def forward(self, x: Tensor) -> Tensor:
        changed = x + (x @ self.weight.T).mean(-1, keepdim=True)
        return _Busy.apply(changed, self._layer.forward, self._layer.backward)


def _model(layers: list[Layer]) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*map(_Residual, layers))


def _optimizer(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), _RATE, _MOMENTUM)


def _data() -> Tensor:
    return torch.randn(_BATCH, _WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))


def _costs(size: str, seconds: str, calls: str) -> dict[str, Any]:
    """Time each layer and all sums alone, at the same time on all ranks."""
    layers = vgg_like(int(size), float(seconds), GRAIN)
    found = []
    for layer in _model(layers):
        optimizer = _optimizer(layer)
        times = [_pass(layer, optimizer) for _ in range(int(calls) + 1)][1:]
        forward, backward = (statistics.median(of_one) for of_one in zip(*times, strict=True))
        found.append({"forward": forward, "backward": backward})
    whole = torch.randn(sum(layer.size for layer in layers) // 4)
    sums = []
    for _ in range(int(calls) + 1):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(whole, op=dist.ReduceOp.AVG)
        sums.append(time.perf_counter() - begin)
    return {"layers": found, "sums": sums[1:], "sizes": [layer.size for layer in layers], "grain": GRAIN}


def _pass(layer: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[float, float]:
    """Return the seconds of a step and a forward pass of the layer, and those of its backward pass."""
    x = _data().requires_grad_()
    begin = time.perf_counter()
    optimizer.step()
    y = layer(x)
    middle = time.perf_counter()
    optimizer.zero_grad()
    y.square().mean().backward()
    return middle - begin, time.perf_counter() - middle


class _Training:
    """A new model, and its first steps."""

    def __init__(self, word: str, size: str, seconds: str, warm_up: str) -> None:
        self._model = _model(vgg_like(int(size), float(seconds), GRAIN))
        self._optimizer = ScheduledOptimizer(_optimizer(self._model), self._model, policy(word))
        self._data = _data()
        for _ in range(int(warm_up)):
            self._step()

    def _step(self) -> float:
        """Make a step; return the time at its end."""
        self._model(self._data).square().mean().backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return time.perf_counter()

    def last_steps(self, steps: str) -> dict[str, Any]:
        """Make steps, and return the time between the ends of one and the next."""
        ends = [self._step() for _ in range(int(steps) + 1)]
        self._optimizer.close()
        digest = hashlib.sha256()
        for parameter in self._model.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        seconds = [end - begin for begin, end in itertools.pairwise(ends)]
        return {"seconds": seconds, "digest": digest.hexdigest()}


def main() -> int:
    """Serve until the end; return the exit status."""
    trainings: list[_Training] = []

    def begin(*words: str) -> dict[str, Any]:
        trainings[:] = [_Training(*words)]
        return {}

    def steps(number: str) -> dict[str, Any]:
        return trainings.pop().last_steps(number)

    commands: dict[str, Callable[..., dict[str, Any]]] = {"costs": _costs, "begin": begin, "steps": steps}
    return serve(lambda command, *words: commands[command](*words), trainings.clear)


if __name__ == "__main__":
    sys.exit(main())
