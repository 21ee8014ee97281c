"""Buckets: the parameters of neighbouring modules, whose gradients lie in one flat tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

__all__ = ["GRAIN", "Bucket", "Travelling", "make_buckets"]

GRAIN: Final = 2048 * 8
"""Bytes: a bucket is cut at multiples of any packet of any type, so that cuts do not change quantization blocks."""


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


def make_buckets(model: nn.Module, wanted: Iterable[Tensor], least_bytes: int) -> list[Bucket]:
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
