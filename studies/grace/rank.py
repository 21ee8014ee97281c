"""One rank of the study: `python -m studies.grace.rank BACKEND SOCKET`.

Its commands (torch_rank.py), with methods as `options.methods` describes them:

    compute METHOD ELEMENTS CALLS          rank 0 compresses and decompresses; the seconds of each call
    step METHOD ELEMENTS STEPS WARM_UP     steps of a model with this number of parameters
    train TASK METHOD STEPS SEED FACTOR MOMENTUM
                                           a training of one of TRAININGS from its beginning; its learning rate
                                           is FACTOR times that of the task

The answers to the last two have the "bytes" of values that this rank has put into packets (None with Gloo, whose bytes
only the link counts) and a "digest" of all parameters, which must be the same on all ranks.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from studies.grace.arguments import method_arguments
from studies.grace.tasks import Characters, Digits, Linear, Ratings, Shapes, TrainingTask
from switchml import Blocks
from switchml.benchmarks.workers.torch_rank import serve
from switchml.torch import Options, compression, hooks, statistics
from switchml.torch.compression.computing import timed_rounds

__all__ = ["main"]

_BUCKET_MEGABYTES: Final = 16
_TASKS: Final[dict[str, type[Any]]] = {"digits": Digits, "text": Characters, "ratings": Ratings, "shapes": Shapes}
_POINTS: Final = 20  # of a curve of accuracy


class GraceTraining:
    """A task under DistributedDataParallel, whose gradients take the way that was chosen last."""

    def __init__(self, task: TrainingTask) -> None:
        self._task = task
        self._model = DistributedDataParallel(task.model, bucket_cap_mb=_BUCKET_MEGABYTES, gradient_as_bucket_view=True)
        self._ways: dict[str, tuple[Any, Any]] = {}
        self._chosen: tuple[Any, Any] | None = None
        self._model.register_comm_hook(self, _by_chosen_way)
        self._number = 0
        self._optimizer = task.optimizer(1.0, 0.0)

    def choose(self, method: str, factor: float = 1.0, momentum: float = 0.0) -> None:
        """Send gradients with `method`, and make steps with `factor` times the learning rate, from now on.

        A memory that corrects momentum has the only one.
        """
        if method not in self._ways:
            self._ways[method] = _way(method, self._model)
        self._chosen = self._ways[method]
        state = self._chosen[0]
        signs = method.split(":")[0] in ("signsgd", "signum")
        corrected = isinstance(getattr(state, "memory", None), compression.MomentumCorrection)
        factor *= self._task.sign_factor if signs else 1.0
        self._optimizer = self._task.optimizer(factor, 0.0 if corrected else momentum)

    def hook(self, bucket: dist.GradBucket) -> Any:
        """Average a bucket by the chosen way."""
        assert self._chosen is not None
        state, hook = self._chosen
        return hook(state, bucket)

    def step(self) -> float:
        """Make one step, and return its seconds."""
        dist.barrier()
        begin = time.perf_counter()
        self._task.loss(self._model, dist.get_rank(), dist.get_world_size(), self._number).backward()
        self._optimizer.step()
        elapsed = time.perf_counter() - begin
        self._optimizer.zero_grad(set_to_none=False)
        self._number += 1
        return elapsed

    def curve(self, steps: int) -> list[list[float]]:
        """Make steps; return [steps so far, bytes so far, accuracy on rank 0] from time to time, and at the end."""
        found: list[list[float]] = []
        schedule = self._task.schedule(self._optimizer, steps)
        before = statistics()["wire_bytes"]
        for number in range(1, steps + 1):
            self.step()
            schedule.step()
            if number % max(1, steps // _POINTS) == 0 or number == steps:
                accuracy = self._task.accuracy() if dist.get_rank() == 0 else 0.0
                found.append([number, statistics()["wire_bytes"] - before, accuracy])
        return found

    def about(self) -> dict[str, Any]:
        """Return the number of parameters and their digest."""
        digest = hashlib.sha256()
        for parameter in self._task.model.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        total = sum(parameter.numel() for parameter in self._task.model.parameters())
        return {"parameters": total, "digest": digest.hexdigest()}


def _by_chosen_way(training, bucket):  # type: ignore[no-untyped-def]  # DDP compares annotations with types
    return training.hook(bucket)


def _way(method: str, model: DistributedDataParallel) -> tuple[Any, Any]:
    """Return the state and the communication hook of a method."""
    name, arguments = method_arguments(method)
    if name == "gloo":
        return dist.new_group(backend="gloo"), hooks.all_reduce_hook
    if name == "none":
        return None, hooks.all_reduce_hook
    if name == "wire":
        return dist.new_group(pg_options=Options(wire=Blocks(arguments["bits"]))), hooks.all_reduce_hook
    if name == "powersgd":
        return _power_sgd(**arguments)
    return compression.CompressionState(model, compression.by_name(name, **arguments)), compression.compression_hook


def _power_sgd(rank: int, start: int = 2) -> tuple[Any, Any]:
    """Return the state and the hook of PyTorch's PowerSGD, which sums the gradients of the first `start` steps."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=start)
    return hooks.InOrder(state, powerSGD_hook.powerSGD_hook), hooks.in_order_hook


def _compute(method: str, elements: str, calls: str) -> dict[str, Any]:
    """Time the work of a method itself on rank 0, while the other ranks sleep.

    The work of native code to send values, such as the rounding of narrow lanes, is not in these times.
    """
    name, arguments = method_arguments(method)
    if dist.get_rank() != 0 or name not in compression.METHODS or name == "none":
        return {"compress": [], "decompress": []}
    compressor = compression.by_name(name, **arguments)
    gradient = torch.randn(int(elements), generator=torch.Generator().manual_seed(1))
    found: dict[str, list[float]] = {"compress": [], "decompress": []}
    for number in range(1 + int(calls)):
        place = compression.Place("gradient", number, 0, dist.get_world_size())
        before, after = timed_rounds(compressor, gradient, place)
        if number:  # the first call touches the memory
            found["compress"].append(before)
            found["decompress"].append(after)
    return found


def main() -> int:
    """Serve until the end; return the exit status."""
    linear: dict[str, GraceTraining] = {}

    def step(method: str, elements: str, steps: str, warm_up: str) -> dict[str, Any]:
        if elements not in linear:
            linear[elements] = GraceTraining(Linear(int(elements), seed=1))
        training = linear[elements]
        training.choose(method)
        for _ in range(int(warm_up)):
            training.step()
        before = statistics()["wire_bytes"]
        seconds = [training.step() for _ in range(int(steps))]
        sent = None if method == "gloo" else statistics()["wire_bytes"] - before
        return {"seconds": seconds, "bytes": sent} | training.about()

    def train(task: str, method: str, steps: str, seed: str, factor: str, momentum: str) -> dict[str, Any]:
        training = GraceTraining(_TASKS[task](int(seed)))
        training.choose(method, float(factor), float(momentum))
        return {"curve": training.curve(int(steps))} | training.about()

    commands: dict[str, Callable[..., dict[str, Any]]] = {"compute": _compute, "step": step, "train": train}
    return serve(lambda command, *words: commands[command](*words), linear.clear)


if __name__ == "__main__":
    sys.exit(main())
