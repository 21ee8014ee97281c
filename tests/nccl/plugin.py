"""NCCL's side of its plugin interface: what its proxy does with a collective network, without NCCL and a GPU.

The tables of functions are declared as in NCCL's src/include/plugin/net, and not read from the plugin's own header.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_size_t, c_uint32, c_ulong, c_void_p
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from switchml.config import prefix

LIBRARY = prefix() / "lib" / "libnccl-net-switchml.so"
HANDLE_BYTES = 128
STEPS = 8  # NCCL_STEPS: calls that the proxy has in flight
SECONDS = 120.0
SUM = 0
PRODUCT = 1
HOST = 1
CUDA = 2
SUCCESS, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR = 0, 2, 3, 4, 5, 6
TYPES: dict[type[np.generic], int] = {
    np.int8: 0,
    np.uint8: 1,
    np.int32: 2,
    np.uint32: 3,
    np.int64: 4,
    np.uint64: 5,
    np.float16: 6,
    np.float32: 7,
    np.float64: 8,
    ml_dtypes.bfloat16: 9,
}
Array = npt.NDArray[Any]

_P = c_void_p
_I = c_int
_Z = c_size_t
_OUT = POINTER(c_void_p)
Logger = CFUNCTYPE(None, c_int, c_ulong, c_char_p, c_int, c_char_p, c_char_p)


def _function(*arguments: Any) -> Any:
    return CFUNCTYPE(c_int, *arguments)


def _collective_network(version: int) -> type[ctypes.Structure]:
    in_context = () if version == 8 else (_P,)
    count = _I if version == 8 else _Z
    fields = [
        ("name", c_char_p),
        ("init", _function(Logger) if version == 8 else _function(_OUT, ctypes.c_uint64, Logger)),
        ("devices", _function(POINTER(_I))),
        ("getProperties", _function(_I, _P)),
        ("listen", _function(*in_context, _I, _P, _OUT)),
        ("connect", _function(POINTER(_P), _I, _I, _P, _OUT)),
        ("reduceSupport", _function(_I, _I, POINTER(_I))),
        ("regMr", _function(_P, _P, _Z, _I, _OUT)),
        ("regMrDmaBuf", _function(_P, _P, _Z, _I, ctypes.c_uint64, _I, _OUT)),
        ("deregMr", _function(_P, _P)),
        ("iallreduce", _function(_P, _P, _P, count, _I, _I, _P, _P, _OUT)),
        ("iallgather", _function(_P, _P, _I, _P, _Z, _Z, _Z, _P, _OUT)),
        ("ireducescatter", _function(_P, _I, _P, _P, _Z, _Z, _Z, _I, _I, _P, _OUT)),
        ("iflush", _function(_P, _P, _I, _P, _OUT)),
        ("test", _function(_P, POINTER(_I), POINTER(_I))),
        ("closeColl", _function(_P)),
        ("closeListen", _function(_P)),
    ]
    if version == 11:
        fields += [("makeVDevice", _P), ("finalize", _function(_P))]
    return type(f"CollNetV{version}", (ctypes.Structure,), {"_fields_": fields})


def _piece(version: int) -> type[ctypes.Structure]:
    size = c_uint32 if version == 8 else c_size_t
    return type("Piece", (ctypes.Structure,), {"_fields_": [("mhandle", _P), ("address", _P), ("size", size)]})


class NcclError(Exception):
    """A function of the plugin returned an error; the text is its warnings."""

    def __init__(self, result: int, warnings: Sequence[str]) -> None:
        super().__init__("\n".join(warnings))
        self.result = result


class CollectiveNetwork:
    """The collective network of the plugin, in one of the versions of its interface."""

    def __init__(self, version: int) -> None:
        self.warnings: list[str] = []
        self._version = version
        self._table: Any = _collective_network(version).in_dll(
            ctypes.CDLL(str(LIBRARY)), f"ncclCollNetPlugin_v{version}"
        )
        self._piece = _piece(version)
        self._context = () if version == 8 else (None,)
        # The plugin's texts are the one argument of the format "%s".
        self._logger = Logger(lambda level, flags, file, line, format_, text: self.warnings.append(text.decode()))
        self._check(self._table.init(self._logger) if version == 8 else self._table.init(c_void_p(), 1, self._logger))

    def _check(self, result: int) -> None:
        if result != SUCCESS:
            raise NcclError(result, self.warnings)

    def devices(self) -> int:
        count = c_int()
        self._check(self._table.devices(count))
        return count.value

    def supports(self, kind: int, operation: int) -> bool:
        supported = c_int()
        self._check(self._table.reduceSupport(kind, operation, supported))
        return bool(supported.value)

    def listen(self) -> bytes:
        handle = ctypes.create_string_buffer(HANDLE_BYTES)
        listener = c_void_p()
        self._check(self._table.listen(*self._context, 0, handle, listener))
        self._check(self._table.closeListen(listener))
        return handle.raw

    def connect(self, handles: Sequence[bytes], rank: int) -> Group:
        buffers = [ctypes.create_string_buffer(handle, HANDLE_BYTES) for handle in handles]
        pointers = (c_void_p * len(handles))(*(ctypes.addressof(buffer) for buffer in buffers))
        group = c_void_p()
        self._check(self._table.connect(pointers, len(handles), rank, None, group))
        return Group(self, self._table, self._piece, group, rank)


class Group:
    """A rank in a group of the collective network. A request that could not begin is None."""

    def __init__(
        self,
        network: CollectiveNetwork,
        table: Any,
        piece: type[ctypes.Structure],
        group: c_void_p,
        rank: int,
    ) -> None:
        self._network = network
        self._table = table
        self._piece = piece
        self._group = group
        self.rank = rank

    def _begun(self, result: int, request: c_void_p) -> c_void_p | None:
        self._network._check(result)
        return request if request.value else None

    def register(self, memory: Array, kind: int = HOST) -> None:
        registration = c_void_p()
        self._network._check(self._table.regMr(self._group, memory.ctypes.data, memory.nbytes, kind, registration))
        self._network._check(self._table.deregMr(self._group, registration))

    def iallreduce(self, send: Array, receive: Array, kind: int | None = None, operation: int = SUM) -> c_void_p | None:
        request = c_void_p()
        kind = TYPES[send.dtype.type] if kind is None else kind
        addresses = send.ctypes.data, receive.ctypes.data
        result = self._table.iallreduce(self._group, *addresses, send.size, kind, operation, None, None, request)
        return self._begun(result, request)

    def iallgather(self, own: Array, out: Array, window: tuple[int, int], pieces: int = 1) -> c_void_p | None:
        """Gather a window, (offset, bytes), of all parts, each as long as `own`, to its place in `out`."""
        offset, size = window
        request = c_void_p()
        begin = max(0, offset - self.rank * own.nbytes) if own.nbytes else 0
        piece = self._piece(None, out.ctypes.data + offset, size)
        result = self._table.iallgather(
            self._group, own.ctypes.data + begin, pieces, ctypes.byref(piece), own.nbytes, offset, size, None, request
        )
        return self._begun(result, request)

    def ireducescatter(self, parts: Array, own: Array, window: tuple[int, int]) -> c_void_p | None:
        """Sum a window, (offset, bytes), of `parts`; what is this rank's goes to its place in `own`."""
        offset, size = window
        request = c_void_p()
        begin = max(0, offset - self.rank * own.nbytes)
        piece = self._piece(None, parts.ctypes.data + offset, size)
        result = self._table.ireducescatter(
            self._group,
            1,
            ctypes.byref(piece),
            own.ctypes.data + begin,
            own.nbytes,
            offset,
            size,
            TYPES[parts.dtype.type],
            SUM,
            None,
            request,
        )
        return self._begun(result, request)

    def wait(self, request: c_void_p | None) -> int:
        """Poll as NCCL's proxy does; return the number of bytes that arrived."""
        assert request is not None
        done, size = c_int(), c_int()
        until = time.monotonic() + SECONDS
        while True:
            self._network._check(self._table.test(request, done, size))
            if done.value:
                return size.value
            assert time.monotonic() < until, "the call does not end"
            time.sleep(0.0002)

    def all_reduce(self, send: Array, receive: Array, chunk: int) -> None:
        """All-reduce in chunks of `chunk` elements, of which eight are in flight."""
        requests: list[c_void_p | None] = []
        for number, first in enumerate(range(0, send.size, chunk)):
            if number >= STEPS:
                self.wait(requests[number - STEPS])
            requests.append(self.iallreduce(send[first : first + chunk], receive[first : first + chunk]))
        for request in requests[-STEPS:]:
            self.wait(request)

    def close(self) -> None:
        self._network._check(self._table.closeColl(self._group))
