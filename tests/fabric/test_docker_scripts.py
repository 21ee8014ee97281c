"""The scripts of docker/compose.yaml's containers, run here with loopback addresses instead of containers.

The BMv2 fabric is confined as by Docker: in one network namespace, with /proc/sys read-only, BMv2 with the two
capabilities that compose.yaml gives it, and everything else with none.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest

from tests.support.fabric_harness import SCRIPTS, SECONDS, Ctl, why_no_namespaces

DOCKER = Path(__file__).parents[2] / "docker"
AGENTS = 8
START_SECONDS = 60
STOP_SECONDS = 40
POLL_SECONDS = 0.1


class Containers:
    """Started scripts; each has its own environment, like a container, and `prefix` confines it."""

    def __init__(self, ctl: Ctl) -> None:
        self.ctl = ctl
        self.state = ctl.run_dir.parent / "state"
        self.state.mkdir()
        ctl.run_dir.mkdir(mode=0o700)
        self.processes: list[subprocess.Popen[bytes]] = []

    def environment(self, variables: dict[str, str]) -> dict[str, str]:
        return self.ctl.environment | {"SWITCHML_STATE_DIR": str(self.state)} | variables

    def start(self, command: Sequence[str], variables: dict[str, str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, env=self.environment(variables))
        self.processes.append(process)
        return process

    def check(
        self, daemon: str, variables: dict[str, str], prefix: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        command = [*prefix, sys.executable, "-I", "-S", str(DOCKER / "healthy.py"), daemon]
        return subprocess.run(
            command, env=self.environment(variables), capture_output=True, text=True, timeout=60, check=False
        )

    def wait_healthy(self, daemon: str, variables: dict[str, str], prefix: Sequence[str] = ()) -> None:
        """Repeat the health check as Docker does, while the last started process runs."""
        deadline = time.monotonic() + START_SECONDS
        while (result := self.check(daemon, variables, prefix)).returncode:
            assert time.monotonic() < deadline, f"{daemon} is not healthy: {result.stderr}"
            with pytest.raises(subprocess.TimeoutExpired):
                self.processes[-1].wait(POLL_SECONDS)

    def run(self, command: Sequence[str], variables: dict[str, str]) -> str:
        process = subprocess.Popen(
            command, env=self.environment(variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            output, _ = process.communicate(timeout=SECONDS)
        except BaseException:
            process.terminate()
            process.communicate(timeout=STOP_SECONDS)
            raise
        assert process.returncode == 0, output
        return output

    def training(self) -> Any:
        [result] = self.ctl.run_dir.glob("jobs/*/training.json")
        return json.loads(result.read_text())

    def end(self) -> None:
        failed = []
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            if process.wait(STOP_SECONDS) not in (0, -signal.SIGTERM):
                failed.append(process.args)
        assert not failed


@pytest.fixture
def containers(ctl: Ctl) -> Iterator[Containers]:
    made = Containers(ctl)
    try:
        yield made
    finally:
        made.end()


class NetworkNamespace:
    """A network namespace, which `prepare` sets up; it lasts as long as the process that holds it."""

    def __init__(self, prepare: str) -> None:
        command = f"{prepare} && echo ready && exec cat"
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n"

    @property
    def enter(self) -> list[str]:
        """The command that runs another one inside."""
        return ["nsenter", f"--target={self._holder.pid}", "--net", "--mount", f"--wd={Path.cwd()}"]

    def close(self) -> None:
        self._holder.communicate(timeout=STOP_SECONDS)


@pytest.fixture
def enter() -> Iterator[list[str]]:
    """Provide the command that enters a network of this test, where no program can hold the switch's UDP port.

    Without namespaces the test uses the machine's own network.
    """
    if why_no_namespaces():
        yield []
        return
    # getent(1) finds addresses only where one is not of 127.0.0.0/8, as in a container.
    made = NetworkNamespace("ip link set lo up && ip address add 192.0.2.1/32 dev lo")
    try:
        yield made.enter
    finally:
        made.close()


@pytest.fixture
def network() -> str:
    """Return the first three bytes of addresses that no other test uses."""
    random = SystemRandom()
    return f"127.{random.randint(64, 254)}.{random.randint(0, 254)}"


def script(name: str) -> str:
    return str(DOCKER / name)


def test_the_soft_fabric_runs_the_demo(enter: list[str], containers: Containers, network: str) -> None:
    switch = {"SWITCHML_ADDRESS": f"{network}.1", "SWITCHML_P4RUNTIME": f"{network}.1:9559"}
    controller = switch | {
        "SWITCHML_ADDRESS": f"{network}.2",
        "SWITCHML_CONTROLLER": f"{network}.2:7600",
        "SWITCHML_CONTROLLER_METRICS": f"{network}.2:9101",
        "SWITCHML_SWITCH_ADDRESS": f"{network}.1",
    }
    agents = [
        {
            "SWITCHML_ADDRESS": f"{network}.{10 + number}",
            "SWITCHML_AGENT_METRICS": f"{network}.{10 + number}:9102",
            "SWITCHML_CONTROLLER": f"{network}.2:7600",
        }
        for number in range(AGENTS)
    ]
    assert "switch: " in containers.check("switch", switch, enter).stderr
    started = containers.start([*enter, script("switch.sh")], switch)
    containers.wait_healthy("switch", switch, enter)
    assert containers.check("controller", controller, enter).returncode == 1
    containers.start([*enter, script("controller.sh")], controller)
    containers.wait_healthy("controller", controller, enter)
    assert "agent: " in containers.check("agent", agents[0], enter).stderr
    for agent in agents:
        containers.start([*enter, script("agent.sh")], agent)
    for agent in agents:
        containers.wait_healthy("agent", agent, enter)

    containers.run([*enter, script("demo.sh")], {"SWITCHML_CONTROLLER": controller["SWITCHML_CONTROLLER"]})
    training = containers.training()
    assert training["workers"] == AGENTS
    assert len(set(training["parameters_sha256"])) == 1
    ctl = str(SCRIPTS / "switchml-ctl")
    listed = containers.run([*enter, ctl, "job", "list", "--all", "--json"], controller)
    [ended] = json.loads(listed)["jobs"]
    job = json.loads(containers.run([*enter, ctl, "job", "show", ended["name"], "--json"], controller))
    assert job["state"] == "COMPLETED"
    assert len({rank["agent"] for rank in job["ranks"]}) == AGENTS

    containers.processes.remove(started)
    started.terminate()
    assert started.wait(STOP_SECONDS) == 0
    deadline = time.monotonic() + START_SECONDS
    while (result := containers.check("controller", controller, enter)).returncode == 0:
        assert time.monotonic() < deadline, "the controller is healthy without its switch"
    assert "its switch is not connected" in result.stderr


# ---- BMv2, confined as in a container --------------------------------------------------------------------------------

BMV2_CAPABILITIES = "+net_admin,+net_raw"

needs_bmv2 = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("simple_switch_grpc") is None or shutil.which("setpriv") is None,
    reason="needs root, setpriv and simple_switch_grpc",
)


class Pod(NetworkNamespace):
    """A network namespace like Docker's for service bmv2, with only a loopback interface that is down."""

    def __init__(self) -> None:
        quiet = "for which in all default; do echo 1 > /proc/sys/net/ipv6/conf/$which/disable_ipv6; done"
        super().__init__(f"{quiet}; mount --bind -o ro /proc/sys /proc/sys")

    def confine(self, *command: str, capabilities: str = "") -> list[str]:
        kept = ",".join(["-all", *([capabilities] if capabilities else [])])
        return [*self.enter, "setpriv", "--no-new-privs", "--inh-caps=-all", f"--bounding-set={kept}", *command]


