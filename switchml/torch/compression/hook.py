"""Compression of the gradients of DistributedDataParallel.

DDP checks the annotations of hooks at run time, so this file does not use postponed evaluation of annotations.
"""

import json
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from switchml.client.arguments import whole_number
from switchml.torch.compression.compressor import Compressor, Outcome, Place, flagged, positive, together
from switchml.torch.compression.exchange import Exchange
from switchml.torch.compression.memory import Memory, NoMemory
from switchml.torch.compression.requests import Request
from switchml.torch.compression.sums import Dense
from switchml.torch.compression.table import memory_for

__all__ = ["CompressionState", "compression_hook", "rounds_of_bucket"]

_DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16)
_WARM_UP: Final[tuple[Compressor, Memory]] = Dense(), NoMemory()  # no state of a training is in them


class CompressionState:
    """The state of `compression_hook` for one model. All ranks of the group must make it at the same time.

    The residuals of error feedback and the like belong to parameters, by name. They are part of the training: save the
    state in checkpoints, and call `rescale`, or give `scale`, if a loss scale changes.

    If any rank has a gradient that is not finite, the averages of its whole bucket are NaN on all ranks, so that a
    GradScaler skips the step on all of them, and the memories of the bucket stay as they were.

    Attributes:
        compressor, memory: the method and its memory.
        step: the number of the current step, or of the next one; the first is 0.

    Args:
        model: the model, or the DistributedDataParallel of it.
        compressor: the method, which no other state uses.
        memory: "auto" for the one that the method is meant for, "none", or a new memory.
        group: the ranks; None for all.
        warm_up_steps: in this number of first steps, gradients are averaged without compression; None for those of the
            method.
        seed: of random numbers; the same on all ranks.
        scale: returns the factor of the loss, such as `GradScaler.get_scale`, before each step.
        timeout: seconds that a collective may take.

    Raises:
        ValueError: the compressor cannot be used with this memory or group, or a number is out of range.
        TypeError: an argument has a wrong type, or the group is not one of SwitchML.

    """

    def __init__(
        self,
        model: nn.Module,
        compressor: Compressor,
        memory: Memory | Literal["auto", "none"] = "auto",
        group: dist.ProcessGroup | None = None,
        warm_up_steps: int | None = None,
        seed: int = 0,
        scale: Callable[[], float] | None = None,
        timeout: float = 300.0,
    ) -> None:
        if not isinstance(compressor, Compressor):
            raise TypeError(f"compressor is {compressor!r}; make one with switchml.torch.compression.by_name")
        if warm_up_steps is None:
            warm_up_steps = compressor.warm_up_steps
        if whole_number(warm_up_steps, "warm_up_steps") < 0:
            raise ValueError(f"warm_up_steps is {warm_up_steps}; it must not be negative")
        self._seed = whole_number(seed, "seed")
        self._model = model
        self._sizes = self._sizes_of(model)
        self.compressor = compressor
        self.memory = memory_for(compressor, memory)
        self._exchange = self._exchange_of(compressor, group, timeout)
        self.memory.attach(self._sizes)
        self._warm_up_steps = warm_up_steps
        self._scale = scale
        self._last_scale: float | None = None
        self.step = 0
        self._begun = False  # the current step has submitted a bucket

    def _exchange_of(self, compressor: Compressor, group: dist.ProcessGroup | None, timeout: float) -> Exchange:
        return Exchange(compressor, group, timeout)

    @property
    def _rank(self) -> int:
        """The number of this rank among all that have a state."""
        return self._exchange.rank

    @property
    def _world_size(self) -> int:
        return self._exchange.size

    def _sizes_of(self, model: nn.Module) -> dict[str, int]:
        """Return the number of elements of each tensor that the memory keeps something for, by its name."""
        plain = model.module if isinstance(model, DistributedDataParallel) else model
        named = {name: parameter for name, parameter in plain.named_parameters() if parameter.requires_grad}
        self._names = {id(parameter): name for name, parameter in named.items()}
        return {name: parameter.numel() for name, parameter in named.items()}

    def submit(self, bucket: dist.GradBucket) -> Future[Tensor]:
        """Return the future of the averages of `bucket`, which will be in its buffer.

        Raises:
            TypeError: the gradients are not float32, float16 or bfloat16, are sparse, or are not on the CPU.
            RuntimeError: the model is in a `join` context, or an earlier bucket has failed.

        """
        buffer = bucket.buffer()
        self._require_usable(buffer)
        if bucket.index() == 0:
            self._begin_step()
        names = [self._name_of(parameter) for parameter in bucket.parameters()]
        if buffer.numel() == 0:
            empty: Future[Tensor] = Future()
            empty.set_result(buffer)
            return empty
        return self._average(buffer, dict(zip(names, buffer.split([self._sizes[name] for name in names]), strict=True)))

    def _average(self, buffer: Tensor, pieces: Mapping[str, Tensor]) -> Future[Tensor]:
        """Return the future of the averages of `buffer`, which consists of these pieces, and will have them."""
        compressor, memory = self._method_of_step()
        return self._exchange.submit(
            self._of_bucket(buffer, pieces, compressor, memory, self.step), compressor.requests
        )

    def _method_of_step(self) -> tuple[Compressor, Memory]:
        return _WARM_UP if self.step < self._warm_up_steps else (self.compressor, self.memory)

    def rescale(self, factor: float) -> None:
        """Multiply all that is kept in units of a gradient, because a loss scale was multiplied by `factor`.

        Raises:
            TypeError: `factor` is not a number.
            ValueError: it is not positive, or not finite.

        """
        factor = positive(factor, "factor")
        self.memory.rescale(factor)
        self.compressor.rescale(factor)

    # ---- checkpoints -----------------------------------------------------------------------------------------------

    def state_dict(self, world_size: int | None = None) -> dict[str, Any]:
        """Return the state of this rank; the keys of what only this rank has contain its number.

        Args:
            world_size: if given, return instead a dictionary into which torch.distributed.checkpoint can load the
                states of all ranks of a training with this number of ranks.

        """
        ranks = [self._rank] if world_size is None else list(range(world_size))
        state: dict[str, Any] = self._settings() | {
            "steps": self.step + self._begun,
            "seed": self._seed,
            "scale": self._last_scale or 0.0,
            "world_size": self._world_size if world_size is None else world_size,
        }
        for rank in ranks:
            state[f"rank {rank}: compressor"] = json.dumps(self.compressor.state_dict())
            for name, tensors in self.memory.tensors.items():
                for kind, tensor in tensors.items():
                    state[_key(rank, kind, name)] = tensor.clone()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of this rank, or from those of all ranks of a training with another number of ranks.

        In the second case every rank takes the mean of all residuals, so that the average that they stand for is kept.

        Raises:
            ValueError: the state is of another compressor, memory or model, or lacks ranks. Nothing has changed.

        """
        for what, own in self._settings().items():
            if state.get(what) != own:
                raise ValueError(f"the checkpoint is of the {what} {state.get(what)}, and this training has {own}")
        saved = int(state["world_size"])
        same = saved == self._world_size
        ranks = [self._rank] if same else list(range(saved))
        loaded = {
            (kind, name): _mean([_entry(state, rank, kind, name, saved) for rank in ranks], tensor, name)
            for name, tensors in self.memory.tensors.items()
            for kind, tensor in tensors.items()
        }
        self._require_same_model(state, ranks[0])
        for (kind, name), tensor in loaded.items():
            self.memory.tensors[name][kind].copy_(tensor)
        self.compressor.load_state_dict(json.loads(state[f"rank {self._rank % saved}: compressor"]))
        self.step, self._begun = int(state["steps"]), False
        self._seed = int(state["seed"])
        self._last_scale = float(state["scale"]) or None

    def _settings(self) -> dict[str, str]:
        options = ", ".join(f"{name}={value!r}" for name, value in self.memory.settings().items())
        return {"compressor": repr(self.compressor), "memory": f"{type(self.memory).__name__}({options})"}

    def _require_same_model(self, state: dict[str, Any], rank: int) -> None:
        for kind in self.memory.kinds:
            prefix = _key(rank, kind, "")
            theirs = {key.removeprefix(prefix) for key in state if key.startswith(prefix)}
            for name in sorted(theirs - set(self._sizes)):
                raise ValueError(f"the checkpoint has a parameter {name!r}, which this model does not have")

    # ---- one bucket ------------------------------------------------------------------------------------------------

    def _begin_step(self) -> None:
        if self._begun:
            self.step += 1
        self._begun = True
        if self._scale is not None:
            scale = float(self._scale())
            if self._last_scale is not None and scale != self._last_scale:
                self.rescale(scale / self._last_scale)
            self._last_scale = scale

    def _require_usable(self, buffer: Tensor) -> None:
        if buffer.is_sparse:
            raise TypeError(
                "compression takes dense gradients, and a parameter has sparse ones: leave it out of this model "
                "(docs/guides/pytorch.md, Sparse tensors), or use Embedding(sparse=False) with the method block_topk"
            )
        if buffer.dtype not in _DTYPES:
            raise TypeError(
                f"compression takes gradients of float32, float16 or bfloat16, not {buffer.dtype}; train the model in "
                "one of them, or without compression"
            )
        if buffer.device.type != "cpu":
            raise TypeError(f"compression takes gradients on the CPU, and these are on {buffer.device}")
        joining = getattr(self._model, "_join_config", None)
        if joining is not None and joining.enable:
            raise RuntimeError(
                "compression cannot be used in the context model.join(): a rank without inputs would change the "
                "residuals. Give all ranks the same number of inputs"
            )

    def _name_of(self, parameter: Tensor) -> str:
        name: str | None = self._names.get(id(parameter))
        if name is None:
            raise RuntimeError(
                f"a parameter of shape {tuple(parameter.shape)} in a bucket is not one of the model that this state "
                "was made for; make a CompressionState for each model, after its parameters"
            )
        return name

    def _of_bucket(
        self, buffer: Tensor, pieces: Mapping[str, Tensor], compressor: Compressor, memory: Memory, step: int
    ) -> Generator[Request, Tensor, Tensor]:
        """Average a bucket (in the threads of the exchange).

        Its parameters are in the order of their names. DDP's order is another one in the first step of a process than
        later, so a training that continues from a checkpoint would round other elements together.
        """
        bad = not _finite(buffer)
        filled = sorted((name, piece) for name, piece in pieces.items() if piece.numel())
        given = [memory.begin(name, torch.zeros(len(piece)) if bad else piece.float()) for name, piece in filled]
        places = [Place(name, step, self._exchange.rank, self._exchange.size, self._seed) for name, _ in filled]
        averaged = yield from flagged(rounds_of_bucket(compressor, given, places), bad)
        for number, (name, piece) in enumerate(filled):
            if averaged is None:
                memory.drop(name)
                piece.fill_(math.nan)
            else:
                memory.end(name, averaged[number].own)
                piece.copy_(averaged[number].average)
        return buffer


def compression_hook(state: CompressionState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average `bucket` over the ranks, as `state` says."""
    return state.submit(bucket)


