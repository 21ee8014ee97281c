"""The BfRt server: the gRPC service of bf_switchd over an emulated device."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import grpc
from google.protobuf import any_pb2

from ptf_tests.tofino_emulator.bfrt_device import Device, Program
from ptf_tests.tofino_emulator.bfrt_schema import Refusal, refuse
from switchml.common.tls import Security
from switchml.dataplane.bfruntime import bfruntime_pb2 as pb
from switchml.dataplane.bfruntime import bfruntime_pb2_grpc as pb_grpc

__all__ = ["Client", "Servicer", "create_server"]

_LOG = logging.getLogger(__name__)

_DETAILS = "grpc-status-details-bin"
_Set = pb.SetForwardingPipelineConfigRequest
_UNSUPPORTED = grpc.StatusCode.UNIMPLEMENTED
_NOT_READY = grpc.StatusCode.UNAVAILABLE


@dataclass
class Client:
    """A client with a stream. It may read and write once it is bound to a program."""

    number: int
    notifications: pb.Subscribe.Notifications
    outgoing: asyncio.Queue[pb.StreamMessageResponse | None] = field(default_factory=asyncio.Queue)
    program: str = ""
    wants_ports: bool = False


class Servicer(pb_grpc.BfRuntimeServicer):
    """The BfRuntime service of one device. Methods without await run atomically, so the pipeline sees whole updates."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.clients: dict[int, Client] = {}
        self._warm_init = False
        device.port_listeners.append(self._tell_port)

    # ---- the stream ------------------------------------------------------------------------------------------------

    async def StreamChannel(
        self, requests: AsyncIterator[pb.StreamMessageRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.StreamMessageResponse]:
        """Subscribe the client, which remains a client as long as the stream lasts."""
        client: Client | None = None
        reader: asyncio.Task[None] | None = None
        try:
            async for request in requests:
                if request.WhichOneof("update") == "subscribe":
                    try:
                        client = self._add_client(request)
                    except Refusal as refusal:
                        await context.abort(refusal.code, refusal.message)
                    break
            if client is None:
                return
            yield pb.StreamMessageResponse(subscribe=pb.Subscribe(status=pb.RpcStatus(code=0)))
            reader = asyncio.create_task(_drain(requests, client))
            while (message := await client.outgoing.get()) is not None:
                yield message
        finally:
            if reader is not None:
                reader.cancel()
            if client is not None and self.clients.get(client.number) is client:
                del self.clients[client.number]

    def _add_client(self, request: pb.StreamMessageRequest) -> Client:
        number = request.client_id
        refuse(number in self.clients, "Can't have two clients with the same client id")
        client = self.clients[number] = Client(number, request.subscribe.notifications)
        return client

    def _tell_port(self, entry: pb.TableEntry, up: bool) -> None:
        message = pb.PortStatusChgNotification(table_entry=entry, port_up=up)
        for client in self.clients.values():
            if client.wants_ports:
                client.outgoing.put_nowait(pb.StreamMessageResponse(port_status_change_notification=message))

    def end_streams(self) -> None:
        """End all streams, so that the server can stop."""
        for client in self.clients.values():
            client.outgoing.put_nowait(None)

    # ---- the program -----------------------------------------------------------------------------------------------

    async def GetForwardingPipelineConfig(
        self, request: pb.GetForwardingPipelineConfigRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetForwardingPipelineConfigResponse:
        """Return the bfrt.json of the program and that of the fixed tables."""
        if request.device_id != self.device.device_id:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no device {request.device_id} Object not found")
        program = self.device.program
        profile = pb.ForwardingPipelineConfig.Profile(profile_name="pipe", pipe_scope=range(self.device.chassis.pipes))
        config = pb.ForwardingPipelineConfig(p4_name=program.name, bfruntime_info=program.bfrt, profiles=[profile])
        fixed = pb.NonP4Config(bfruntime_info=json.dumps(self.device.fixed).encode())
        return pb.GetForwardingPipelineConfigResponse(config=[config], non_p4_config=fixed)

    async def SetForwardingPipelineConfig(
        self, request: pb.SetForwardingPipelineConfigRequest, context: grpc.aio.ServicerContext
    ) -> pb.SetForwardingPipelineConfigResponse:
        """Bind the client to the program, or load a program."""
        try:
            if request.action == _Set.BIND:
                self._bind(request)
            else:
                self._set_program(request)
        except Refusal as refusal:
            await context.abort(refusal.code, refusal.message)
        return pb.SetForwardingPipelineConfigResponse()

    def _bind(self, request: pb.SetForwardingPipelineConfigRequest) -> None:
        number = request.client_id
        refuse(number not in self.clients, f"Unknown client. Client_id:{number}", _NOT_READY)
        refuse(len(request.config) != 1, "Exactly one config message required.")
        name = request.config[0].p4_name
        for other in self.clients.values():
            words = f"Client ID {number} trying to bind but Client ID {other.number} already owns this P4"
            refuse(other.program == name, words, grpc.StatusCode.ALREADY_EXISTS)
        words = f"Failed to find BfRtInfo for program {name}"
        refuse(name != self.device.program.name, words, grpc.StatusCode.NOT_FOUND)
        self.clients[number].program = name

    def _set_program(self, request: pb.SetForwardingPipelineConfigRequest) -> None:
        action = request.action
        words = "Reconcile and warmInitEnd not supported"
        refuse(action == _Set.RECONCILE_AND_WARM_INIT_END, words, _UNSUPPORTED)
        if action in (_Set.VERIFY_AND_WARM_INIT_BEGIN, _Set.VERIFY_AND_WARM_INIT_BEGIN_AND_END):
            refuse(self._warm_init, "Warm_init in process.", _NOT_READY)
            refuse(len(request.config) != 1, "this device holds exactly one program")
            (config,) = request.config
            self.device.load(Program(config.p4_name, config.bfruntime_info))
            self._warm_init = True
            self._tell_all(pb.WARM_INIT_STARTED)
            for client in list(self.clients.values()):
                if client.program and client.program != config.p4_name:
                    client.outgoing.put_nowait(None)  # its program has been replaced
                    del self.clients[client.number]
        if action in (_Set.WARM_INIT_END, _Set.VERIFY_AND_WARM_INIT_BEGIN_AND_END):
            refuse(action == _Set.WARM_INIT_END and len(request.config) > 0, "Commit msg cannot contain any config.")
            refuse(not self._warm_init, "Already warm_init_finished. Cannot perform WARM_INIT_END again", _NOT_READY)
            self._warm_init = False
            self._tell_all(pb.WARM_INIT_FINISHED)

    def _tell_all(self, kind: pb.SetForwardingPipelineConfigResponseType) -> None:
        response = pb.SetForwardingPipelineConfigResponse(set_forwarding_pipeline_config_response_type=kind)
        for client in self.clients.values():
            client.outgoing.put_nowait(pb.StreamMessageResponse(set_forwarding_pipeline_config_response=response))

    # ---- tables ----------------------------------------------------------------------------------------------------

    async def Write(self, request: pb.WriteRequest, context: grpc.aio.ServicerContext) -> pb.WriteResponse:
        """Execute all updates; the errors of each are in the details of the status."""
        try:
            self._check_client(request.client_id, request.p4_name)
            refuse(
                request.atomicity == pb.WriteRequest.DATAPLANE_ATOMIC,
                "DATAPLANE_ATOMIC isn't implemented",
                _UNSUPPORTED,
            )
        except Refusal as refusal:
            await context.abort(refusal.code, refusal.message)
        rolls_back = request.atomicity == pb.WriteRequest.ROLLBACK_ON_ERROR
        undo = self.device.undo() if rolls_back else None
        errors: list[tuple[int, Refusal]] = []
        for number, update in enumerate(request.updates):
            try:
                self.update(request, update)
            except Refusal as refusal:  # noqa: PERF203
                errors.append((number, refusal))
                if undo is not None:
                    undo()
                    break
        await _report(context, errors, "Write Error Status")
        return pb.WriteResponse()

    def update(self, request: pb.WriteRequest, update: pb.Update) -> None:
        """Execute one update; raises Refusal."""
        self.device.write(update, request.target)
        attribute = update.entity.table_attribute
        if attribute.WhichOneof("attribute") == "port_status_notify" and request.client_id in self.clients:
            client = self.clients[request.client_id]
            client.wants_ports = (
                attribute.port_status_notify.enable and client.notifications.enable_port_status_change_notifications
            )

    async def Read(self, request: pb.ReadRequest, context: grpc.aio.ServicerContext) -> AsyncIterator[pb.ReadResponse]:
        """Return the requested entities in one message; the errors of each entity are in the details of the status."""
        try:
            self._check_client(request.client_id, request.p4_name)
        except Refusal as refusal:
            await context.abort(refusal.code, refusal.message)
        found: list[pb.Entity] = []
        errors: list[tuple[int, Refusal]] = []
        for number, entity in enumerate(request.entities):
            try:
                found += self.device.read(entity, request.target)
            except Refusal as refusal:  # noqa: PERF203
                errors.append((number, refusal))
        yield pb.ReadResponse(entities=found)
        await _report(context, errors, "Read Error Status")

    def _check_client(self, number: int, program: str) -> None:
        """Raise Refusal unless the client is bound, or names the program with each call."""
        client = self.clients.get(number)
        name = program or (client.program if client else "")
        if client is not None and not name:
            raise Refusal(grpc.StatusCode.UNKNOWN, "Unable to get bound_program Unexpected error")
        refuse(name != self.device.program.name, f"Unable to obtain BF_RT info for ({name})", grpc.StatusCode.NOT_FOUND)


async def _drain(requests: AsyncIterator[pb.StreamMessageRequest], client: Client) -> None:
    """Read until the client closes its side or disconnects; a second subscription is ignored, as in the real server."""
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
        async for _ in requests:
            _LOG.warning("client %d is already subscribed with this channel", client.number)
    client.outgoing.put_nowait(None)


async def _report(context: grpc.aio.ServicerContext, errors: Sequence[tuple[int, Refusal]], words: str) -> None:
    """End the call with UNKNOWN and one Error for each update up to the last that failed."""
    if not errors:
        return
    status = pb.RpcStatus(code=grpc.StatusCode.UNKNOWN.value[0], message=words)
    for number, refusal in errors:
        while len(status.details) < number:
            status.details.append(_packed(pb.Error()))
        status.details.append(_packed(pb.Error(canonical_code=refusal.number, message=refusal.message)))
    context.set_trailing_metadata(((_DETAILS, status.SerializeToString()),))
    await context.abort(grpc.StatusCode.UNKNOWN, words)


def _packed(error: pb.Error) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(error)
    return packed


def create_server(servicer: Servicer, address: str, security: Security) -> tuple[grpc.aio.Server, str]:
    """Return a server and its address HOST:PORT; with port 0 the kernel chooses.

    Raises OSError if the address cannot be used, and TlsError if certificates are missing or not usable.
    """
    options = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)]
    server = grpc.aio.server(options=options)
    pb_grpc.add_BfRuntimeServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    try:
        port = security.listen(server, address)
    except RuntimeError as error:
        raise OSError(f"gRPC address {address} cannot be used: {error}") from None
    return server, f"{address.rpartition(':')[0]}:{port}"