@pytest.fixture
def pod() -> Iterator[Pod]:
    made = Pod()
    try:
        yield made
    finally:
        made.close()


@needs_bmv2
def test_the_bmv2_fabric_runs_the_demo(pod: Pod, containers: Containers) -> None:
    common = {"SWITCHML_P4RUNTIME": "127.0.0.1:9559", "SWITCHML_CONTROLLER": "127.0.0.1:7600"}
    controller = common | {
        "SWITCHML_ADDRESS": "127.0.0.1",
        "SWITCHML_CONTROLLER_METRICS": "127.0.0.1:9101",
        "SWITCHML_TARGET": "bmv2",
        "SWITCHML_SWITCH_ADDRESS": "10.0.0.254",
        "SWITCHML_SWITCH_MAC": "02:00:00:00:00:fe",
    }
    agents = [
        common
        | {
            "SWITCHML_ADDRESS": f"10.0.0.{number}",
            "SWITCHML_AGENT_METRICS": f"127.0.0.1:911{number}",
            "SWITCHML_PORT": str(number),
            "SWITCHML_MAC": f"02:00:00:00:00:{number:02x}",
        }
        for number in range(1, AGENTS + 1)
    ]
    containers.start(pod.confine(sys.executable, script("bmv2.py"), capabilities=BMV2_CAPABILITIES), common)
    containers.wait_healthy("switch", common, pod.confine())
    containers.start(pod.confine(script("controller.sh")), controller)
    containers.wait_healthy("controller", controller, pod.confine())
    for agent in agents:
        containers.start(pod.confine(script("agent.sh")), agent)
    for agent in agents:
        containers.wait_healthy("agent", agent, pod.confine())

    containers.run(pod.confine(script("demo.sh"), "--hidden", "32", "--epochs", "12"), common)
    training = containers.training()
    assert training["workers"] == AGENTS
    assert len(set(training["parameters_sha256"])) == 1
    shown = containers.run(pod.confine(str(SCRIPTS / "switchml-ctl"), "switch", "show", "--json"), common)
    assert json.loads(shown)["switch"]["target"] == "bmv2"


