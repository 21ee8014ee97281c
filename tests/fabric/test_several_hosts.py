"""The page on several hosts, word for word, with loopback addresses instead of the hosts."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fabric_harness import SCRIPTS, Ctl

PAGE = Path(__file__).parents[2] / "docs" / "start" / "hosts.md"
ROOT = PAGE.parents[2]
ADDRESSES = {"10.0.0.1": "127.0.0.2", "10.0.0.11": "127.0.0.3", "10.0.0.12": "127.0.0.4"}
PORTS = ("9559", "7600", "48864")
READY_SECONDS = 40


def blocks() -> dict[str, str]:
    """Return the code blocks of the page that follow a comment `<!-- several-hosts: NAME -->`."""
    pattern = r"<!-- several-hosts: (\w+) -->\n+```\w+\n(.*?)```"
    return dict(re.findall(pattern, PAGE.read_text(encoding="utf-8"), re.DOTALL))


def free_port(kind: socket.SocketKind) -> str:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.2", 0))
        return str(probe.getsockname()[1])


class Hosts:
    """The processes that the page starts on the machines of a cluster."""

    def __init__(self, ctl: Ctl) -> None:
        self.ctl = ctl
        self.directory = ctl.run_dir.parent
        ports = [free_port(socket.SOCK_STREAM), free_port(socket.SOCK_STREAM), free_port(socket.SOCK_DGRAM)]
        self.replacements = {**ADDRESSES, **dict(zip(PORTS, ports, strict=True))}
        self.processes: list[subprocess.Popen[bytes]] = []

    def text(self, name: str) -> str:
        pattern = "|".join(
            rf"(?<![\d.]){re.escape(word)}(?![\d.]\d)" for word in sorted(self.replacements, key=len)[::-1]
        )
        return re.sub(pattern, lambda found: self.replacements[found[0]], blocks()[name])

    def prepare(self) -> None:
        """Create the files that must exist before the processes start."""
        [line] = self.text("certificates").strip().splitlines()
        program, group, command, directory, *arguments = shlex.split(line)
        assert program == "switchml-ctl"
        certificates = self.directory / directory
        self.ctl.run(group, command, str(certificates), *arguments)
        (self.directory / "controller.toml").write_text(self.text("configuration"))
        self.ctl.environment["SWITCHML_CONTROLLER"] = self.controller()
        self.ctl.environment["SWITCHML_TLS"] = str(certificates / "admin")

    def start(self, name: str, prefix: tuple[str, ...] = ()) -> None:
        """Start the daemon of a block and wait for its ready file."""
        for line in self.text(name).strip().splitlines():
            runtime = {"XDG_RUNTIME_DIR": str(self.directory)}
            program, *arguments = shlex.split(line.replace("$XDG_RUNTIME_DIR", runtime["XDG_RUNTIME_DIR"]))
            ready = self.directory / f"{len(self.processes)}.ready"
            process = subprocess.Popen(
                [*prefix, str(SCRIPTS / program), *arguments, "--ready-file", str(ready)],
                cwd=self.directory,
                env=self.ctl.environment | runtime,
            )
            self.processes.append(process)
            for _ in range(READY_SECONDS * 50):
                if ready.exists():
                    break
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.02)
            assert ready.exists(), line

    def controller(self) -> str:
        return f"{self.replacements['10.0.0.1']}:{self.replacements['7600']}"


@pytest.fixture
def hosts(ctl: Ctl) -> Iterator[Hosts]:
    made = Hosts(ctl)
    made.prepare()
    try:
        made.start("switch")
        made.start("controller")
        made.start("agents")
        yield made
    finally:
        for process in reversed(made.processes):
            process.send_signal(signal.SIGTERM)
        for process in made.processes:
            process.wait(READY_SECONDS)


def test_the_quick_start_for_several_hosts(hosts: Hosts) -> None:
    ctl = hosts.ctl
    [line] = hosts.text("job").strip().splitlines()
    program, *arguments = shlex.split(line)
    assert program == "switchml-ctl"
    started = ctl.json(*(word.replace("certs/", f"{hosts.directory}/certs/") for word in arguments))
    assert started["state"] == "READY"
    assert started["workers"] == 4
    # Each host has some of the ranks.
    agents = {variables["SWITCHML_AGENT"] for variables in started["attach"]}
    assert len(agents) == 2
    training = shlex.split(hosts.text("training"))
    command = training[training.index("python") :]
    assert command == ["python", "examples/train_digits.py"]
    written = [part.partition("=")[0] for part in training[: training.index("python")]]
    assert set(written) == started["attach"][0].keys() - {"host"}
    processes = []
    for variables in started["attach"]:
        environment = ctl.environment | variables | {"SWITCHML_JOB_DIR": str(hosts.directory), "OMP_NUM_THREADS": "1"}
        processes.append(subprocess.Popen([SCRIPTS / "python", *command[1:]], env=environment, cwd=ROOT))
    assert [process.wait(100) for process in processes] == [0, 0, 0, 0]
    result = json.loads((hosts.directory / "training.json").read_text())
    assert result["test_accuracy"] >= 0.95
    assert len(set(result["parameters_sha256"])) == 1
    job = ctl.json("job", "show", "digits")
    assert job["state"] == "COMPLETED"
    assert {rank["agent"] for rank in job["ranks"]} == {"host-1", "host-2"}


def test_a_command_runs_where_all_agents_are_on_this_machine(hosts: Hosts) -> None:
    result = hosts.ctl.json("job", "start", "--workers", "4", *hosts.ctl.worker("sums"))
    assert result["state"] == "COMPLETED"
    assert hosts.ctl.json("status")["state"] == "running"


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="another host name needs root")
def test_ranks_on_another_host_are_refused_with_the_commands_for_it(ctl: Ctl) -> None:
    made = Hosts(ctl)
    made.prepare()
    try:
        made.start("switch")
        made.start("controller")
        made.start("agents", prefix=("unshare", "--uts", "sh", "-c", 'hostname elsewhere; exec "$@"', "sh"))
        refused = ctl.json("job", "start", "--workers", "2", *ctl.worker("sums"), status=1)
        assert refused["error"] == "RemoteRanksError"
        assert "on elsewhere:" in refused["message"]
        assert "SWITCHML_RANK=1" in refused["message"]
        assert ctl.json("job", "list")["jobs"] == []
    finally:
        for process in reversed(made.processes):
            process.send_signal(signal.SIGTERM)
        for process in made.processes:
            process.wait(READY_SECONDS)
