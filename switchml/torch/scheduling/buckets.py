"""Buckets: the parameters of neighbouring modules, whose gradients lie in one flat tensor."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

__all__ = ["GRAIN", "Bucket", "Buckets", "Travelling"]

GRAIN: Final = 2048 * 8
"""Bytes: a bucket is cut at multiples of any packet of any type, so that cuts do not change quantization blocks."""
_WORDS: Final = 2


class Travelling(Tensor):  # type: ignore[misc]
    """The gradient of a parameter while it is sent. It has no values, and every use raises.

    Raises:
        RuntimeError: it was used.

    """

    @classmethod
    def of(cls, parameter: Tensor) -> Tensor:
        """Return one with the shape of a parameter; it takes no memory."""
        return cast(Tensor, torch.zeros((), dtype=parameter.dtype).expand(parameter.shape).as_subclass(cls))

    @classmethod
    def __torch_function__(
        cls, function: Any, _types: Any, _arguments: Any = (), _keywords: dict[str, Any] | None = None
    ) -> Any:
        """Raise for every operation."""
        raise RuntimeError(
            f"{getattr(function, '__name__', function)} uses a gradient that is being averaged with those of other "
            "ranks. To clip gradients, call clip_grad_norm_() of the ScheduledOptimizer in place of the one in "
            "torch.nn.utils; to see them, call its average_gradients() first"
        )


class Bucket:
    """Parameters of one type, and their gradients.

    Attributes:
        names, parameters: the parameters; `first` is the number of the first one among those of all buckets.
        buffer: their gradients, flat.
        views: the same, by parameter.

    """

    def __init__(self, named: Sequence[tuple[str, nn.Parameter]], first: int) -> None:
        self.names = [name for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        self.first = first
        sizes = [parameter.numel() for parameter in self.parameters]
        self.buffer = torch.zeros(sum(sizes), dtype=self.parameters[0].dtype)
        pieces = self.buffer.split(sizes)
        self.views = [piece.view(one.shape) for piece, one in zip(pieces, self.parameters, strict=True)]


class Buckets:
    """All buckets of a model, and how many ranks have a gradient of each parameter.

    Args:
        model: the model.
        wanted: those of its parameters that are trained.
        least_bytes: parameters of neighbouring modules are in one bucket until it has this many bytes.

    Attributes:
        list: the buckets.
        place: of each parameter: the number of its bucket, and its index there.
        buffers: what is sent: the gradients of each bucket, and then the counts.

    """

    def __init__(self, model: nn.Module, wanted: Iterable[Tensor], least_bytes: int) -> None:
        self.list = _make_buckets(model, wanted, least_bytes)
        self.place = {
            parameter: (number, index)
            for number, bucket in enumerate(self.list)
            for index, parameter in enumerate(bucket.parameters)
        }
        self._counts = torch.zeros(len(self.place) + _WORDS, dtype=torch.int32)
        self.buffers = [*(bucket.buffer for bucket in self.list), self._counts]

    @property
    def sizes(self) -> list[int]:
        """Bytes of each bucket."""
        return [bucket.buffer.nbytes for bucket in self.list]

    @property
    def counts_number(self) -> int:
        """The number of the counts among the buffers."""
        return len(self.list)

    def name_of(self, parameter: Tensor) -> str:
        """Return the name of a parameter in the model."""
        number, index = self.place[parameter]
        return self.list[number].names[index]

    def view_of(self, parameter: Tensor) -> Tensor:
        """Return the memory of a parameter's gradient, in the parameter's shape."""
        number, index = self.place[parameter]
        return self.list[number].views[index]

    def are_in(self, number: int, taken: Container[Tensor]) -> bool:
        """Return whether all parameters of a bucket are among those that were `taken`."""
        return all(parameter in taken for parameter in self.list[number].parameters)

    def count(self, taken: Container[Tensor], words: tuple[int, int]) -> None:
        """Count the parameters whose gradients this rank has `taken`; zeros are sent for the others.

        Args:
            taken: the parameters.
            words: two integers of at least 0, which are added over the ranks as well.

        """
        has = [int(parameter in taken) for parameter in self.place]
        self._counts[:] = torch.tensor([*has, *words], dtype=torch.int32)
        for parameter in self.place:
            if parameter not in taken:
                self.view_of(parameter).zero_()

    def words(self) -> tuple[int, int]:
        """Return the sums of the two words of the last step, once they have arrived."""
        first, second = self._counts[-_WORDS:].tolist()
        return first, second

    def averages(self, number: int) -> list[tuple[Tensor, Tensor]]:
        """Return the parameters of a bucket for which any rank had a gradient, with the averages."""
        bucket = self.list[number]
        counts = self._counts[bucket.first : bucket.first + len(bucket.names)].tolist()
        pairs = zip(bucket.parameters, bucket.views, counts, strict=True)
        return [(parameter, average) for parameter, average, count in pairs if count]


def _make_buckets(model: nn.Module, wanted: Iterable[Tensor], least_bytes: int) -> list[Bucket]:
    """Return buckets of the parameters `wanted`, in the order in which modules of `model` have them.

    The parameters of a module that have one type are in one bucket, and so are those of the next modules until the
    bucket has `least_bytes`.
    """
    left = {id(parameter) for parameter in wanted}
    buckets: list[Bucket] = []
    open_buckets: dict[torch.dtype, list[tuple[str, nn.Parameter]]] = {}
    collected: list[list[tuple[str, nn.Parameter]]] = []
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(prefix, recurse=False):
            if id(parameter) in left:
                left.remove(id(parameter))
                if parameter.dtype not in open_buckets:
                    open_buckets[parameter.dtype] = []
                    collected.append(open_buckets[parameter.dtype])
                open_buckets[parameter.dtype].append((name, parameter))
        open_buckets = {
            dtype: named
            for dtype, named in open_buckets.items()
            if sum(parameter.nbytes for _, parameter in named) < least_bytes
        }
    for named in collected:
        buckets.append(Bucket(named, sum(len(bucket.names) for bucket in buckets)))
    return buckets
