"""The switches that the suite can run on: how each is started, and how tests reach it."""

from __future__ import annotations

import json
import os
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

from ptf_tests.tofino_emulator.program import PROGRAM, load_program, values_per_packet
from switchml.dataplane.constants import PROTOCOL_MAX_VALUES
from switchml.dataplane.targets import BMV2

__all__ = ["Description", "HOST_PORTS", "MONITOR_PORT", "TARGETS", "Target", "TargetUnavailable"]

# Ports with ranks, and one that only the tests' marker frames use (barrier.py).
HOST_PORTS = tuple(range(1, 9))
MONITOR_PORT = 9
_PORTS = (*HOST_PORTS, MONITOR_PORT)

_BFRT_ADDRESS = "127.0.0.1:50052"  # bf_switchd's default
_STOP_SECONDS = 30.0


class TargetUnavailable(Exception):
    """This machine cannot run the target; the text says why."""


@dataclass(frozen=True)
class Description:
    """The properties of a running switch that a test process needs.

    ``p4runtime`` or ``bfrt`` is the address of its control interface; ``program`` and ``recirculation``, a device port,
    are used with BfRt. ``interfaces`` gives each port's interface: a name, or for ``unix`` ports the socket paths of
    the switch and of the tests, separated by a comma. ``shortest_frame`` is the minimum that the ports carry, in bytes.
    ``loses_on_purpose``: the pipeline has the loss tables.
    ``results_grow``: a contribution without values can be answered by a RESULT with values.
    ``owned_results``: the copies of a RESULT that do not go to its owner have no values.
    ``expands_codes``: values of contributions may be codes.
    ``rocev2``: it takes the packets of RDMA cards.
    ``floats``: how it adds floats: "digits", "full" or "a", or empty if it does not (dataplane/floats.py).
    ``compiled``: the path of the program's files for BMv2 without their suffixes.
    """

    name: str
    p4runtime: str
    values: int
    interfaces: dict[int, str]
    unix: bool
    shortest_frame: int
    max_workers: int = 64
    slots: int = 2048
    bfrt: str = ""
    program: str = "switchml"
    recirculation: int = 68
    loses_on_purpose: bool = True
    results_grow: bool = True
    owned_results: bool = True
    expands_codes: bool = True
    rocev2: bool = True
    floats: str = ""
    compiled: str = str(BMV2.compiled())

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Description:
        """Read a file written by ``save``."""
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        fields["interfaces"] = {int(port): interface for port, interface in fields["interfaces"].items()}
        return cls(**fields)

    @property
    def p4info(self) -> Path:
        """The P4Info for the P4Runtime client."""
        return Path(f"{self.compiled}.p4info.txtpb")

    @property
    def device_config(self) -> bytes:
        """The device configuration that gives the switch a pipeline of ``values`` values per packet."""
        if self.name == "soft":
            return json.dumps({"values_per_packet": self.values, "slots": self.slots}).encode()
        return Path(f"{self.compiled}.json").read_bytes()


class Target(ABC):
    """A switch process; a context manager that starts and ends it. ``directory`` is for its logs and sockets."""

    name: str
    needs_namespace: bool
    start_seconds = 30.0
    # The whole suite runs with the first of these values per packet; tests for which it matters run with the others
    # too.
    values: tuple[int, ...] = (64, 256)
    max_workers = 64
    loses_on_purpose = True
    # A RESULT of the parent that comes again changes nothing, even if it differs from the first one.
    ignores_repeated_results = True
    # The largest number of values in a RESULT that answers a packet without values.
    most_growing_values = PROTOCOL_MAX_VALUES
    owned_results = True
    # The largest number of values in a packet with codes.
    most_codes = PROTOCOL_MAX_VALUES
    rocev2 = True
    # How it adds floats, if it does.
    floats = ""
    # The group of the tests that run with the first number of values.
    tests = "standard"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / f"{self.name}.log"
        self._stack = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @abstractmethod
    def check_available(cls) -> None:
        """Raise TargetUnavailable if this machine lacks something."""

    @abstractmethod
    def describe(self, values: int) -> Description:
        """Return the description for a pipeline of ``values`` values per packet."""

    @abstractmethod
    def _command(self) -> Sequence[str]: ...

    @abstractmethod
    def _is_ready(self) -> bool: ...

    def _environment(self) -> dict[str, str]:
        """Return the environment of the process."""
        return dict(os.environ)

    def __enter__(self) -> Target:
        with ExitStack() as stack:
            log = stack.enter_context(self.log.open("wb"))
            environment = self._environment()
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=subprocess.STDOUT, env=environment)
            stack.callback(self._stop, self._process)
            self._wait_until_ready(self._process)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def cpu_seconds(self) -> float:
        """Return the CPU time that the process has used."""
        assert self._process is not None
        return time.clock_gettime(~self._process.pid << 3 | 2)  # its clock, clock_getcpuclockid(3)

    def check_alive(self) -> None:
        """Raise RuntimeError if the switch has ended."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with status {self._process.returncode}:\n{self._tail()}")

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self.start_seconds
        while not self._is_ready():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} was not ready after {self.start_seconds:g} s:\n{self._tail()}")
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
    """``simple_switch_grpc`` on veth pairs of the current namespace."""

    name = "bmv2"
    needs_namespace = True
    most_growing_values = 128  # it exits if a packet grows by more than 512 bytes
    most_codes = 512 // 3  # each grows by three bytes

    @classmethod
    def check_available(cls) -> None:
        """Raise TargetUnavailable if BMv2 is not on PATH."""
        if shutil.which("simple_switch_grpc") is None:
            raise TargetUnavailable("simple_switch_grpc not found")

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._socket = directory / "bmv2.sock"

    def describe(self, values: int) -> Description:
        """Return the description; the kernel sends no frame without an Ethernet header over a veth pair."""
        interfaces = {port: f"host{port}" for port in _PORTS}
        return Description(
            *(self.name, f"unix:{self._socket}", values, interfaces),
            unix=False,
            shortest_frame=14,
            results_grow=values <= self.most_growing_values,
            expands_codes=values <= self.most_codes,
            floats=self.floats,
            compiled=str(self._compiled(values)),
        )

    def _compiled(self, values: int) -> Path:
        """Return the path of the program's files without their suffixes."""
        return BMV2.compiled(values=values)

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


