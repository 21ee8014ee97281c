"""systemd/: the units are valid and score well, and their programs work under the restrictions."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchml.dataplane.constants import PROTOCOL_UDP_PORT
from switchml.dataplane.softswitch._native import UDP_PORT_BUFFER_BYTES
from tests.fabric import confined
from tests.support.fabric_harness import SCRIPTS, Ctl

SYSTEMD = Path(__file__).parents[2] / "systemd"
UNITS = sorted(SYSTEMD.glob("*.service"))
IN_IMAGE = "/opt/switchml/venv/bin/"
WORST_SCORE = 1.5  # of 10, which means unprotected
SECONDS = 40

has_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
can_confine = pytest.mark.skipif(
    os.geteuid() != 0 or platform.machine() != "x86_64" or not confined.NUMBERS.exists(),
    reason="needs root, and the numbers of x86-64 Linux' system calls (linux-libc-dev)",
)


def score(unit: Path) -> float:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"Overall exposure level for .*: ([\d.]+)", shown)
    assert found is not None
    return float(found[1])


@has_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_units_score_well(unit: Path, tmp_path: Path) -> None:
    assert score(unit) <= WORST_SCORE
    loose = tmp_path / unit.name
    loose.write_text(
        re.sub(r"^(CapabilityBoundingSet|SystemCallFilter|ProtectSystem)=.*\n", "", unit.read_text(), flags=re.M)
    )
    assert score(loose) > WORST_SCORE + 1


@has_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_the_units(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text()
    assert f"ExecStart={IN_IMAGE}" in text
    copy = tmp_path / unit.name
    copy.write_text(text.replace(IN_IMAGE, f"{SCRIPTS}/").replace("User=switchml", "User=root").replace("User=%i", ""))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True)
    about = [line for line in (done.stdout + done.stderr).splitlines() if unit.stem.rstrip("@") in line]
    assert about == []


def test_systemd_keeps_the_ports_of_services_that_have_some() -> None:
    keeping = {unit.name for unit in UNITS if confined.values(unit, "FileDescriptorStoreMax")}
    assert keeping == {"switchml-agent@.service", "switchml-leaf@.service", "switchml-switch.service"}
    assert {unit.name for unit in UNITS if confined.values(unit, "NotifyAccess") == ["main"]} == keeping


def test_nobody_is_root_and_nobody_has_capabilities() -> None:
    assert [unit.name for unit in UNITS] == [
        "switchml-agent@.service",
        "switchml-controller.service",
        "switchml-leaf@.service",
        "switchml-switch.service",
    ]
    for unit in UNITS:
        assert confined.values(unit, "User")[0] in ("switchml", "%i")
        assert confined.values(unit, "CapabilityBoundingSet") == [""]
        assert confined.values(unit, "NoNewPrivileges") == ["yes"]


def test_the_kernels_settings_suit_the_programs() -> None:
    sysctl = {key.strip(): int(value) for key, value in confined.settings(SYSTEMD / "sysctl.conf")}
    assert sysctl.pop("net.ipv4.ip_local_reserved_ports") == PROTOCOL_UDP_PORT
    assert set(sysctl) == {"net.core.rmem_max", "net.core.wmem_max"}
    assert all(value >= UDP_PORT_BUFFER_BYTES for value in sysctl.values())


class Units:
    """The units' commands, confined as the units require, with other paths."""

    def __init__(self, ctl: Ctl) -> None:
        self.ctl = ctl
        self.directory = ctl.run_dir.parent
        self.processes: list[subprocess.Popen[bytes]] = []
        self._systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._systemd.bind(str(self.directory / "notify"))
        self._systemd.settimeout(0)

    def left_with_systemd(self) -> list[int]:
        """Return the descriptors that the units have passed to what listens in systemd's place (sd_notify(3))."""
        left: list[int] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                text, descriptors, _, _ = socket.recv_fds(self._systemd, 4096, 1)
                assert text.startswith(b"FDSTORE=1\n")
                left += descriptors
        return left

    def close(self) -> None:
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            process.wait(SECONDS)
        self._systemd.close()

    def start(self, unit: Path, **environment: str) -> None:
        ready = self.directory / f"{unit.stem}.ready"
        places = dict.fromkeys(("STATE_DIRECTORY", "RUNTIME_DIRECTORY"), str(self.directory))
        environment = {**places, "NOTIFY_SOCKET": str(self.directory / "notify"), **environment}
        [command] = confined.values(unit, "ExecStart")
        command = command.replace(IN_IMAGE, f"{SCRIPTS}/").replace("/etc/switchml/", f"{self.directory}/")
        command = re.sub(r"\$\{?(\w+)\}?", lambda found: environment[found[1]], command)
        arguments = [sys.executable, confined.__file__, str(unit), *command.split(), "--ready-file", str(ready)]
        with (self.directory / f"{unit.stem}.log").open("wb") as log:
            process = subprocess.Popen(arguments, stderr=log, env=self.ctl.environment | environment)
        self.processes.append(process)
        end = time.monotonic() + SECONDS
        while not ready.exists():
            said = (self.directory / f"{unit.stem}.log").read_text()
            assert process.poll() is None, said
            assert time.monotonic() < end, said
            time.sleep(0.02)


