"""Attempts of another user to reach sockets and shared memory, and the contents of the process list."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import switchml
from switchml.dataplane.softswitch._native import Switch, UdpPortSpec
from switchml.host_agent._engine import Engine, shm_port_at
from tests.loopback.rank_assignments import rank_assignment
from tests.loopback.shm_process import ShmProcess
from tests.loopback.tls_harness import secured_fabric
from tests.support.controller_harness import DEADLINE, ScriptedAgent, wait_until
from tests.support.soft_switch import Client, running_switch

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

# Becomes another user, then runs the rest of the program.
_BECOME = f"""
import os, socket, sys
sys.path[:] = []
os.setgroups([])
os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
"""
_CONNECT = f"""
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
    client.settimeout({DEADLINE})
    try:
        client.connect(sys.argv[1])
        print(client.recv(4096))
    except PermissionError:
        print("denied")
"""
# Listens like an agent, prints that it does, and then prints the messages that it gets.
_LISTEN = f"""
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.bind(sys.argv[1])
    os.chmod(sys.argv[1], 0o666)
    server.listen()
    print("listens", flush=True)
    with server.accept()[0] as client:
        client.settimeout({DEADLINE})
        print(client.recv(4096))
"""
_INFO = f"""
try:
    ControllerClient(sys.argv[1], {DEADLINE}).info()
except Exception as error:
    print(type(error).__name__, error)
"""
_OPEN = """
for path in sys.argv[1:]:
    try:
        os.close(os.open(path, os.O_RDWR))
        print("opened")
    except OSError as error:
        print(error.strerror)
"""


def as_nobody(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", _BECOME + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def place() -> Iterator[Path]:
    """Provide a directory that every user can enter, so that only the sockets' own protection remains."""
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    directory.chmod(0o755)
    umask = os.umask(0)
    try:
        yield directory
    finally:
        os.umask(umask)
        shutil.rmtree(directory)


@as_root
def test_the_switchs_socket_is_its_own_users(place: Path) -> None:
    path = place / "switch.sock"
    arguments = ("--shm-port", f"2={path}", "--frame-port", f"3={place / 'frames'},{place / 'peer'}")
    with running_switch(place, *arguments):
        modes = {name: stat.S_IMODE((place / name).stat().st_mode) for name in ("switch.sock", "frames")}
        assert modes == {"switch.sock": 0o600, "frames": 0o600}
        assert shm_port_at(str(path)) == 2
        assert as_nobody(_CONNECT, str(path)) == "denied"
        path.chmod(0o666)  # even if the file is open to all, the kernel reports who connects
        assert "the switch serves its own user's agents only" in as_nobody(_CONNECT, str(path))


@as_root
def test_the_agents_socket_is_its_own_users(place: Path) -> None:
    path = place / "agent.sock"
    command = [sys.executable, "-m", "switchml.host_agent.daemon", "--controller", "127.0.0.1:1", "--socket", str(path)]
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        wait_until(path.exists, "the agent listens")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert as_nobody(_CONNECT, str(path)) == "denied"
        path.chmod(0o666)
        assert f"the agent serves user 0; this process belongs to user {NOBODY}" in as_nobody(_CONNECT, str(path))
    finally:
        process.terminate()
        process.wait(DEADLINE)