class Bmv2Floats(Bmv2):
    """BMv2 with the program that adds floats as digits."""

    name = "bmv2-floats"
    tests = "values"  # the rest of the program is that of bmv2
    values = (64,)
    most_codes = 0
    floats = "digits"

    def _compiled(self, values: int) -> Path:
        return BMV2.compiled("switchml_floats")


class Bmv2FloatsFull(Bmv2Floats):
    """BMv2 with a program that adds floats as FPISA does, compiled for the run: a study."""

    name = "bmv2-floats-full"
    floats = "full"
    tests = "floats"

    @classmethod
    def check_available(cls) -> None:
        """Raise TargetUnavailable if BMv2 or its compiler is not on PATH."""
        from switchml.dataplane.compiler.compile_p4 import COMPILER  # not in the wheel

        super().check_available()
        if shutil.which(COMPILER) is None:
            raise TargetUnavailable(f"{COMPILER} not found")

    def __enter__(self) -> Target:
        from switchml.dataplane.compiler.compile_p4 import Variant, compile_variant

        program = Variant(self.name, self.values[0], self.floats.upper())
        for name, text in compile_variant(program).items():
            (self.directory / Path(name).name).write_text(text, encoding="utf-8")
        return super().__enter__()

    def _compiled(self, values: int) -> Path:
        return self.directory / self.name


class Bmv2FloatsA(Bmv2FloatsFull):
    """The same with FPISA-A."""

    name = "bmv2-floats-a"
    floats = "a"


class Soft(Target):
    """``switchml-switch`` with ports that are Unix datagram sockets."""

    name = "soft"
    needs_namespace = False
    floats = "digits"

    @classmethod
    def check_available(cls) -> None:
        """Do nothing: the soft switch is part of this project."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._ready = directory / "soft.json"

    def describe(self, values: int) -> Description:
        """Return the description; a datagram may be of any length, so a frame may be empty."""
        address = json.loads(self._ready.read_text(encoding="utf-8"))["grpc"]
        interfaces = {port: ",".join(map(str, self._sockets(port))) for port in _PORTS}
        return Description(self.name, address, values, interfaces, unix=True, shortest_frame=0, floats=self.floats)

    def _sockets(self, port: int) -> tuple[Path, Path]:
        return self.directory / f"switch{port}.sock", self.directory / f"host{port}.sock"

    def _command(self) -> Sequence[str]:
        ports = [f"--frame-port={port}={','.join(map(str, self._sockets(port)))}" for port in _PORTS]
        module = "switchml.dataplane.softswitch.daemon"
        return [sys.executable, "-m", module, "--grpc", "127.0.0.1:0", "--ready-file", str(self._ready), *ports]

    def _is_ready(self) -> bool:
        return self._ready.exists()


class TofinoEmulator(Target):
    """The TNA program on a model of Tofino's pipeline, with a BfRt server as its control plane."""

    name = "tofino-emulator"
    needs_namespace = False
    values = (values_per_packet(load_program()),) if PROGRAM.exists() else ()
    max_workers = 32
    loses_on_purpose = False
    owned_results = False
    rocev2 = False
    most_codes = 0
    ignores_repeated_results = False

    @classmethod
    def check_available(cls) -> None:
        """Raise TargetUnavailable if the program was not compiled for the model."""
        if not PROGRAM.exists():
            raise TargetUnavailable(
                f"{PROGRAM.name} does not exist: python -m switchml.dataplane.compiler --target tofino writes it"
            )

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._ready = directory / "emulator.json"

    def describe(self, values: int) -> Description:
        """Return the description; no MAC passes a frame without an Ethernet header to the parser."""
        address = json.loads(self._ready.read_text(encoding="utf-8"))["grpc"]
        interfaces = {port: ",".join(map(str, self._sockets(port))) for port in _PORTS}
        return Description(
            *(self.name, "", values, interfaces),
            unix=True,
            shortest_frame=14,
            max_workers=self.max_workers,
            bfrt=address,
            loses_on_purpose=self.loses_on_purpose,
            owned_results=self.owned_results,
            expands_codes=False,
            rocev2=self.rocev2,
        )

    def _sockets(self, port: int) -> tuple[Path, Path]:
        return self.directory / f"switch{port}.sock", self.directory / f"host{port}.sock"

    def _command(self) -> Sequence[str]:
        ports = [f"--frame-port={port}={','.join(map(str, self._sockets(port)))}" for port in _PORTS]
        module = "ptf_tests.tofino_emulator.daemon"
        return [sys.executable, "-m", module, "--grpc", "127.0.0.1:0", "--ready-file", str(self._ready), *ports]

    def _is_ready(self) -> bool:
        return self._ready.exists()


