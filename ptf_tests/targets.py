"""The switches that the suite can be run on: how each is started, and how tests reach it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dataplane

__all__ = ["Description", "HOST_PORTS", "MONITOR_PORT", "TARGETS", "Target", "TargetUnavailable"]

# Ports with ranks behind them, and one that only the tests' own marker frames use (barrier.py).
HOST_PORTS = tuple(range(1, 9))
MONITOR_PORT = 9
_PORTS = (*HOST_PORTS, MONITOR_PORT)

_BUILD = Path(dataplane.__file__).parent / "p4" / "build" / "bmv2"
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0


class TargetUnavailable(Exception):
    """This machine cannot run the target; the text says why."""


@dataclass(frozen=True)
class Description:
    """What a test process must know of a running switch.

    ``interfaces`` gives each port's interface: a name, or for ``unix`` ports the switch's and the tests' socket paths
    with a comma between. ``shortest_frame`` is what the ports can carry, in bytes.
    """

    name: str
    p4runtime: str
    values: int
    interfaces: dict[int, str]
    unix: bool
    shortest_frame: int
    max_workers: int = 64
    slots: int = 2048

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Description:
        """Read what ``save`` wrote."""
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        fields["interfaces"] = {int(port): interface for port, interface in fields["interfaces"].items()}
        return cls(**fields)

    @property
    def p4info(self) -> Path:
        """The P4Info that the P4Runtime client works with."""
        suffix = "" if self.values == 64 or self.name == "soft" else f"_{self.values}"
        return _BUILD / f"switchml{suffix}.p4info.txtpb"

    @property
    def device_config(self) -> bytes:
        """The device configuration that makes the switch a pipeline of ``values`` values per packet."""
        if self.name == "soft":
            return json.dumps({"values_per_packet": self.values, "slots": self.slots}).encode()
        return self.p4info.with_suffix("").with_suffix(".json").read_bytes()


class Target(ABC):
    """A switch process; a context manager that starts and ends it. ``directory`` is for its logs and sockets."""

    name: str
    needs_namespace: bool

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / f"{self.name}.log"
        self._stack = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @abstractmethod
    def check_available(cls) -> None:
        """Raise TargetUnavailable when this machine lacks something."""

    @abstractmethod
    def describe(self, values: int) -> Description:
        """Return the description for a pipeline of ``values`` values per packet."""

    @abstractmethod
    def _command(self) -> Sequence[str]: ...

    @abstractmethod
    def _is_ready(self) -> bool: ...

    def __enter__(self) -> Target:
        with ExitStack() as stack:
            log = stack.enter_context(self.log.open("wb"))
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=subprocess.STDOUT)
            stack.callback(self._stop, self._process)
            self._wait_until_ready(self._process)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def check_alive(self) -> None:
        """Raise RuntimeError when the switch has ended."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with status {self._process.returncode}:\n{self._tail()}")

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_ready():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} is not ready after {_START_SECONDS:g} s:\n{self._tail()}")
            try:
                process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
            self.check_alive()

    @staticmethod
    def _stop(process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])


class Bmv2(Target):
    """``simple_switch_grpc`` on veth pairs of the namespace that it runs in."""

    name = "bmv2"
    needs_namespace = True

    @classmethod
    def check_available(cls) -> None:
        """Raise TargetUnavailable when BMv2 is not on PATH."""
        if shutil.which("simple_switch_grpc") is None:
            raise TargetUnavailable("simple_switch_grpc not found")

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._socket = directory / "bmv2.sock"

    def describe(self, values: int) -> Description:
        """Return the description; the kernel sends no frame without an Ethernet header over a veth pair."""
        interfaces = {port: f"host{port}" for port in _PORTS}
        return Description(self.name, f"unix:{self._socket}", values, interfaces, unix=False, shortest_frame=14)

    def _command(self) -> Sequence[str]:
        interfaces = [word for port in _PORTS for word in ("--interface", f"{port}@switch{port}")]
        return [
            *("simple_switch_grpc", "--no-p4", "--device-id", "1", *interfaces),
            *("--", "--grpc-server-addr", f"unix:{self._socket}"),
        ]

    def _is_ready(self) -> bool:
        # The socket exists a moment before gRPC listens on it.
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self._socket)) == 0


class Soft(Target):
    """``switchml-switch`` with ports that are Unix datagram sockets."""

    name = "soft"
    needs_namespace = False

    @classmethod
    def check_available(cls) -> None:
        """Do nothing: what the soft switch needs is part of this project."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._ready = directory / "soft.json"

    def describe(self, values: int) -> Description:
        """Return the description; a datagram may be of any length, so a frame may be empty."""
        address = json.loads(self._ready.read_text(encoding="utf-8"))["grpc"]
        interfaces = {port: ",".join(map(str, self._sockets(port))) for port in _PORTS}
        return Description(self.name, address, values, interfaces, unix=True, shortest_frame=0)

    def _sockets(self, port: int) -> tuple[Path, Path]:
        return self.directory / f"switch{port}.sock", self.directory / f"host{port}.sock"

    def _command(self) -> Sequence[str]:
        ports = [f"--frame-port={port}={','.join(map(str, self._sockets(port)))}" for port in _PORTS]
        module = "dataplane.softswitch.daemon"
        return [sys.executable, "-m", module, "--grpc", "127.0.0.1:0", "--ready-file", str(self._ready), *ports]

    def _is_ready(self) -> bool:
        return self._ready.exists()


TARGETS: dict[str, type[Target]] = {target.name: target for target in (Soft, Bmv2)}


def veth_names() -> list[tuple[str, str]]:
    """Return the two names of each pair of interfaces that BMv2 is attached to."""
    return [(f"switch{port}", f"host{port}") for port in _PORTS]
