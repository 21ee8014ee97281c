"""MASTER_PORT: no other process can listen there, and only processes of the launcher's user get its socket."""

import os
import socket
import subprocess
import sys

import pytest

from switchml.client.errors import ConnectError
from switchml.client.master_port import adopt_master_port
from switchml.launch.master_port import held_master_port

NOBODY = 65534


class Server:
    """Listens as torch's TCPStore does; at a socket that is given, otherwise at a new one."""

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int = 1,
        is_master: bool = False,
        master_listen_fd: int | None = None,
    ) -> None:
        self.given = master_listen_fd is not None
        self.listener = socket.socket(fileno=master_listen_fd) if is_master and self.given else None
        if is_master and not self.given:
            self.listener = socket.create_server((host_name, port))


adopt_master_port(Server)


def test_no_other_socket_can_listen_at_a_held_port() -> None:
    with held_master_port() as variables:
        port = int(variables["MASTER_PORT"])
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, ""), (socket.AF_INET6, "::1")):
            if family == socket.AF_INET6 and not socket.has_dualstack_ipv6():
                continue
            with socket.socket(family) as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with pytest.raises(OSError, match="in use"):
                    other.bind((address, port))
    with socket.create_server(("127.0.0.1", port)):
        pass  # it is free again


def test_rank_0_answers_connections_that_came_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with held_master_port() as variables:
        monkeypatch.setenv("SWITCHML_MASTER_SOCKET", variables["SWITCHML_MASTER_SOCKET"])
        port = int(variables["MASTER_PORT"])
        for made in (0, 1):  # a rank that makes its groups again
            with socket.create_connection(("localhost", port)) as early:
                server = Server("localhost", port, 2, is_master=True) if made else Server("localhost", port, 2, True)
                assert server.given
                assert server.listener is not None
                with server.listener, server.listener.accept()[0] as connection:
                    connection.send(b"here")
                    assert early.recv(4) == b"here"
        assert not Server("localhost", port).given  # another rank connects


def test_servers_at_other_ports_have_sockets_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with held_master_port() as variables:
        monkeypatch.setenv("SWITCHML_MASTER_SOCKET", variables["SWITCHML_MASTER_SOCKET"])
        server = Server("localhost", 0, is_master=True)
        assert not server.given
        assert server.listener is not None
        server.listener.close()
    # Without the launcher the port is free.
    server = Server("localhost", int(variables["MASTER_PORT"]), is_master=True)
    assert not server.given
    assert server.listener is not None
    server.listener.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_does_not_get_the_socket() -> None:
    ask = (
        f"import os, socket, sys; os.setuid({NOBODY}); door = socket.socket(socket.AF_UNIX); "
        "door.connect(chr(0) + sys.argv[1]); print(socket.recv_fds(door, 1, 1)[:2])"
    )
    with held_master_port() as variables:
        command = [sys.executable, "-c", ask, variables["SWITCHML_MASTER_SOCKET"]]
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    assert answer.stdout == "(b'', [])\n"


def test_a_rank_of_another_user_hears_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with held_master_port() as variables:
        monkeypatch.setenv("SWITCHML_MASTER_SOCKET", variables["SWITCHML_MASTER_SOCKET"])
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY)  # in the launcher's thread
        with pytest.raises(ConnectError, match=f"start the job as user {NOBODY}"):
            Server("localhost", int(variables["MASTER_PORT"]), is_master=True)
