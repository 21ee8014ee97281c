"""Tensors that wrap another one, such as results of functional collectives that are still under way.

Before an operation of c10d reaches a backend, torch's dispatcher hands them to their class, whose `__torch_dispatch__`
waits and unwraps. A call of a process group in Python does not pass the dispatcher. So such tensors are sent through it
with an operation of this module, whose kernel gets what a backend would get.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from switchml.client.errors import UnsupportedTensor

__all__ = ["on_plain_tensors"]

MethodT = TypeVar("MethodT", bound=Callable[..., Any])

_LIBRARY: Final = torch.library.Library("switchml", "DEF")
_LIBRARY.define("unwrap(Tensor tensor) -> ()")
_received = threading.local()


def _receive(tensor: Tensor) -> None:
    _received.tensors.append(tensor)


_LIBRARY.impl("unwrap", _receive, "CompositeExplicitAutograd")


def on_plain_tensors(method: MethodT) -> MethodT:
    """Give a method the tensors inside of wrappers, in its arguments and in lists of them (decorator)."""

    @functools.wraps(method)
    def unwrapping(self: Any, *arguments: Any, **named: Any) -> Any:
        return method(self, *map(_plain, arguments), **{name: _plain(value) for name, value in named.items()})

    return unwrapping  # type: ignore[return-value]


def _plain(argument: Any) -> Any:
    kind = type(argument)
    if kind is Tensor or kind is Parameter:
        return argument
    if kind is list or kind is tuple:
        return [_plain(part) for part in argument]
    if isinstance(argument, Tensor) and kind.__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return _unwrapped(argument)
    return argument


def _unwrapped(tensor: Tensor) -> Tensor:
    """Return the tensor inside of `tensor`.

    Raises:
        UnsupportedTensor: there are several.

    """
    _received.tensors = []
    torch.ops.switchml.unwrap(tensor)
    received: list[Tensor] = _received.tensors
    if len(received) != 1:
        raise UnsupportedTensor(
            f"a {type(tensor).__name__} consists of {len(received)} tensors, of which a collective takes one. It is "
            "unchanged; pass each of them."
        )
    return received[0]
