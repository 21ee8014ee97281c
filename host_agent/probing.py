"""An agent's part in a probe: it measures the paths to other agents, and lets them measure theirs to it.

Two agents use one TCP connection: its echoes give the time of a round trip, and then each of the two sends the other
the same number of bytes. TCP is also what the collectives of Gloo and MPI go over, and a packet with a forged sender
gets no answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from switchml.common.printable import REASON_LENGTH
from switchml.common.probe_bounds import KEY_BYTES, MOST_BYTES, MOST_SECONDS
from switchml.controller.proto import switchml_pb2 as pb

__all__ = ["Probing"]

_log = logging.getLogger(__name__)

_HELLO: Final = struct.Struct(f"!{KEY_BYTES}sQ")  # the key, and the bytes that each of the two will send
_HELLO_SECONDS: Final = 2.0  # a stranger keeps a thread for this long
_SERVE_SECONDS: Final = 120.0  # for the measurement of a partner, whose own limit is shorter
_PARTNERS: Final = 8  # connections at one time; those of a probe come one after the other
_ECHO, _END_OF_ECHOES = b"e" * 64, b"b" * 64
_ECHOES: Final = 200
_FEWEST_ECHOES: Final = 10
_ECHO_SECONDS: Final = 1.0  # for all echoes above the fewest
_PERCENTILE: Final = 0.05
_CHUNK_BYTES: Final = 256 << 10


class Probing:
    """The probe in which this agent takes part, if any. It listens at `address`; `send` takes its answers.

    It belongs to one event loop, and none of its methods waits.
    """

    def __init__(self, address: str, send: Callable[[pb.AgentMessage], None]) -> None:
        self._address = address
        self._send = send
        self._probe: _Probe | None = None

    def carry_out(self, order: pb.ProbeOrder) -> None:
        """Carry out an order of the controller."""
        if order.HasField("open"):
            self._open(order.number, order.open.key)
        elif order.HasField("measure"):
            self._measure(order.number, order.measure)
        else:
            self.close()

    def close(self) -> None:
        """Leave the probe."""
        if self._probe is not None:
            self._probe.close()
            self._probe = None

    def _open(self, number: int, key: bytes) -> None:
        self.close()
        if len(key) != KEY_BYTES:
            self._fail(number, f"the key of a probe has {KEY_BYTES} bytes, not {len(key)}")
            return
        try:
            self._probe = _Probe(self._address, key)
        except OSError as error:
            self._fail(number, f"cannot listen at {self._address}: {error.strerror or error}")
        else:
            self._answer(pb.ProbeAnswer(number=number, port=self._probe.port))

    def _measure(self, number: int, order: pb.ProbeOrder.Measure) -> None:
        if self._probe is None:
            self._fail(number, "the agent takes part in no probe")
        elif order.bytes > MOST_BYTES or not 0 < order.seconds <= MOST_SECONDS or not 0 < order.port < 2**16:
            self._fail(number, f"a measurement has a port, at most {MOST_BYTES} bytes and at most {MOST_SECONDS:g} s")
        else:
            self._probe.start(self._report(self._probe, number, order))

    async def _report(self, probe: _Probe, number: int, order: pb.ProbeOrder.Measure) -> None:
        try:
            answer = await probe.measure(order)
        except OSError as error:
            self._fail(number, error.strerror or str(error))
            return
        answer.number = number
        self._answer(answer)

    def _fail(self, number: int, why: str) -> None:
        _log.warning("probe: %s", why)
        self._answer(pb.ProbeAnswer(number=number, failure=why[:REASON_LENGTH]))

    def _answer(self, answer: pb.ProbeAnswer) -> None:
        self._send(pb.AgentMessage(probe_answer=answer))


class _Probe:
    """One probe of this agent, until it is closed, at the latest after MOST_SECONDS.

    Measurements run in threads, on blocking sockets: an event loop would add its own delays to each echo.

    Raises:
        OSError: it cannot listen at the address.

    """

    def __init__(self, address: str, key: bytes) -> None:
        self._address = address
        self._key = key
        self._listener = socket.create_server((address, 0), backlog=_PARTNERS)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._threads = ThreadPoolExecutor(_PARTNERS + 1, "switchml-probe")
        self._closed = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._limit = asyncio.get_running_loop().call_later(MOST_SECONDS, self.close)
        self.start(self._listen())

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` until the probe is closed."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Stop listening, and end all measurements; the threads close their own sockets."""
        self._closed.set()
        self._limit.cancel()
        for task in self._tasks:
            task.cancel()
        self._listener.close()
        for one in self._sockets:
            with contextlib.suppress(OSError):  # it is not connected
                one.shutdown(socket.SHUT_RDWR)
        self._threads.shutdown(wait=False)

    async def measure(self, order: pb.ProbeOrder.Measure) -> pb.ProbeAnswer:
        """Measure the path to a partner. Raises OSError."""
        return await self._in_thread(socket.socket(), lambda one: self._ask(one, order))

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self._listener)
            if len(self._sockets) < _PARTNERS:
                self.start(self._serve(connection))
            else:
                connection.close()

    async def _serve(self, connection: socket.socket) -> None:
        try:
            await self._in_thread(connection, self._reply)
        except OSError as error:
            _log.info("probe: the measurement of a partner ended early: %s", error)

    async def _in_thread(self, one: socket.socket, work: Callable[[socket.socket], pb.ProbeAnswer]) -> pb.ProbeAnswer:
        self._sockets.add(one)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, _and_close, one, work)
        finally:
            self._sockets.discard(one)

    def _ask(self, one: socket.socket, order: pb.ProbeOrder.Measure) -> pb.ProbeAnswer:
        """Measure from this side of the connection."""
        path = _Path(one, order.seconds, self._closed)
        one.bind((self._address, 0))  # the path begins at the data interface
        path.connect(order.address, order.port)
        path.send(_HELLO.pack(self._key, order.bytes))
        round_trips: list[float] = []
        first = now = time.perf_counter()
        while len(round_trips) < _ECHOES and (len(round_trips) < _FEWEST_ECHOES or now - first < _ECHO_SECONDS):
            path.send(_ECHO)
            path.receive(len(_ECHO))
            before, now = now, time.perf_counter()
            round_trips.append(now - before)
        path.send(_END_OF_ECHOES)
        answer = pb.ProbeAnswer(round_trip=sorted(round_trips)[int(_PERCENTILE * len(round_trips))])
        if order.bytes:
            began = time.perf_counter()
            path.send_bulk(order.bytes)
            path.receive(1)  # the partner has all of it, and begins to send
            between = time.perf_counter()
            path.receive_bulk(order.bytes)
            answer.bytes_per_second = order.bytes / (between - began)
            answer.bytes_per_second_back = order.bytes / (time.perf_counter() - between)
        return answer

    def _reply(self, one: socket.socket) -> pb.ProbeAnswer:
        """Take part in the measurement of a partner that knows the key."""
        hello = _Path(one, _HELLO_SECONDS, self._closed)
        key, size = _HELLO.unpack(hello.receive(_HELLO.size))
        if not hmac.compare_digest(key, self._key) or size > MOST_BYTES:
            raise ConnectionRefusedError("it does not know the key, or wants to send too much")
        path = _Path(one, _SERVE_SECONDS, self._closed)
        while path.receive(len(_ECHO)) == _ECHO:
            path.send(_ECHO)
        if size:
            path.receive_bulk(size)
            path.send(b"!")
            path.send_bulk(size)
        return pb.ProbeAnswer()


