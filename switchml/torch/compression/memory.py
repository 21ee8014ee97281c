"""The memories of a rank: tensors that it keeps from step to step, by the names of parameters.

DDP changes the layout of its buckets after the first backward pass, so nothing is kept by bucket.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from switchml.client.arguments import real_number
from switchml.torch.compression.compressor import MemoryName, positive

__all__ = ["ErrorFeedback", "Memory", "MomentumCorrection", "MovingAverage", "NoMemory", "memory_of"]


class Memory(ABC):
    """The tensors that one rank keeps for each parameter. An object belongs to one `CompressionState`.

    For each gradient, `begin` returns the values to send; then either `end` remembers what was sent, or `drop` leaves
    the tensors as they were before.
    """

    name: ClassVar[MemoryName]
    kinds: ClassVar[tuple[str, ...]]
    """The tensors of a parameter."""
    needs_own: ClassVar[bool] = False
    """True if `end` needs to know what was sent."""

    def __init__(self) -> None:
        self.tensors: dict[str, dict[str, Tensor]] = {}
        self._begun: dict[str, tuple[Tensor, ...]] = {}

    def attach(self, sizes: Mapping[str, int]) -> None:
        """Make the tensors, of zeros, for parameters with these names and numbers of elements.

        Raises:
            ValueError: this object already has tensors.

        """
        if self.tensors:
            raise ValueError(f"{type(self).__name__} already belongs to another CompressionState; make a new one")
        self.tensors = {name: {kind: torch.zeros(size) for kind in self.kinds} for name, size in sizes.items()}

    @abstractmethod
    def begin(self, name: str, gradient: Tensor) -> Tensor:
        """Return the values to send for a new gradient, which is only read."""

    @abstractmethod
    def end(self, name: str, own: Tensor | None) -> None:
        """Remember that `own` was sent for the gradient."""

    def drop(self, name: str) -> None:
        """Forget that `begin` was called."""
        self._begun.pop(name, None)

    def rescale(self, factor: float) -> None:
        """Multiply all tensors by `factor`."""
        for tensors in self.tensors.values():
            for tensor in tensors.values():
                tensor.mul_(factor)

    def settings(self) -> dict[str, float]:
        """Return the arguments with which this object was made."""
        return {name: value for name, value in vars(self).items() if isinstance(value, float)}


class NoMemory(Memory):
    """Sends gradients as they are, and remembers nothing."""

    name = "none"
    kinds = ()

    def begin(self, name: str, gradient: Tensor) -> Tensor:
        """Return the gradient."""
        return gradient

    def end(self, name: str, own: Tensor | None) -> None:
        """Do nothing."""


class ErrorFeedback(Memory):
    """Adds what was not sent to the next gradient.

    Args:
        beta: factor of the residual.
        gamma: factor of the gradient.

    """

    name = "error feedback"
    kinds = ("residual",)
    needs_own = True

    def __init__(self, beta: float = 1.0, gamma: float = 1.0) -> None:
        super().__init__()
        self.beta = positive(beta, "beta")
        self.gamma = positive(gamma, "gamma")

    def begin(self, name: str, gradient: Tensor) -> Tensor:
        """Return the sum of the gradient and the residual."""
        residual = self.tensors[name]["residual"]
        plain = self.beta == self.gamma == 1  # saves two passes
        whole = gradient + residual if plain else self.gamma * gradient + self.beta * residual
        self._begun[name] = (whole,)
        return whole

    def end(self, name: str, own: Tensor | None) -> None:
        """Keep the difference between the values to send and those that were sent."""
        [whole] = self._begun.pop(name)
        assert own is not None
        torch.sub(whole, own, out=self.tensors[name]["residual"])


class MomentumCorrection(Memory):
    """Sums up a momentum instead of gradients, and forgets both where a value was sent (Deep Gradient Compression).

    The optimizer's momentum must then be 0.

    Args:
        momentum: factor of the momentum at each step.

    """

    name = "momentum correction"
    kinds = ("momentum", "sum")
    needs_own = True

    def __init__(self, momentum: float = 0.9) -> None:
        super().__init__()
        self.momentum = _below_one(momentum, "momentum")

    def begin(self, name: str, gradient: Tensor) -> Tensor:
        """Return the sum of the momenta that were not sent."""
        kept = self.tensors[name]
        momentum = self.momentum * kept["momentum"] + gradient
        total = kept["sum"] + momentum
        self._begun[name] = (momentum, total)
        return total

    def end(self, name: str, own: Tensor | None) -> None:
        """Keep both where nothing was sent."""
        momentum, total = self._begun.pop(name)
        assert own is not None
        unsent = own == 0
        kept = self.tensors[name]
        torch.mul(momentum, unsent, out=kept["momentum"])
        torch.mul(total, unsent, out=kept["sum"])


class MovingAverage(Memory):
    """Sends the moving average of the gradients (SIGNUM).

    Args:
        momentum: weight of the earlier average.

    """

    name = "moving average"
    kinds = ("average",)

    def __init__(self, momentum: float = 0.9) -> None:
        super().__init__()
        self.momentum = _below_one(momentum, "momentum")

    def begin(self, name: str, gradient: Tensor) -> Tensor:
        """Return the new average."""
        average = (1 - self.momentum) * gradient + self.momentum * self.tensors[name]["average"]
        self._begun[name] = (average,)
        return average

    def end(self, name: str, own: Tensor | None) -> None:
        """Keep the average."""
        [average] = self._begun.pop(name)
        self.tensors[name]["average"].copy_(average)


def memory_of(name: MemoryName) -> Memory:
    """Return a new memory with its usual settings."""
    kinds: tuple[type[Memory], ...] = (NoMemory, ErrorFeedback, MomentumCorrection, MovingAverage)
    return next(kind for kind in kinds if kind.name == name)()


def _below_one(value: float, name: str) -> float:
    number = real_number(value, name)
    if not 0 <= number < 1:
        raise ValueError(f"{name} is {value!r}; it must be at least 0 and below 1")
    return number