# ---- health checks ---------------------------------------------------------------------------------------------------


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Provide a server that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def check_against(
    listener: socket.socket, daemon: str, variable: str, answer: bytes
) -> subprocess.CompletedProcess[str]:
    """Run a health check against a server that gives this answer."""
    port = listener.getsockname()[1]
    command = [sys.executable, "-I", "-S", script("healthy.py"), daemon]
    process = subprocess.Popen(command, env={variable: f"127.0.0.1:{port}"}, stderr=subprocess.PIPE, text=True)
    listener.settimeout(STOP_SECONDS)
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)
        _, errors = process.communicate(timeout=STOP_SECONDS)
    return subprocess.CompletedProcess(command, process.returncode, stderr=errors)


METRICS_ANSWER = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n# TYPE of a metric\n"


@pytest.mark.parametrize(
    ("daemon", "variable", "answer", "complaint"),
    [
        ("switch", "SWITCHML_P4RUNTIME", b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not a gRPC server"),
        ("switch", "SWITCHML_P4RUNTIME", b"", "is not a gRPC server"),
        ("controller", "SWITCHML_CONTROLLER_METRICS", METRICS_ANSWER, "its switch is not connected"),
        (
            "controller",
            "SWITCHML_CONTROLLER_METRICS",
            METRICS_ANSWER + b'switchml_switch_primary{switch="s1"} 0.0\n',
            "another controller drives it",
        ),
        ("controller", "SWITCHML_CONTROLLER_METRICS", b"HTTP/1.0 500 Error\r\n\r\n", "500 Error"),
        ("agent", "SWITCHML_AGENT_METRICS", METRICS_ANSWER + b"switchml_agent_registered 0.0\n", "registered"),
        ("agent", "SWITCHML_AGENT_METRICS", b"", "no answer"),
    ],
)
def test_an_unhealthy_daemon_is_told(
    listener: socket.socket, daemon: str, variable: str, answer: bytes, complaint: str
) -> None:
    result = check_against(listener, daemon, variable, answer)
    assert result.returncode == 1
    assert complaint in result.stderr


MOST_MODULES = 90
"""Limit the imports: the check imports about 50 modules, a gRPC client 800."""


def test_a_health_check_is_cheap() -> None:
    """Limit the CPU time: ten containers run the check each second while they start."""
    count = f"import sys; sys.path.append({str(DOCKER)!r}); import healthy; print(len(sys.modules))"
    result = subprocess.run([sys.executable, "-B", "-I", "-S", "-c", count], capture_output=True, text=True, check=True)
    assert int(result.stdout) < MOST_MODULES


# ---- the packet tests, and the scripts that build images -------------------------------------------------------------


def test_packet_tests_on_the_soft_switch(containers: Containers) -> None:
    pytest.importorskip("ptf")
    output = containers.run([script("packet-tests.sh"), "soft", "--tests", "test_reduction.*"], {})
    assert "none failed" in output


@needs_bmv2
def test_packet_tests_on_bmv2(pod: Pod, containers: Containers) -> None:
    pytest.importorskip("ptf")
    command = [script("packet-tests.sh"), "bmv2", "--tests", "test_reduction.*"]
    output = containers.run(pod.confine(*command, capabilities=BMV2_CAPABILITIES), {"SWITCHML_PTF_NAMESPACE": "1"})
    assert "none failed" in output


def test_packet_tests_on_bmv2_fail_without_bmv2(tmp_path: Path) -> None:
    """Check that the service fails in an image without BMv2: skipped tests must not look like passed ones."""
    dirname = shutil.which("dirname")
    assert dirname is not None
    (tmp_path / "dirname").symlink_to(dirname)
    path = os.pathsep.join([str(Path(sys.executable).parent), str(tmp_path)])
    result = subprocess.run(
        [script("packet-tests.sh"), "bmv2"],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "simple_switch_grpc not found" in result.stderr


@pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="BMv2 is not installed")
def test_a_collected_program_uses_the_collected_libraries(tmp_path: Path) -> None:
    subprocess.run([script("collect-program.sh"), "simple_switch_grpc", str(tmp_path)], check=True)
    version = subprocess.run(["simple_switch_grpc", "--version"], capture_output=True, check=True).stdout
    program = tmp_path / "bin" / "simple_switch_grpc"
    assert subprocess.run([program, "--version"], capture_output=True, check=True).stdout == version
    loaded = subprocess.run(
        [program, "--version"], capture_output=True, check=True, text=True, env=os.environ | {"LD_DEBUG": "libs"}
    ).stderr
    calling = {line.split()[-1] for line in loaded.splitlines() if "calling init" in line}
    boost = [path for path in calling if "libboost" in path]
    assert boost
    assert all(path.startswith(str(tmp_path)) for path in boost)


def test_a_program_that_does_not_exist_is_not_collected(tmp_path: Path) -> None:
    result = subprocess.run([script("collect-program.sh"), "no-such-program", str(tmp_path)], check=False)
    assert result.returncode != 0


def test_an_address_is_found_or_missed_with_a_message() -> None:
    found = subprocess.run([script("address.sh"), "127.77.0.1"], capture_output=True, text=True, check=True)
    assert found.stdout == "127.77.0.1\n"
    found = subprocess.run([script("address.sh"), "localhost"], capture_output=True, text=True, check=True)
    assert found.stdout == "127.0.0.1\n"
    missed = subprocess.run([script("address.sh"), "name.invalid"], capture_output=True, text=True, check=False)
    assert missed.returncode == 1
    assert "no IPv4 address is known for name.invalid" in missed.stderr
