"""The interface of a compression method, and the tools with which several gradients share collectives."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor

from switchml.client.arguments import real_number
from switchml.torch.compression.requests import Request, join, lane_bits, split
from switchml.torch.process_group import SwitchMLProcessGroup

__all__ = [
    "Compressor",
    "MemoryName",
    "Outcome",
    "Place",
    "Rounds",
    "density_of",
    "flagged",
    "kept_elements",
    "positive",
    "together",
]

MemoryName = Literal["none", "error feedback", "momentum correction", "moving average"]
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Place:
    """The place of a gradient in a training: everything besides its values on which its compression depends.

    Attributes:
        name: the name of the parameter, or of the first one in a bucket.
        step: the number of the training step.
        rank, size: this rank, and the number of ranks.
        seed: of random numbers.

    """

    name: str
    step: int
    rank: int
    size: int
    seed: int = 0

    @property
    def leader(self) -> int:
        """The rank that decides for all of them in this step."""
        return self.step % self.size

    @property
    def shared_seed(self) -> int:
        """A number from 0 to 2^63 - 1 that is the same on all ranks."""
        return self._seed("all ranks")

    def generator(self) -> torch.Generator:
        """Return a generator of random numbers of this rank; torch's default generator is not used."""
        return torch.Generator().manual_seed(self._seed(f"rank {self.rank}"))

    def shared_generator(self) -> torch.Generator:
        """Return a generator of the same random numbers on all ranks."""
        return torch.Generator().manual_seed(self.shared_seed)

    def _seed(self, purpose: str) -> int:
        text = f"{self.seed}/{self.step}/{self.name}/{purpose}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


@dataclass(frozen=True)
class Outcome:
    """The outcome of the exchange of one gradient.

    Attributes:
        average: the average over all ranks, as far as the method transmits it; the same bits on all ranks.
        own: the gradient for which the contribution of this rank stands; None if the method does not know it.

    """

    average: Tensor
    own: Tensor | None = None


Rounds = Generator[Request, Tensor, Outcome]
"""The rounds of one gradient: yields a request for each, and gets its result."""


class Compressor(ABC):
    """A method of compression. Objects may serve many gradients at a time, from several threads."""

    name: ClassVar[str]
    """The name for `by_name`."""
    requests: ClassVar[tuple[type[Request], ...]]
    """The kinds of the requests of each gradient, in their order."""
    sent: ClassVar[str]
    """The bits that a rank sends for an element of the gradient, for the table of methods."""
    per: ClassVar[Literal["bucket", "parameter"]] = "bucket"
    """The gradients that `rounds` gets: whole buckets, or one parameter at a time."""
    positional: ClassVar[bool] = False
    """True if an element of the result depends only on the elements at the same place, so that it can be scattered."""
    selects: ClassVar[bool] = False
    """True if a contribution is zero but for some elements, which may be anywhere."""
    knows_own: ClassVar[bool] = True
    """True if the outcome has the gradient for which this rank's contribution stands, as error feedback needs."""
    unbiased: bool = False
    """True if the expected value of the result is the average."""
    memory: MemoryName = "none"
    """The memory that the method is meant for."""
    warm_up_steps: int = 0
    """The number of first steps that are averaged without compression, unless the user says otherwise."""
    bound: int = 0
    """The largest integer in a `Sum`, if it has one."""

    @abstractmethod
    def rounds(self, gradient: Tensor, place: Place) -> Rounds:
        """Exchange one gradient: one-dimensional, float32, finite, with at least one element, only read."""

    def check(self, world_size: int) -> None:
        """Check that the method can be used by a group of this size.

        Raises:
            ValueError: it cannot.

        """
        if self.bound:
            try:
                lane_bits(self.bound, world_size)
            except ValueError as error:
                raise ValueError(f"{self.name}: {error}") from None

    def attach(self, groups: Sequence[SwitchMLProcessGroup]) -> None:  # noqa: B027 - most do not need them
        """Get the process groups of the rounds, one for each of `requests`, before the first gradient.

        Raises:
            ValueError: the method cannot be used in such groups.

        """

    def rescale(self, factor: float) -> None:  # noqa: B027 - most have nothing in such units
        """Multiply whatever is in units of a gradient: from now on all gradients are larger by `factor`."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this rank that a checkpoint needs."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027 - most have none
        """Continue with a state from a checkpoint of the same rank."""

    def settings(self) -> dict[str, Any]:
        """Return the arguments with which this object was made; ranks and checkpoints must have the same ones."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __repr__(self) -> str:
        """Return the call of `by_name` that makes an equal one."""
        options = "".join(f", {name}={value!r}" for name, value in self.settings().items())
        return f"by_name({self.name!r}{options})"


def together(parts: Sequence[Generator[Request, Tensor, ResultT]]) -> Generator[Request, Tensor, list[ResultT]]:
    """Run several generators at a time, with one request for all of their requests of a round."""
    answers: list[Any] = [None] * len(parts)
    while True:
        requests: list[Request] = []
        results: list[ResultT] = []
        for part, answer in zip(parts, answers, strict=True):
            ended = next_of(part, answer)
            if isinstance(ended, Request):
                requests.append(ended)
            else:
                results.append(ended)
        if len(results) == len(parts):
            return results
        if results:
            raise RuntimeError(f"{len(results)} of {len(parts)} gradients took fewer rounds than the others")
        answers = split((yield join(requests)), requests)


def flagged(rounds: Generator[Request, Tensor, ResultT], bad: bool) -> Generator[Request, Tensor, ResultT | None]:
    """Run `rounds` with a flag in the first request to which all ranks contribute; return None if any rank raised it.

    Args:
        rounds: of a gradient that is finite, in any case.
        bad: this rank raises the flag.

    """
    asked, any_bad = False, False
    answer: Any = None
    while True:
        request = next_of(rounds, answer)
        if not isinstance(request, Request):
            return None if any_bad else request
        if asked or not request.from_all:
            answer = yield request
        else:
            asked = True
            answer, any_bad = request.without_flag((yield request.flagged(bad)))


def next_of(rounds: Generator[Request, Tensor, ResultT], answer: Any) -> Request | ResultT:
    """Give `answer` to a generator (None to start it); return its next request, or its result if it has ended."""
    try:
        return rounds.send(answer)
    except StopIteration as end:
        result: ResultT = end.value
        return result


def density_of(density: float) -> float:
    """Return `density`, the share of elements that are sent, as a float.

    Raises:
        TypeError: it is not a number.
        ValueError: it is not above 0 and at most 1.

    """
    share = real_number(density, "density")
    if not 0 < share <= 1:
        raise ValueError(f"density is {density!r}; it must be above 0 and at most 1")
    return share


def kept_elements(density: float, elements: int) -> int:
    """Return how many of `elements` are sent: at least one."""
    return max(1, int(elements * density))


def positive(value: float, name: str) -> float:
    """Return `value` as a float.

    Raises:
        TypeError: it is not a number.
        ValueError: it is not positive, or not finite.

    """
    number = real_number(value, name)
    if not 0 < number < float("inf"):
        raise ValueError(f"{name} is {value!r}; it must be a positive number")
    return number
