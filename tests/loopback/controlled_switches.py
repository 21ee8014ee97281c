"""A switch of each target, as a process that the controller drives and that can be restarted."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.controller_harness import DEADLINE, wait_until

if TYPE_CHECKING:
    from typing_extensions import Self  # typing has it from Python 3.11


def free_port(kind: int = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ControlledSwitch(ABC):
    """A context manager; ``stop`` and ``start`` restart the switch at the same addresses."""

    target = ""
    values = 64
    slots = 0
    pool = 32

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = f"127.0.0.1:{free_port()}"
        self.log = directory / f"{self.target}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = process = subprocess.Popen(self._command(), stdout=log, stderr=subprocess.STDOUT)
        wait_until(lambda: process.poll() is not None or self._listens(), "the switch listens")
        assert process.poll() is None, self.log.read_text()

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(DEADLINE)
            finally:
                process.kill()

    def _listens(self) -> bool:
        host, _, port = self.address.rpartition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def configuration(self, **values: object) -> str:
        table = {"name": "s1", "target": self.target, "mac": "02:00:00:00:00:fe", **self._table(), **values}
        return "[[switches]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())

    @abstractmethod
    def _command(self) -> Sequence[str]: ...

    @abstractmethod
    def _table(self) -> dict[str, Any]: ...


class SoftSwitch(ControlledSwitch):
    target = "soft"
    slots = 1024
    pool = 128

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._udp_ports = [free_port(socket.SOCK_DGRAM) for _ in range(2)]

    def _command(self) -> Sequence[str]:
        ports = [f"--udp-port={n}=127.0.0.1:{port}" for n, port in enumerate(self._udp_ports, 1)]
        return [sys.executable, "-m", "switchml.dataplane.softswitch.daemon", "--grpc", self.address, *ports]

    def _table(self) -> dict[str, Any]:
        sizes = {"values_per_packet": self.values, "slots": self.slots, "default_pool": self.pool}
        return {"p4runtime": self.address, "address": "127.0.0.1", "udp_port": self._udp_ports[0], **sizes}


class Bmv2Switch(ControlledSwitch):
    target = "bmv2"
    slots = 2048

    def _command(self) -> Sequence[str]:
        return ["simple_switch_grpc", "--no-p4", "--device-id", "1", "--", "--grpc-server-addr", self.address]

    def _table(self) -> dict[str, Any]:
        return {"p4runtime": self.address, "address": "10.0.0.254"}


class TofinoSwitch(ControlledSwitch):
    """The emulator of a Tofino; ports 1 and 2 are in one pipe, 3 in the other."""

    target = "tofino"
    slots = 2048
    pool = 256
    ports: tuple[dict[str, object], ...] = (
        {"number": 1, "name": "1/0", "speed": "100G", "fec": "rs", "autonegotiation": "off"},
        {"number": 2, "name": "2/0", "speed": "100G", "fec": "rs"},
        {"number": 3, "name": "20/1", "speed": "25G"},
        {"name": "15/0", "speed": "100G", "role": "recirculation"},
        {"name": "196", "role": "recirculation"},
    )

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.usage = directory / "usage.json"

    def used(self) -> set[tuple[str, str, str]]:
        """Return the names in the tables that the controller has used; after ``stop``."""
        return {tuple(one) for one in json.loads(self.usage.read_text())}

    def _command(self) -> Sequence[str]:
        module = "ptf_tests.tofino_emulator.daemon"
        return [sys.executable, "-m", module, "--grpc", self.address, "--usage-file", str(self.usage)]

    def _table(self) -> dict[str, Any]:
        return {"bfrt": self.address, "address": "10.0.0.254", "ports": list(self.ports)}


TARGETS: dict[str, type[ControlledSwitch]] = {one.target: one for one in (SoftSwitch, Bmv2Switch, TofinoSwitch)}


def require_target(target: str) -> None:
    if target == "bmv2" and shutil.which("simple_switch_grpc") is None:
        pytest.skip("BMv2 is not installed")


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {_toml(one)}' for key, one in value.items())}}}"
    return json.dumps(value)
