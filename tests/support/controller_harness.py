"""A switchml-controller process for tests, and an agent that the test controls."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from switchml.common.tls import CONTROLLER_NAME, Security
from switchml.common.version import VERSION
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto import switchml_pb2_grpc as pb_grpc
from switchml.dataplane.constants import PROTOCOL_VERSION
from tests.support.soft_switch import SwitchProcess

if TYPE_CHECKING:
    from typing_extensions import Self  # typing has it from Python 3.11

DEADLINE = 30.0


def wait_until(condition: Callable[[], object], what: str, seconds: float = DEADLINE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.02)


def configuration(switch: SwitchProcess, name: str = "s1", **values: object) -> str:
    address, udp_port = switch.udp_address()
    table = {
        "name": name,
        "target": "soft",
        "p4runtime": switch.address,
        "address": address,
        "udp_port": udp_port,
        "values_per_packet": 64,
        "slots": 1024,
        "default_pool": 128,
        **values,
    }
    return "[[switches]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())


def controller_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "switchml.controller.daemon", *arguments]


class ControllerProcess:
    """A daemon that can be restarted on the same store and port."""

    def __init__(self, directory: Path, config: str, tls: Path | None = None) -> None:
        self.directory = directory
        self.tls = tls  # certificates of the client that start() returns
        self.config = directory / "controller.toml"
        self.config.write_text(config)
        self.log = directory / "controller.log"
        self.listen = "127.0.0.1:0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, wait_connected: bool = True) -> ControllerClient:
        ready_file = self.directory / "controller.ready"
        arguments = ["--config", str(self.config), "--store", str(self.directory / "store.sqlite")]
        arguments += ["--listen", self.listen, "--ready-file", str(ready_file)]
        with self.log.open("a") as stderr:
            self.process = subprocess.Popen(controller_command(*arguments), stderr=stderr)
        process = self.process
        wait_until(lambda: process.poll() is not None or _is_ours(ready_file, process.pid), "the controller is ready")
        assert process.poll() is None, self.log.read_text()
        self.listen = json.loads(ready_file.read_text())["address"]
        client = ControllerClient(self.listen, tls=self.tls)
        if wait_connected:
            wait_until(lambda: all(s.connected for s in client.list_switches()), "the switches are connected")
        return client

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(DEADLINE)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(DEADLINE) == 0, self.log.read_text()


def _is_ours(ready_file: Path, pid: int) -> bool:
    try:
        return bool(json.loads(ready_file.read_text())["pid"] == pid)
    except FileNotFoundError:  # that of a killed controller may disappear at any time
        return False


@contextlib.contextmanager
def running_controller(
    directory: Path, config: str, wait_connected: bool = True, tls: Path | None = None
) -> Iterator[tuple[ControllerProcess, ControllerClient]]:
    process = ControllerProcess(directory, config, tls)
    try:
        with process.start(wait_connected) as client:
            yield process, client
    finally:
        process.stop()


@dataclass
class ScriptedAgent:
    """Speaks Agents.Session as directed by the test; answers assignments itself unless told otherwise."""

    address: str
    name: str = "a1"
    switch: str = ""
    switch_port: int = 1
    max_ranks: int = 8
    host: str = "here"
    socket: str = ""
    version: str = VERSION
    protocol_version: int = PROTOCOL_VERSION
    instance: str = "instance-1"
    socket_address: str = "127.0.0.1"
    answer: Callable[[pb.Assignment], pb.AgentMessage | None] | None = None
    refuses: bool = False
    quiesces: bool = False  # answer Quiesce: its ranks have begun no phase
    heartbeats: bool = True
    tls: Path | None = None
    received: list[pb.ControllerMessage] = field(default_factory=list)
    statuses: list[pb.RankStatus] = field(default_factory=list)
    error: grpc.RpcError | None = None

    def __post_init__(self) -> None:
        self._outgoing: queue.Queue[pb.AgentMessage | None] = queue.Queue()
        self._channel = Security.of(self.tls).channel(self.address, CONTROLLER_NAME)
        self.ended = threading.Event()

    def __enter__(self) -> Self:
        register = pb.Register(
            version=self.version,
            protocol_version=self.protocol_version,
            name=self.name,
            host=self.host,
            address="127.0.0.1",
            mac="00:00:00:00:00:00",
            socket=self.socket or f"/run/{self.name}.sock",
            switch=self.switch,
            switch_port=self.switch_port,
            max_ranks=self.max_ranks,
            pid=1,
            instance=self.instance,
        )
        self.send(pb.AgentMessage(register=register))
        stub = pb_grpc.AgentsStub(self._channel)  # type: ignore[no-untyped-call]
        self._stream = stub.Session(iter(self._outgoing.get, None))
        threading.Thread(target=self._receive, daemon=True).start()
        threading.Thread(target=self._beat, daemon=True).start()
        wait_until(lambda: self.received or self.ended.is_set(), "the agent is welcome or refused")
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        self._outgoing.put(None)
        self._stream.cancel()
        self._channel.close()
        self.ended.wait(DEADLINE)

    def send(self, message: pb.AgentMessage) -> None:
        self._outgoing.put(message)

    def event(self, job: pb.Job, rank: int, kind: pb.RankEvent.Kind, **values: Any) -> None:
        event = pb.RankEvent(job=job.id, epoch=job.epoch, rank=rank, kind=kind, **values)
        self.send(pb.AgentMessage(rank_event=event))

    def ready(self, assignment: pb.Assignment) -> pb.AgentMessage:
        endpoints = [
            pb.Endpoint(rank=rank, address=self.socket_address, udp_port=40000 + rank) for rank in assignment.ranks
        ]
        ready = pb.AssignmentReady(job=assignment.job, epoch=assignment.epoch, endpoints=endpoints)
        return pb.AgentMessage(assignment_ready=ready)

    def refuse(self, assignment: pb.Assignment) -> pb.AgentMessage:
        failed = pb.AssignmentFailed(job=assignment.job, epoch=assignment.epoch, reason="no sockets left")
        return pb.AgentMessage(assignment_failed=failed)

    def positions(self, quiesce: pb.Quiesce) -> pb.AgentMessage:
        (assignment,) = (
            one for one in self.messages("assignment") if (one.job, one.epoch) == (quiesce.job, quiesce.epoch)
        )
        positions = pb.Positions(job=quiesce.job, epoch=quiesce.epoch, fetched=bool(quiesce.targets))
        for rank in assignment.ranks:
            positions.ranks.add(rank=rank, phases=[0] * assignment.slots)
        return pb.AgentMessage(positions=positions)

    def messages(self, kind: str) -> list[Any]:
        return [getattr(m, kind) for m in list(self.received) if m.WhichOneof("message") == kind]

    def wait_for(self, kind: str, count: int = 1, seconds: float = DEADLINE) -> Any:
        wait_until(lambda: len(self.messages(kind)) >= count, f"agent {self.name} received {count} {kind}", seconds)
        return self.messages(kind)[count - 1]

    def _receive(self) -> None:
        try:
            for message in self._stream:
                self.received.append(message)
                if message.HasField("assignment"):
                    reply = (self.answer or (self.refuse if self.refuses else self.ready))(message.assignment)
                    if reply is not None:
                        self.send(reply)
                if message.HasField("quiesce") and self.quiesces:
                    self.send(self.positions(message.quiesce))
        except grpc.RpcError as error:
            self.error = error
        finally:
            self.ended.set()

    def _beat(self) -> None:
        while not self.ended.wait(0.5):
            if self.heartbeats:
                self.send(pb.AgentMessage(heartbeat=pb.Heartbeat(ranks=self.statuses)))


def suspend(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)


def resume(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGCONT)
