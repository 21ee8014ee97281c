"""The UDP port of a switch that has ended stays its user's, and the next switch gets it (sd_notify(3), FDSTORE=1)."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.soft_switch import DEADLINE, command, wait_until


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """Provide the socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(DEADLINE)
        yield listening


# Runs a command with a descriptor, as sd_listen_fds(3) expects it.
_GIVE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execvp(sys.argv[2], sys.argv[2:])
"""


@contextmanager
def switch(directory: Path, address: str, held: int | None = None) -> Iterator[int]:
    """Run a switch to which a service manager gives the socket `held`; yield its UDP port, and kill it."""
    ready = directory / "ready.json"
    ready.unlink(missing_ok=True)
    arguments = command("--grpc", "127.0.0.1:0", "--ready-file", str(ready), "--udp-port", f"1={address}")
    given: list[int] = []
    if held is not None:
        given = [held]
        arguments = [sys.executable, "-c", _GIVE, str(held), *arguments]
    environment = os.environ | {"NOTIFY_SOCKET": str(directory / "notify")}
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(arguments, stderr=log, pass_fds=given, env=environment)
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, "the switch is ready")
        assert process.poll() is None, (directory / "log").read_text()
        yield json.loads(ready.read_text())["ports"]["1"]["udp_port"]
    finally:
        process.kill()
        process.wait(DEADLINE)


def sockets_at(port: int) -> dict[str, tuple[int, int]]:
    """Return the bytes that wait in each socket at a port and its drops, by local address (proc(5), /proc/net/udp)."""
    rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    ours = [row for row in rows if row[1].endswith(f":{port:04X}")]
    return {row[1].partition(":")[0]: (int(row[4].partition(":")[2], 16), int(row[-1])) for row in ours}


@pytest.mark.parametrize("kernel_chooses", [True, False])
def test_a_killed_switchs_port_is_held_and_given_to_the_next(
    manager: socket.socket, tmp_path: Path, kernel_chooses: bool
) -> None:
    with switch(tmp_path, "127.0.0.1:0") as port:
        text, [held], _, _ = socket.recv_fds(manager, 4096, 1)
    assert text == f"FDSTORE=1\nFDNAME=udp-{port}".encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(100):
            sender.sendto(struct.pack("!32x"), ("127.0.0.1", port))
        assert sockets_at(port) == {"00000000": (0, 100)}
        with pytest.raises(OSError, match="in use"):
            sender_at(port)
        with switch(tmp_path, f"127.0.0.1:{0 if kernel_chooses else port}", held) as again:
            assert again == port
            for _ in range(100):
                sender.sendto(struct.pack("!32x"), ("127.0.0.1", port))
            all_taken = {"00000000": (0, 100), "0100007F": (0, 0)}
            wait_until(lambda: sockets_at(port) == all_taken, "the switch takes all packets, and the holder none")
    manager.settimeout(0)
    with pytest.raises(BlockingIOError):  # the manager has the socket already
        manager.recv(4096)


def sender_at(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as thief:
        thief.bind(("127.0.0.1", port))


def test_a_manager_that_does_not_listen_is_named(tmp_path: Path) -> None:
    """Check that the switch does not run without the protection that its environment promises."""
    with pytest.raises(AssertionError, match=f"NOTIFY_SOCKET={tmp_path}/notify"), switch(tmp_path, "127.0.0.1:0"):
        pass