def _and_close(one: socket.socket, work: Callable[[socket.socket], pb.ProbeAnswer]) -> pb.ProbeAnswer:
    with one:
        return work(one)


class _Path:
    """A connection, all of whose operations together may take `seconds`; they raise OSError."""

    def __init__(self, one: socket.socket, seconds: float, closed: threading.Event) -> None:
        self._socket = one
        self._end = time.monotonic() + seconds
        self._closed = closed
        self._buffer = bytearray(_CHUNK_BYTES)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connect(self, address: str, port: int) -> None:
        self._limited().connect((address, port))

    def send(self, data: bytes | memoryview) -> None:
        self._limited().sendall(data)

    def receive(self, size: int) -> bytes:
        """Return exactly `size` bytes, which fit the buffer."""
        view = memoryview(self._buffer)[:size]
        while view:
            view = view[self._receive_into(view) :]
        return bytes(self._buffer[:size])

    def send_bulk(self, size: int) -> None:
        for first in range(0, size, _CHUNK_BYTES):
            self.send(memoryview(self._buffer)[: size - first])

    def receive_bulk(self, size: int) -> None:
        while size:
            size -= self._receive_into(memoryview(self._buffer)[:size])

    def _receive_into(self, view: memoryview) -> int:
        received = self._limited().recv_into(view)
        if not received:
            raise ConnectionResetError("the partner has closed the connection")
        return received

    def _limited(self) -> socket.socket:
        left = self._end - time.monotonic()
        if left <= 0 or self._closed.is_set():
            raise TimeoutError("the measurement has no time left")
        self._socket.settimeout(left)
        return self._socket