@as_root
def test_a_controller_that_is_another_users_is_named_as_such(place: Path) -> None:
    address = place / "controller.sock"
    program = "from switchml.controller.client import ControllerClient\n" + _BECOME + _INFO
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        address.chmod(0o600)
        listening.listen()
        command = [sys.executable, "-c", program, f"unix:{address}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, cwd="/", check=True)
    assert f"permission denied: the controller at unix:{address} is another user's" in done.stdout


@contextlib.contextmanager
def listening_nobody(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start another user's process that listens at `path`, in a directory where it may."""
    path.parent.chmod(0o777)
    command = [sys.executable, "-c", _BECOME + _LISTEN, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/") as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "listens\n"
            yield process
        finally:
            process.kill()


@as_root
def test_a_process_sends_nothing_to_another_users_agent(place: Path) -> None:
    path = place / "agent.sock"
    with listening_nobody(path) as agent:
        with pytest.raises(switchml.ConnectError, match=f"user {NOBODY} listens at the agent socket {path}"):
            switchml.connect(agent=path, job="job", rank=0, world_size=1)
        assert agent.communicate(timeout=DEADLINE)[0] == "b''\n"


@as_root
def test_an_agent_shares_no_memory_with_another_users_switch(place: Path) -> None:
    path = place / "switch.sock"
    with listening_nobody(path) as switch:
        with pytest.raises(OSError, match=f"user {NOBODY} listens at {path}"):
            shm_port_at(str(path))
        assert switch.communicate(timeout=DEADLINE)[0] == "b''\n"


@as_root
def test_shared_memory_cannot_be_opened_by_another_user(place: Path) -> None:
    path = str(place / "switch.sock")
    arguments = ("--shm-port", f"2={path}", "--values", "64", "--slots", "64")
    with running_switch(place, *arguments) as switch, Client(switch.address) as client:
        client.set_config()
        engine = Engine(1)
        engine.start()
        try:
            with ShmProcess(engine, path, 1, 0, 1, 0, 16, 64) as rank:
                files = Path(f"/proc/{switch.process.pid}/map_files")
                memory = [str(file) for file in files.iterdir() if "memfd:" in str(file.readlink())]
                memory.append(f"/proc/{os.getpid()}/fd/{rank.memory_fd}")
                assert len(memory) >= 2
                for file in memory:
                    os.close(os.open(file, os.O_RDWR))  # this user can
                assert set(as_nobody(_OPEN, *memory).splitlines()) == {"Permission denied"}
        finally:
            engine.stop()
    assert not [path.name for path in Path("/dev/shm").iterdir() if "switchml" in path.name]


def test_no_key_is_in_logs_or_process_lists(tmp_path: Path) -> None:
    with secured_fabric(tmp_path) as fabric:
        with (
            ScriptedAgent(fabric.address, "a1", tls=fabric.certificates / "agent-a1"),
            fabric.client("admin") as client,
        ):
            client.list_jobs()
        fabric.renew(fabric.other)
        keys = [path.read_text() for path in tmp_path.rglob("tls.key")]
        lines = {line for key in keys for line in key.splitlines() if re.fullmatch(r"[A-Za-z0-9+/=]{20,}", line)}
        assert len(lines) >= 2 * len(keys)
        assert fabric.controller.process is not None
        said = [fabric.controller.log.read_text(), fabric.switch.log.read_text()]
        for pid in (fabric.controller.process.pid, fabric.switch.process.pid):
            said += [Path(f"/proc/{pid}/{name}").read_text() for name in ("cmdline", "environ")]
        assert all(len(text) > 20 for text in said)
        assert not [line for line in lines for text in said if line in text]


# Tries to bind a UDP port on each address in every way open to another user; prints those that worked.
_BIND = """
port = int(sys.argv[1])
addresses = ["127.0.0.1", "127.0.0.2", "127.255.255.254", "0.0.0.0", "::", "::ffff:127.0.0.2"]
for address in addresses:
    for name in ("", "SO_REUSEADDR", "SO_REUSEPORT", "SO_REUSEADDR SO_REUSEPORT"):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as thief:
            if family == socket.AF_INET6:
                thief.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            for option in name.split():
                thief.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
            try:
                thief.bind((address, port))
            except OSError:
                continue
            print(address, name)
"""


@as_root
@pytest.mark.parametrize("threads", [1, 2])
def test_the_udp_ports_of_agents_and_switch_cannot_be_bound_by_another_user(place: Path, threads: int) -> None:
    """Check all addresses: with the port on any of them and IP_PKTINFO, a user could forge the rank's source."""
    engine = Engine(threads)
    engine.start()
    switch = Switch(slots=64, values=64, shards=threads)
    try:
        of_switch = switch.add_port(1, UdpPortSpec(address="127.0.0.1"))
        of_rank = engine.sender(
            engine.open_rank(rank_assignment(1, 0, 2, slots=16, values=64, switch_udp_port=of_switch))
        )
        for port in (of_switch, of_rank):
            assert as_nobody(_BIND, str(port)) == ""
        # Another program of SwitchML cannot bind it either: packets would be divided between the two.
        with pytest.raises(
            OSError, match=f"cannot bind UDP 127.0.0.1:{of_rank}: the port must be free on all addresses"
        ):
            switch.add_port(2, UdpPortSpec(address="127.0.0.1", udp_port=of_rank))
    finally:
        engine.stop()


def test_a_port_that_is_taken_on_another_address_is_refused() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.2", 0))
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot bind UDP 127.0.0.1:{port}: the port must be free on all addresses"):
            Switch(slots=64, values=64).add_port(1, UdpPortSpec(address="127.0.0.1", udp_port=port))