def rounds_of_bucket(
    compressor: Compressor, given: Sequence[Tensor], places: Sequence[Place]
) -> Generator[Request, Tensor, list[Outcome]]:
    """Return the outcome of each parameter of a bucket."""
    if compressor.per == "parameter":
        return (yield from together([compressor.rounds(*of_one) for of_one in zip(given, places, strict=True)]))
    whole = given[0] if len(given) == 1 else torch.cat(list(given))
    outcome = yield from compressor.rounds(whole, places[0])
    sizes = [len(one) for one in given]
    averages = outcome.average.split(sizes)
    owns = [None] * len(sizes) if outcome.own is None else outcome.own.split(sizes)
    return [Outcome(average, own) for average, own in zip(averages, owns, strict=True)]


def _finite(x: Tensor) -> bool:
    """Return whether all elements are finite; in most cases their sum tells it, in one pass."""
    return bool(x.sum(dtype=torch.float32).isfinite()) or bool(x.isfinite().all())


def _key(rank: int, kind: str, name: str) -> str:
    return f"rank {rank}: {kind} of {name}"


def _entry(state: dict[str, Any], rank: int, kind: str, name: str, world_size: int) -> Tensor:
    """Return a tensor of a state.

    Raises:
        ValueError: it is not there.

    """
    key = _key(rank, kind, name)
    if key in state:
        tensor: Tensor = state[key]
        return tensor
    if not any(entry.startswith(f"rank {rank}: {kind}") for entry in state):
        raise ValueError(
            f"the checkpoint is of {world_size} ranks, and the state given lacks rank {rank}; load it into "
            f"state_dict(world_size={world_size}) first"
        )
    raise ValueError(f"the checkpoint has no parameter {name!r}, which this model has")


def _mean(entries: Sequence[Tensor], own: Tensor, name: str) -> Tensor:
    for entry in entries:
        if entry.shape != own.shape:
            raise ValueError(
                f"the checkpoint has {entry.numel()} elements of {name!r}, and this model has {own.numel()}"
            )
    total = entries[0].clone()
    for entry in entries[1:]:
        total += entry
    return total.div_(len(entries)) if len(entries) > 1 else total