@pytest.fixture
def units(ctl: Ctl) -> Iterator[Units]:
    made = Units(ctl)
    try:
        yield made
    finally:
        made.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@has_systemd
@can_confine
@pytest.mark.parametrize("transport", [pytest.param("udp", marks=pytest.mark.long), "shm"])
def test_a_job_runs_under_the_units(units: Units, transport: str) -> None:
    agent, controller, leaf, alone = UNITS
    switch = leaf if transport == "shm" else alone
    directory, listen = units.directory, f"127.0.0.1:{free_port()}"
    shared = directory / "switch.sock"
    units.ctl.run("certs", "init", str(directory / "certs"), "--agent", "a1")
    units.start(
        switch,
        SWITCHML_SWITCH_GRPC="127.0.0.1:0",
        SWITCHML_SWITCH_UDP_PORT="1=127.0.0.1:0",
    )
    ready = json.loads((directory / f"{switch.stem}.ready").read_text())
    port = ready["ports"]["1"]["udp_port"]
    (directory / "controller.toml").write_text(
        f'[controller]\nlisten = "{listen}"\ntls = "{directory}/certs/controller"\n'
        f'[[switches]]\nname = "s1"\ntarget = "soft"\np4runtime = "{ready["grpc"]}"\n'
        f'address = "127.0.0.1"\nudp_port = {port}\n'
    )
    units.start(controller)
    options = f"--name a1 --transport {transport}"
    options += f" --switch-socket {shared}" if transport == "shm" else ""
    units.start(
        agent,
        SWITCHML_CONTROLLER=listen,
        SWITCHML_AGENT_TLS=str(directory / "certs" / "agent-a1"),
        SWITCHML_AGENT_OPTIONS=options,
    )
    units.ctl.environment |= {"SWITCHML_CONTROLLER": listen, "SWITCHML_TLS": str(directory / "certs" / "admin")}
    result = units.ctl.json("job", "start", "--workers", "2", *units.ctl.worker("sums"))
    assert result["state"] == "COMPLETED"
    # The port of the switch, and over UDP that of the agent.
    assert len(units.left_with_systemd()) == (1 if transport == "shm" else 2)
    for process in units.processes:
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
        assert re.search(r"^NoNewPrivs:\t1$", status, re.MULTILINE)
        assert re.search(r"^Seccomp:\t2$", status, re.MULTILINE)


@has_systemd
@can_confine
def test_what_the_units_forbid_fails(tmp_path: Path) -> None:
    program = "import socket, os\ntry:\n  %s\n  print('done')\nexcept OSError as error:\n  print(error.errno)"
    for action, errno in (
        ("socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", 97),
        ("os.setpriority(os.PRIO_PROCESS, 0, 5)", 1),
        ("os.chown('/', 0, 0)", 1),
        ("socket.socket().bind(('127.0.0.1', 1))", 13),
    ):
        command = [sys.executable, confined.__file__, str(UNITS[1]), sys.executable, "-c", program % action]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        assert (done.returncode, done.stdout.strip()) == (0, str(errno)), done.stderr
