"""The memory of arrays, and the check that they can be reduced in place."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, Union

import numpy as np
import numpy.typing as npt

from switchml import _native
from switchml.client.errors import UnsupportedTensor

__all__ = ["Buffer", "Tensor", "TorchTensor", "buffer_of", "torch_address"]


class TorchTensor(Protocol):
    """The part of `torch.Tensor` that is used here; torch itself is never imported."""

    def data_ptr(self) -> int:
        """Return the address of the first element."""

    def numel(self) -> int:
        """Return the number of elements."""

    def element_size(self) -> int:
        """Return the bytes of one element."""

    def is_contiguous(self) -> bool:
        """Return whether the elements are in C order without gaps."""


Tensor = Union[npt.NDArray[Any], TorchTensor]  # noqa: UP007 - evaluated at import, also on Python 3.10


class Buffer(NamedTuple):
    """The memory of an array, kept alive by `owner`. `dtype` is the same name for numpy and torch ("float32")."""

    owner: object
    address: int
    elements: int
    size: int  # bytes
    dtype: str


def buffer_of(x: Tensor, written: bool = True) -> Buffer:
    """Return the memory of `x`, which may have any shape (also 0 dimensions or 0 elements).

    Args:
        x: the array.
        written: it gets a result, so that it must be writable.

    Raises:
        UnsupportedTensor: `x` is not a C-contiguous, writable array in this machine's memory and byte order.

    """
    if isinstance(x, np.ndarray):
        return _numpy_buffer(x, written)
    torch = sys.modules.get("torch")  # an object can only be a tensor if torch was imported
    if torch is not None and isinstance(x, torch.Tensor):
        return _torch_buffer(torch, x)
    raise UnsupportedTensor(
        f"{type(x).__module__}.{type(x).__qualname__} is neither a numpy array nor a torch tensor. It is unchanged; "
        "pass a numpy array (numpy.asarray) or a torch CPU tensor, which receives the result in place."
    )


@lru_cache(maxsize=64)
def _name_of(dtype: np.dtype[Any]) -> str:
    return str(dtype)  # numpy computes it in Python each time


def _numpy_buffer(x: npt.NDArray[Any], written: bool) -> Buffer:
    name = _name_of(x.dtype)
    if x.dtype.hasobject:
        raise _unsupported(x, "holds Python objects, which have no fixed size", "use a numeric dtype")
    if not x.dtype.isnative:
        raise _unsupported(
            x, "is not in this machine's byte order", "convert it with x.astype(x.dtype.newbyteorder('='))"
        )
    flags = x.flags
    if not flags.c_contiguous:
        raise _unsupported(
            x, "is not C-contiguous", "pass numpy.ascontiguousarray(x), which is a copy, and copy the result back"
        )
    if written and not flags.writeable:
        raise _unsupported(x, "is read-only, and the result is written in place", "pass a writable copy (x.copy())")
    if not flags.aligned:
        raise _unsupported(x, "is not aligned to its dtype", "pass a copy (x.copy())")
    return Buffer(x, _native.address_of(x), x.size, x.nbytes, name)


def _torch_buffer(torch: Any, x: Any) -> Buffer:
    name = str(x.dtype).removeprefix("torch.")
    if x.device.type != "cpu":
        raise _unsupported(x, f"is on device {x.device}", "pass x.cpu() and copy the result back")
    if x.layout is not torch.strided or x.is_quantized:
        raise _unsupported(x, "is not a dense tensor", "pass x.to_dense() and convert the result back")
    if not x.is_contiguous():
        raise _unsupported(x, "is not contiguous", "pass x.contiguous(), which is a copy, and copy the result back")
    if x.is_conj() or x.is_neg():
        raise _unsupported(x, "is a lazy conjugate or negative", "pass x.resolve_conj().resolve_neg()")
    address = torch_address(x)
    if address % (x.element_size() // (2 if x.is_complex() else 1)) != 0:
        raise _unsupported(x, "is not aligned to its dtype", "pass a copy (x.clone())")
    return Buffer(x, address, x.numel(), x.numel() * x.element_size(), name)


def torch_address(x: Any) -> int:
    """Return the address of the elements of a torch tensor; 0 only if it has none.

    Raises:
        UnsupportedTensor: it has elements, but no memory that holds them.

    """
    try:
        address = int(x.data_ptr())
    except RuntimeError:  # a tensor without memory, which only represents another one, as in tracing
        address = 0
    if address == 0 and x.numel() > 0:
        raise _unsupported(x, "has no memory that holds its elements", "pass x.clone(), once it has values")
    return address


def _unsupported(x: Any, what: str, remedy: str) -> UnsupportedTensor:
    return UnsupportedTensor(
        f"the array of shape {tuple(x.shape)} and dtype {x.dtype} {what}. It is unchanged; {remedy}."
    )
