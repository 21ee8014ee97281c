"""The tensors of a collective, with dense copies in CPU memory of those that cannot be used directly."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from switchml.client.errors import UnsupportedTensor
from switchml.client.tensors import torch_address
from switchml.torch.options import Options

__all__ = ["Operand", "memory_of", "require_device", "require_writable"]


def require_device(tensor: Tensor, options: Options) -> None:
    """Check that `tensor` is on a device from which a collective can take it.

    Raises:
        UnsupportedTensor: it is on a CUDA device and staging is off, or on a device of another type.

    """
    device = tensor.device.type
    if device == "cpu" or (device == "cuda" and options.stage_cuda):
        return
    if device == "cuda":
        remedy = (
            "set SWITCHML_STAGE_CUDA=1 (or switchml.torch.configure(stage_cuda=True)) on all ranks to have CUDA "
            "tensors copied through pinned memory, or pass x.cpu()"
        )
    else:
        remedy = "pass x.cpu() and copy the result back"
    raise _unsupported(tensor, f"is on device {tensor.device}", remedy)


def require_writable(tensor: Tensor) -> None:
    """Check that a result can be written to the strided `tensor`.

    Raises:
        UnsupportedTensor: it has no memory, or several of its elements share memory.

    """
    torch_address(tensor)
    if _may_overlap(tensor):
        raise _unsupported(tensor, "has elements that share memory, as those of x.expand() do", "pass x.clone()")


def _may_overlap(tensor: Tensor) -> bool:
    """Return whether elements may share memory; exact for tensors made by slicing, transposing and expanding."""
    if tensor.numel() == 0 or tensor.is_contiguous():
        return False
    reach = 0  # from the first element to the last, of the dimensions with the smaller strides
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


def memory_of(tensor: Tensor) -> tuple[int, int]:
    """Return address and bytes of a tensor's memory; of the first element only if the tensor has gaps."""
    elements = tensor.numel() if tensor.is_contiguous() else 1
    return tensor.data_ptr(), elements * tensor.element_size()


def _unsupported(tensor: Tensor, what: str, remedy: str) -> UnsupportedTensor:
    return UnsupportedTensor(
        f"the tensor of shape {tuple(tensor.shape)} and dtype {tensor.dtype} {what}. It is unchanged; {remedy}."
    )


class Operand:
    """A tensor of the caller, and `target`: the same elements, dense and contiguous on the CPU.

    `target` is the caller's memory itself if that is possible and `private` is false; otherwise a copy, which `deliver`
    copies back. A CUDA tensor is copied after the work that is queued on its device's current stream. Copies in each
    direction have a separate stream, so that they delay neither that stream nor each other.
    Without `written` the tensor is only read, and `deliver` is not called.
    """

    def __init__(self, tensor: Tensor, private: bool, options: Options, written: bool = True) -> None:
        require_device(tensor, options)
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise _unsupported(
                tensor,
                f"is {'quantized' if tensor.is_quantized else tensor.layout}, which this collective does not take",
                "pass a dense one (x.to_dense(), x.dequantize())",
            )
        source = tensor.detach()
        if written:
            require_writable(source)
        else:
            torch_address(source)
        self._source = torch.view_as_real(source.resolve_conj()) if source.is_complex() else source
        self._complex = source if source.is_complex() and source.is_conj() else None
        self._copied: Any = None  # torch.cuda.Event, once the copy to the CPU has been queued
        self.delivered: Any = None  # torch.cuda.Event, once the copy back has been queued
        if self._source.device.type == "cuda":
            self.target = torch.empty(self._source.shape, dtype=self._source.dtype, pin_memory=True)
            stream = _stream_from(self._source.device)
            stream.wait_stream(torch.cuda.current_stream(self._source.device))
            with torch.cuda.stream(stream):
                self.target.copy_(self._source, non_blocking=True)
                self._source.record_stream(stream)
                self._copied = stream.record_event()
        elif private or not _usable_in_place(self._source):
            self.target = self._source.clone(memory_format=torch.contiguous_format).resolve_neg()
        else:
            self.target = self._source

    @property
    def in_place(self) -> bool:
        """True if `target` is the caller's memory, so that there is nothing to copy back."""
        return self.target is self._source and self._complex is None

    @property
    def range(self) -> tuple[int, int]:
        """Address and number of bytes of the caller's memory; of the first element only if the tensor has gaps."""
        return memory_of(self._source)

    @property
    def waits(self) -> bool:
        """True if `target` does not hold the elements yet, so that `ready` has to wait."""
        return self._copied is not None

    def ready(self) -> None:
        """Wait until `target` holds the elements."""
        if self._copied is not None:
            self._copied.synchronize()
            self._copied = None

    def restore(self) -> None:
        """Copy the caller's elements to `target` again, after an attempt that may have changed it."""
        if self.target is not self._source:
            self.target.copy_(self._source)

    def deliver(self) -> None:
        """Copy `target` into the caller's tensor. On CUDA the copy is queued, and `delivered` is its event."""
        if self._complex is not None:
            self._complex.copy_(torch.view_as_complex(self.target))
        elif self.target is self._source:
            return
        elif self._source.device.type == "cuda":
            stream = _stream_to(self._source.device)
            with torch.cuda.stream(stream):
                self._source.copy_(self.target, non_blocking=True)
                self._source.record_stream(stream)
                self.delivered = stream.record_event()
        else:
            self._source.copy_(self.target)


def _usable_in_place(source: Tensor) -> bool:
    return source.is_contiguous() and not source.is_neg() and source.data_ptr() % source.element_size() == 0


@functools.cache
def _stream_from(device: torch.device) -> Any:
    """Return the stream for copies to the CPU."""
    return torch.cuda.Stream(device)


@functools.cache
def _stream_to(device: torch.device) -> Any:
    """Return the stream for copies to the device, which do not wait for what the training has queued since."""
    return torch.cuda.Stream(device)
