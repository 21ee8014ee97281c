"""The P4Runtime service of one device: the RPCs, and the form in which their errors reach the client.

Every handler runs in the event loop and accesses the state without waiting in between, so requests never overlap.
"""

# ruff: noqa: N802 (the methods bear the names of the RPCs)
from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import NoReturn

import grpc
from finsy.proto import p4r, p4r_grpc

from switchml.dataplane.softswitch.arbitration import Arbitration
from switchml.dataplane.softswitch.device import P4RuntimeDevice
from switchml.dataplane.softswitch.errors import P4RuntimeError, status_details
from switchml.dataplane.softswitch.stream import Stream

__all__ = ["API_VERSION", "Servicer"]

API_VERSION = "1.5.0"
"""The version of the P4Runtime API that this server implements."""

_LOG = logging.getLogger(__name__)

_RESPONSE_ENTITIES = 256  # far below a client's default limit of 4 MiB for a message
_MAX_READ_ENTITIES = 65_536  # not counting registers, which are read piece by piece
_MAX_ARRAY_UPDATES = 128  # whole arrays set by one Write, each up to 65,536 entries


class Servicer(p4r_grpc.P4RuntimeServicer):
    """P4Runtime for one device."""

    def __init__(self, device_id: int, device: P4RuntimeDevice) -> None:
        self._device = device
        self._arbitration = Arbitration(device_id)
        self._streams: set[Stream] = set()

    def end_streams(self) -> None:
        """End every stream because the switch stops, so that clients notice at once."""
        for stream in self._streams:
            stream.fail(P4RuntimeError(grpc.StatusCode.UNAVAILABLE, "the switch is stopping"))

    async def Write(self, request: p4r.WriteRequest, context: grpc.aio.ServicerContext) -> p4r.WriteResponse:
        """Update entities. A batch with a failed update ends with UNKNOWN and one p4.v1.Error for each update."""
        try:
            self._arbitration.check_primary(request)
            _ = self._device.pipeline
            if request.atomicity != p4r.WriteRequest.CONTINUE_ON_ERROR:
                raise P4RuntimeError(
                    grpc.StatusCode.UNIMPLEMENTED, "the only atomicity of this switch is CONTINUE_ON_ERROR"
                )
        except P4RuntimeError as error:
            await _abort(context, error)
        errors = list(self._write_all(request.updates))
        if any(errors):
            await _abort_batch(context, "write", errors)
        return p4r.WriteResponse()

    async def Read(
        self, request: p4r.ReadRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[p4r.ReadResponse]:
        """Read entities. A failed request of the batch does not prevent the others from being answered."""
        try:
            self._arbitration.check_device(request.device_id)
            pipeline = self._device.pipeline
        except P4RuntimeError as error:
            await _abort(context, error)
        errors: list[P4RuntimeError | None] = [None] * len(request.entities)
        registers: list[tuple[int, Iterator[p4r.Entity]]] = []
        found: list[p4r.Entity] = []
        for position, entity in enumerate(request.entities):
            if entity.WhichOneof("entity") == "register_entry":
                registers.append((position, pipeline.read(entity)))
                continue
            room = _MAX_READ_ENTITIES - len(found)
            answer, errors[position] = _take(pipeline.read(entity), room + 1)
            if len(answer) > room:
                errors[position] = P4RuntimeError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"one Read returns at most {_MAX_READ_ENTITIES} entities: ask for fewer at a time",
                )
            else:
                found += answer
        for start in range(0, len(found), _RESPONSE_ENTITIES):
            yield p4r.ReadResponse(entities=found[start : start + _RESPONSE_ENTITIES])
        # Register entries, which may be millions, are not collected first: the data plane changes them during the read,
        # and the iterator fails if a client changes them.
        for position, entries in registers:
            while errors[position] is None:
                answer, errors[position] = _take(entries, _RESPONSE_ENTITIES)
                if not answer:
                    break
                yield p4r.ReadResponse(entities=answer)
        if any(errors):
            await _abort_batch(context, "read", errors)

    async def SetForwardingPipelineConfig(
        self, request: p4r.SetForwardingPipelineConfigRequest, context: grpc.aio.ServicerContext
    ) -> p4r.SetForwardingPipelineConfigResponse:
        """Verify, save or realize a forwarding-pipeline configuration."""
        try:
            self._arbitration.check_primary(request)
            self._device.set_config(request)
        except P4RuntimeError as error:
            _LOG.warning("SetForwardingPipelineConfig from %s refused: %s", context.peer(), error)
            await _abort(context, error)
        return p4r.SetForwardingPipelineConfigResponse()

    async def GetForwardingPipelineConfig(
        self, request: p4r.GetForwardingPipelineConfigRequest, context: grpc.aio.ServicerContext
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """Return the forwarding-pipeline configuration."""
        try:
            self._arbitration.check_device(request.device_id)
            return self._device.get_config(request.response_type)
        except P4RuntimeError as error:
            await _abort(context, error)

    # grpc.aio accepts a coroutine that writes as well as a generator that yields; the generated base class does not say
    # so.
    async def StreamChannel(  # type: ignore[override]
        self, request_iterator: AsyncIterator[p4r.StreamMessageRequest], context: grpc.aio.ServicerContext
    ) -> None:
        """Arbitrate between clients for as long as the stream lives."""
        stream = Stream(self._arbitration, context)
        self._streams.add(stream)
        try:
            await stream.serve(request_iterator)
        except P4RuntimeError as error:
            _LOG.warning("stream of %s ended: %s", context.peer(), error)
            await _abort(context, error)
        finally:
            self._streams.remove(stream)

    async def Capabilities(
        self, request: p4r.CapabilitiesRequest, context: grpc.aio.ServicerContext
    ) -> p4r.CapabilitiesResponse:
        """Return the API version."""
        try:
            if request.device_id:
                self._arbitration.check_device(request.device_id)
        except P4RuntimeError as error:
            await _abort(context, error)
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    def _write_all(self, updates: Sequence[p4r.Update]) -> Iterator[P4RuntimeError | None]:
        array_updates = 0
        for update in updates:
            error = None
            array_updates += _sets_an_array(update)
            try:
                if array_updates > _MAX_ARRAY_UPDATES and _sets_an_array(update):
                    raise P4RuntimeError(
                        grpc.StatusCode.RESOURCE_EXHAUSTED,
                        f"one Write sets at most {_MAX_ARRAY_UPDATES} whole arrays (updates without an index)",
                    )
                self._device.write(update)
            except P4RuntimeError as failure:
                error = failure
            except Exception:
                _LOG.exception("update failed: %s", update)
                error = _internal()
            yield error


def _take(entities: Iterator[p4r.Entity], limit: int) -> tuple[list[p4r.Entity], P4RuntimeError | None]:
    """Return up to ``limit`` entities, and the error that ended the iterator early."""
    taken: list[p4r.Entity] = []
    try:
        taken.extend(itertools.islice(entities, limit))
    except P4RuntimeError as error:
        return taken, error
    except Exception:
        _LOG.exception("read failed")
        return taken, _internal()
    return taken, None


def _sets_an_array(update: p4r.Update) -> bool:
    kind = update.entity.WhichOneof("entity")
    if kind == "counter_entry":
        return not update.entity.counter_entry.HasField("index")
    return kind == "register_entry" and not update.entity.register_entry.HasField("index")


def _internal() -> P4RuntimeError:
    return P4RuntimeError(grpc.StatusCode.INTERNAL, "a defect in the switch, described in its log")


async def _abort(context: grpc.aio.ServicerContext, error: P4RuntimeError) -> NoReturn:
    await context.abort(error.code, error.message)
    raise AssertionError("abort does not return")


async def _abort_batch(
    context: grpc.aio.ServicerContext, what: str, errors: Sequence[P4RuntimeError | None]
) -> NoReturn:
    """End a batch RPC: UNKNOWN, with the status of every element in the trailing metadata."""
    failed = [(position, error) for position, error in enumerate(errors) if error is not None]
    position, first = failed[0]
    message = f"{len(failed)} of {len(errors)} {what} requests failed; the first is number {position}: {first.message}"
    message = message[:500]
    _LOG.info("%s: %s", context.peer(), message)
    details = status_details(message, errors)
    await context.abort(grpc.StatusCode.UNKNOWN, message, (("grpc-status-details-bin", details),))
    raise AssertionError("abort does not return")
