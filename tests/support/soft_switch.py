"""A switchml-switch process for tests, and a P4Runtime client without any client library."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy.proto import p4i, p4r, p4r_grpc, rpc_status

from tests.support.p4_messages import entity, load_p4info, update

DEADLINE = 30.0
SetConfig = p4r.SetForwardingPipelineConfigRequest
GetConfig = p4r.GetForwardingPipelineConfigRequest


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "switchml.dataplane.softswitch.daemon", *arguments]


@dataclass
class SwitchProcess:
    process: subprocess.Popen[str]
    ready: dict[str, Any]
    log: Path

    @property
    def address(self) -> str:
        return str(self.ready["grpc"])

    def udp_address(self, port: int = 1) -> tuple[str, int]:
        endpoint = self.ready["ports"][str(port)]
        return endpoint["address"], endpoint["udp_port"]


@contextlib.contextmanager
def running_switch(directory: Path, *arguments: str) -> Iterator[SwitchProcess]:
    ready_file = directory / "ready.json"
    log = directory / "switch.log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            command("--grpc", "127.0.0.1:0", "--ready-file", str(ready_file), *arguments), stderr=stderr, text=True
        )
    try:
        wait_until(lambda: ready_file.exists() or process.poll() is not None, "the switch is ready")
        assert process.poll() is None, log.read_text()
        yield SwitchProcess(process, json.loads(ready_file.read_text()), log)
    finally:
        process.terminate()
        try:
            assert process.wait(DEADLINE) == 0, log.read_text()
        finally:
            process.kill()
    assert "Traceback" not in log.read_text(), log.read_text()


@contextlib.contextmanager
def stopped(process: subprocess.Popen[str]) -> Iterator[None]:
    """Stop a process with all its threads, and continue it afterwards."""
    process.send_signal(signal.SIGSTOP)
    threads = Path(f"/proc/{process.pid}/task")
    try:
        wait_until(lambda: all("\nState:\tT" in (one / "status").read_text() for one in threads.iterdir()), "it stops")
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def wait_until(condition: Any, what: str, deadline: float = DEADLINE) -> None:
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, f"after {deadline} s it was not so that {what}"
        time.sleep(0.01)


class Stream:
    """A StreamChannel: ``arbitrate`` sends a request, ``next`` waits for the answer."""

    def __init__(self, stub: p4r_grpc.P4RuntimeStub, device_id: int = 1) -> None:
        self.device_id = device_id
        self._requests: queue.Queue[p4r.StreamMessageRequest | None] = queue.Queue()
        self._responses: queue.Queue[p4r.StreamMessageResponse | grpc.RpcError | None] = queue.Queue()
        self._call = stub.StreamChannel(iter(self._requests.get, None))
        self._thread = threading.Thread(target=self._receive)
        self._thread.start()

    def _receive(self) -> None:
        try:
            for response in self._call:
                self._responses.put(response)
            self._responses.put(None)
        except grpc.RpcError as error:
            self._responses.put(error)

    def send(self, request: p4r.StreamMessageRequest) -> None:
        self._requests.put(request)

    def ask(self, election_id: int | None, *, role: p4r.Role | None = None, device_id: int | None = None) -> None:
        update = p4r.MasterArbitrationUpdate(device_id=self.device_id if device_id is None else device_id, role=role)
        if election_id is not None:
            update.election_id.CopyFrom(uint128(election_id))
        self.send(p4r.StreamMessageRequest(arbitration=update))

    def next(self) -> p4r.StreamMessageResponse:
        response = self._responses.get(timeout=DEADLINE)
        if isinstance(response, grpc.RpcError):
            raise response
        assert response is not None, "the server ended the stream"
        return response

    def arbitrate(self, election_id: int | None, **arguments: Any) -> p4r.MasterArbitrationUpdate:
        self.ask(election_id, **arguments)
        return self.next().arbitration

    def empty(self) -> bool:
        return self._responses.empty()

    def close(self) -> None:
        self._requests.put(None)
        self._thread.join(DEADLINE)
        self._call.cancel()
        assert not self._thread.is_alive()


class Client:
    """A P4Runtime client that is primary, unless ``election_id`` is None."""

    def __init__(self, address: str, election_id: int | None = 1, role: str = "") -> None:
        options = [("grpc.max_metadata_size", 64 * 1024), ("grpc.use_local_subchannel_pool", 1)]
        self.switch_address = address
        self.channel = grpc.insecure_channel(address, options=options)
        self.stub = p4r_grpc.P4RuntimeStub(self.channel)
        self.election_id = election_id
        self.role = role
        self.streams: list[Stream] = []
        if election_id is not None:
            self.stream = self.open_stream()
            arguments = {"role": p4r.Role(name=role)} if role else {}
            assert self.stream.arbitrate(election_id, **arguments).status.code == 0

    def open_stream(self) -> Stream:
        stream = Stream(self.stub)
        self.streams.append(stream)
        return stream

    def close(self) -> None:
        for stream in self.streams:
            stream.close()
        self.channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_config(
        self,
        action: SetConfig.Action.ValueType = SetConfig.VERIFY_AND_COMMIT,
        device_config: bytes = b"",
        p4info: p4i.P4Info | None = None,
        cookie: int | None = None,
        *,
        without_config: bool = False,
    ) -> None:
        request = SetConfig(device_id=1, action=action, role=self.role)
        if self.election_id is not None:
            request.election_id.CopyFrom(uint128(self.election_id))
        if not without_config:
            request.config.p4info.CopyFrom(load_p4info() if p4info is None else p4info)
            request.config.p4_device_config = device_config
            if cookie is not None:
                request.config.cookie.cookie = cookie
        self.stub.SetForwardingPipelineConfig(request, timeout=DEADLINE)

    def get_config(
        self, response_type: GetConfig.ResponseType.ValueType = GetConfig.ALL
    ) -> p4r.GetForwardingPipelineConfigResponse:
        request = GetConfig(device_id=1, response_type=response_type)
        answer: p4r.GetForwardingPipelineConfigResponse = self.stub.GetForwardingPipelineConfig(
            request, timeout=DEADLINE
        )
        return answer

    def write(self, *updates: p4r.Update, **fields: Any) -> None:
        request = p4r.WriteRequest(device_id=1, updates=updates, role=self.role)
        if self.election_id is not None:
            request.election_id.CopyFrom(uint128(self.election_id))
        for name, value in fields.items():
            setattr(request, name, value)
        self.stub.Write(request, timeout=DEADLINE)

    def read(self, *entities: p4r.Entity, device_id: int = 1) -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=device_id, entities=entities)
        return [entity for response in self.stub.Read(request, timeout=DEADLINE) for entity in response.entities]


def uint128(value: int) -> p4r.Uint128:
    return p4r.Uint128(high=value >> 64, low=value & (2**64 - 1))


def update_errors(error: grpc.RpcError) -> list[p4r.Error]:
    """Return the p4.v1.Error of each element of a failed batch."""
    assert error.code() == grpc.StatusCode.UNKNOWN, error
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    status = rpc_status.Status.FromString(details)
    assert (status.code, status.message) == (grpc.StatusCode.UNKNOWN.value[0], error.details())
    errors = []
    for detail in status.details:
        errors.append(p4r.Error())
        assert detail.Unpack(errors[-1])
    return errors


def write_error(client: Client, kind: Any, message: Any) -> tuple[int, str]:
    """Return the code and text with which the only update of a batch fails."""
    with pytest.raises(grpc.RpcError) as raised:
        client.write(update(kind, message))
    (error,) = update_errors(raised.value)
    assert error.space == "soft-v1model-switchml"
    return error.canonical_code, error.message


def read_error(client: Client, message: Any) -> int:
    """Return the code with which the only request of a batch fails."""
    with pytest.raises(grpc.RpcError) as raised:
        client.read(entity(message))
    (error,) = update_errors(raised.value)
    return error.canonical_code


def rpc_error(call: Any, *arguments: Any, **fields: Any) -> tuple[grpc.StatusCode, str]:
    """Return the code and text with which a call fails."""
    with pytest.raises(grpc.RpcError) as raised:
        call(*arguments, **fields)
    return raised.value.code(), raised.value.details()
