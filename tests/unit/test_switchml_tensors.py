"""The arrays that the library accepts."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from switchml.client.errors import UnsupportedTensor
from switchml.client.tensors import buffer_of


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 4), (2, 0, 3)])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "complex128", "S5", "V3", "datetime64[s]"])
def test_arrays_that_are_taken(shape: tuple[int, ...], dtype: str) -> None:
    x: np.ndarray[Any, Any] = np.zeros(shape, dtype)
    buffer = buffer_of(x)
    assert (buffer.address, buffer.elements, buffer.size) == (x.ctypes.data, x.size, x.nbytes)
    assert buffer.dtype == str(x.dtype)
    assert buffer.owner is x


def test_slices_that_are_contiguous() -> None:
    x = np.zeros((4, 8), np.float32)
    assert buffer_of(x[1:3]).address == x.ctypes.data + 32
    assert buffer_of(x[2, 3:5]).elements == 2


def read_only() -> Any:
    x = np.zeros(3, np.float32)
    x.flags.writeable = False
    return x


def misaligned() -> Any:
    return np.zeros(9, np.uint8)[1:].view(np.float32)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.zeros((3, 3), np.float32).T, r"shape \(3, 3\) and dtype float32 is not C-contiguous.*ascontiguousarray"),
        (np.zeros(8, np.float32)[::2], "not C-contiguous"),
        (np.zeros(8, np.float32)[::-1], "not C-contiguous"),
        (np.broadcast_to(np.float32(1), (3,)), "not C-contiguous|read-only"),
        (read_only(), r"read-only.*x\.copy"),
        (misaligned(), "not aligned"),
        (np.zeros(3, ">f4" if sys.byteorder == "little" else "<f4"), "byte order"),
        (np.zeros(3, object), "Python objects"),
        (np.zeros(3, [("a", "f4"), ("b", object)]), "Python objects"),
        ([1.0, 2.0], r"builtins\.list is neither a numpy array nor a torch tensor"),
        (np.float32(1), r"numpy\.float32 is neither"),
        (memoryview(b"abc"), "neither"),
        (None, "NoneType is neither"),
    ],
)
def test_what_is_refused_and_why(x: Any, words: str) -> None:
    with pytest.raises(UnsupportedTensor, match=words):
        buffer_of(x)


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    x = torch.zeros(3, 4)
    buffer = buffer_of(x)
    assert (buffer.address, buffer.elements, buffer.size, buffer.dtype) == (x.data_ptr(), 12, 48, "float32")
    assert buffer_of(torch.zeros(2, dtype=torch.bfloat16)).size == 4
    for refused, words in [
        (x.t(), "not contiguous"),
        (torch.zeros(3, device="meta"), "device meta"),
        (torch.zeros(3).to_sparse(), "not a dense tensor"),
        (torch.zeros(3, dtype=torch.complex64).conj(), "conjugate"),
    ]:
        with pytest.raises(UnsupportedTensor, match=words):
            buffer_of(refused)


def test_torch_is_not_imported() -> None:
    program = "import sys, switchml; switchml.connect; sys.exit('torch' in sys.modules or 'grpc' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