class TofinoModel(Target):
    """Intel's tofino-model and bf_switchd with the TNA program, from an SDE installation; see docs/operate/tofino.md.

    The model is started first. The tests' ports are device ports of its first pipe, on veth pairs as for BMv2.
    """

    name = "tofino-model"
    needs_namespace = True
    start_seconds = 300.0  # the SDE's documentation says one to two minutes
    values = TofinoEmulator.values

    @classmethod
    def check_available(cls) -> None:
        """Raise TargetUnavailable, which says what to set or build, if the SDE or the program in it is missing."""
        if not os.environ.get("SDE_INSTALL"):
            raise TargetUnavailable("SDE_INSTALL is not set: set it to an SDE installation (docs/operate/tofino.md)")
        for path in (*cls._programs(), cls._configuration()):
            if not path.exists():
                raise TargetUnavailable(
                    f"{path} not found: build the SDE and the program switchml into it (docs/operate/tofino.md)"
                )

    @staticmethod
    def _programs() -> tuple[Path, Path]:
        binaries = Path(os.environ["SDE_INSTALL"]) / "bin"
        return binaries / "tofino-model", binaries / "bf_switchd"

    @staticmethod
    def _configuration() -> Path:
        return Path(os.environ["SDE_INSTALL"]) / "share" / "p4" / "targets" / "tofino" / "switchml.conf"

    def describe(self, values: int) -> Description:
        """Return the description; packets are recirculated through the pipe's own recirculation port, 68."""
        interfaces = {port: f"host{port}" for port in _PORTS}
        return Description(
            *(self.name, "", values, interfaces),
            unix=False,
            shortest_frame=14,
            max_workers=32,
            bfrt=_BFRT_ADDRESS,
            loses_on_purpose=False,
            owned_results=False,
            expands_codes=False,
            rocev2=False,
        )

    def __enter__(self) -> Target:
        with ExitStack() as stack:
            ports = self.directory / "ports.json"
            pairs = [{"device_port": port, "if": f"switch{port}"} for port in _PORTS]
            ports.write_text(json.dumps({"PortToIf": pairs}), encoding="utf-8")
            model, _ = self._programs()
            command = [str(model), "-d", "1", "-f", str(ports), "--p4-target-config", str(self._configuration())]
            command += ["--install-dir", os.environ["SDE_INSTALL"], "--chip-type", "2"]
            command += ["--logs-disable", "--log-dir", str(self.directory)]
            log = stack.enter_context((self.directory / "model.log").open("wb"))
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=self._environment())
            stack.callback(self._stop, process)
            super().__enter__()
            stack.callback(self._stack.close)
            self._stack = stack.pop_all()
        return self

    def _environment(self) -> dict[str, str]:
        libraries = [str(Path(os.environ["SDE_INSTALL"]) / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
        return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries))}

    def _command(self) -> Sequence[str]:
        _, driver = self._programs()
        options = ["--install-dir", os.environ["SDE_INSTALL"], "--conf-file", str(self._configuration())]
        return [str(driver), *options, "--background", "--skip-port-add", "--status-port", "7777"]

    def _is_ready(self) -> bool:
        host, _, port = _BFRT_ADDRESS.rpartition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0


TARGETS: dict[str, type[Target]] = {
    target.name: target for target in (Soft, Bmv2, Bmv2Floats, Bmv2FloatsFull, Bmv2FloatsA, TofinoEmulator, TofinoModel)
}


def veth_names() -> list[tuple[str, str]]:
    """Return the two names of each pair of interfaces that BMv2 is attached to."""
    return [(f"switch{port}", f"host{port}") for port in _PORTS]
