"""A connection to a BfRt server: the stream that subscribes this client, and calls with deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass

import grpc
from google.protobuf.message import DecodeError

from switchml.common.deadline import within
from switchml.common.grpc_connections import KEEPALIVE_OPTIONS
from switchml.common.tls import ChannelOptions
from switchml.controller.drivers.bfrt_schema import ALL_PIPES
from switchml.dataplane.bfruntime import bfruntime_pb2 as pb
from switchml.dataplane.bfruntime import bfruntime_pb2_grpc as pb_grpc

__all__ = ["BfrtError", "BfrtFailure", "BfrtSession"]

_LOG = logging.getLogger(__name__)

_DETAILS = "grpc-status-details-bin"
_CALL_SECONDS = 10.0
_BATCH = 500
_CLIENT_IDS = 1 << 24  # the server keeps only 24 bits
_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # each attempt connects at once: shared connections wait after failures
    ("grpc.max_receive_message_length", 256 << 20),  # a program's binary comes with its bfrt.json
    *KEEPALIVE_OPTIONS,
    ("grpc.keepalive_permit_without_calls", 1),
]


@dataclass(frozen=True)
class BfrtFailure:
    """The reason why one update or entity of a call was refused; ``index`` counts from 0 in the call."""

    index: int
    code: int
    message: str

    @property
    def not_found(self) -> bool:
        """True if the entry does not exist."""
        return bool(self.code == grpc.StatusCode.NOT_FOUND.value[0])


class BfrtError(Exception):
    """The error of a call: its status and, if the status contains them, the updates or entities that failed."""

    def __init__(self, code: grpc.StatusCode, message: str, failures: Sequence[BfrtFailure] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.failures = tuple(failures)

    @property
    def lost(self) -> bool:
        """True if the connection is lost."""
        lost = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
        return self.code in lost and not self.failures

    def __str__(self) -> str:
        """Return the messages of the switch."""
        words = "; ".join(f"{failure.message} ({_name(failure.code)})" for failure in self.failures)
        return words or f"{self.message} ({self.code.name})"


class BfrtSession:
    """One client of one device. A context manager: inside, the client is subscribed."""

    def __init__(
        self,
        channel: Callable[[ChannelOptions], grpc.aio.Channel],
        device_id: int,
        port_changed: Callable[[pb.TableEntry, bool], None],
    ) -> None:
        self._channel = channel
        self._device_id = device_id
        self._port_changed = port_changed
        self._client_id = secrets.randbelow(_CLIENT_IDS - 1) + 1
        self._target = pb.TargetDevice(device_id=device_id, pipe_id=ALL_PIPES)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> BfrtSession:
        """Connect and subscribe; raises BfrtError."""
        async with contextlib.AsyncExitStack() as stack:
            channel = await stack.enter_async_context(self._channel(_OPTIONS))
            self._stub = pb_grpc.BfRuntimeStub(channel)  # type: ignore[no-untyped-call]
            self._stream = self._stub.StreamChannel()
            stack.callback(self._stream.cancel)
            notifications = pb.Subscribe.Notifications(enable_port_status_change_notifications=True)
            subscribe = pb.Subscribe(device_id=self._device_id, notifications=notifications)
            with _errors():
                await self._stream.write(pb.StreamMessageRequest(client_id=self._client_id, subscribe=subscribe))
                answer = await within(_CALL_SECONDS, self._stream.read())
            status = answer.subscribe.status if isinstance(answer, pb.StreamMessageResponse) else None
            if status is None or not answer.HasField("subscribe"):
                raise BfrtError(grpc.StatusCode.UNAVAILABLE, "the server ended the stream instead of subscribing us")
            if status.code:
                raise BfrtError(grpc.StatusCode.UNKNOWN, f"the server does not subscribe us: {status.message}")
            self._reader = asyncio.create_task(self._receive(), name="BfRt stream")
            stack.push_async_callback(self._stop_reading)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the stream, so that the server forgets the client."""
        await self._stack.aclose()

    async def _stop_reading(self) -> None:
        self._reader.cancel()
        await asyncio.wait({self._reader})

    async def _receive(self) -> None:
        try:
            while isinstance(message := await self._stream.read(), pb.StreamMessageResponse):
                if message.WhichOneof("update") == "port_status_change_notification":
                    change = message.port_status_change_notification
                    self._port_changed(change.table_entry, change.port_up)
        except grpc.aio.AioRpcError as error:
            _LOG.debug("the stream ended: %s", error.details())
        except Exception:
            _LOG.exception("the stream cannot be followed")
        finally:
            if not self.ended.done():
                self.ended.set_result(None)

    # ---- calls -----------------------------------------------------------------------------------------------------

    async def programs(self) -> pb.GetForwardingPipelineConfigResponse:
        """Return the programs that the device runs and their bfrt.json; raises BfrtError."""
        request = pb.GetForwardingPipelineConfigRequest(device_id=self._device_id, client_id=self._client_id)
        with _errors():
            answer: pb.GetForwardingPipelineConfigResponse
            answer = await self._stub.GetForwardingPipelineConfig(request, timeout=_CALL_SECONDS)
            return answer

    async def bind(self, program: str) -> bool:
        """Bind this client to a program; return False if another client is bound. Raises BfrtError."""
        request = pb.SetForwardingPipelineConfigRequest(
            device_id=self._device_id,
            client_id=self._client_id,
            action=pb.SetForwardingPipelineConfigRequest.BIND,
            config=[pb.ForwardingPipelineConfig(p4_name=program)],
        )
        try:
            with _errors():
                await self._stub.SetForwardingPipelineConfig(request, timeout=_CALL_SECONDS)
        except BfrtError as error:
            if error.code is grpc.StatusCode.ALREADY_EXISTS:
                return False
            raise
        return True

    async def write(self, updates: Sequence[pb.Update], absent_is_fine: bool = False) -> None:
        """Make updates in order, also after one has failed; raise BfrtError in that case.

        With ``absent_is_fine``, deleting an entry that does not exist is not an error.
        """
        for start in range(0, len(updates), _BATCH):
            part = updates[start : start + _BATCH]
            request = pb.WriteRequest(target=self._target, client_id=self._client_id, updates=part)
            try:
                with _errors():
                    await self._stub.Write(request, timeout=_CALL_SECONDS)
            except BfrtError as error:
                failures = [one for one in error.failures if not (absent_is_fine and one.not_found)]
                if failures or not error.failures:
                    raise BfrtError(error.code, error.message, failures) from None

    async def read(self, entities: Sequence[pb.Entity], absent_is_fine: bool = False) -> AsyncIterator[pb.TableEntry]:
        """Yield the requested entries; raise BfrtError if that fails.

        With ``absent_is_fine``, a key that does not exist is not an error.
        """
        request = pb.ReadRequest(target=self._target, client_id=self._client_id, entities=entities)
        try:
            with _errors():
                async for answer in self._stub.Read(request, timeout=_CALL_SECONDS):
                    for entity in answer.entities:
                        yield entity.table_entry
        except BfrtError as error:
            failures = [one for one in error.failures if not (absent_is_fine and one.not_found)]
            if failures or not error.failures:
                raise BfrtError(error.code, error.message, failures) from None


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Turn the exceptions of gRPC into BfrtError."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise BfrtError(error.code(), error.details() or "no words", _failures(error)) from None
    except (asyncio.TimeoutError, asyncio.InvalidStateError, grpc.aio.UsageError) as error:
        raise BfrtError(grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer: {error!r}") from None


def _failures(error: grpc.aio.AioRpcError) -> list[BfrtFailure]:
    """Return the failures of single updates in a status, from a google.rpc.Status with one Error for each."""
    for name, value in error.trailing_metadata() or ():
        if name == _DETAILS and isinstance(value, bytes):
            try:
                details = pb.RpcStatus.FromString(value).details
                found = [pb.Error.FromString(detail.value) for detail in details]
            except DecodeError:
                return []
            return [
                BfrtFailure(n, one.canonical_code, one.message) for n, one in enumerate(found) if one.canonical_code
            ]
    return []


def _name(code: int) -> str:
    return next((status.name for status in grpc.StatusCode if status.value[0] == code), f"code {code}")
