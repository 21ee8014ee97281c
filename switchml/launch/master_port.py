"""The TCP port at which the ranks of one job find each other, MASTER_PORT."""

import contextlib
import errno
import os
import socket
import threading
from collections.abc import Iterator

from switchml.common.peer_credentials import peer_credentials

__all__ = ["held_master_port"]


@contextlib.contextmanager
def held_master_port() -> Iterator[dict[str, str]]:
    """Listen at a free TCP port, on all addresses of this machine, and yield the variables by which ranks use it.

    A port that is only bound can be taken: Linux lets a socket of any user that sets SO_REUSEADDR listen there first.
    So the socket listens from the beginning, and rank 0 gets duplicates of it at the Unix socket SWITCHML_MASTER_SOCKET
    (switchml/client/master_port.py). Connections that come earlier wait for it.
    """
    with _listener() as listener, socket.socket(socket.AF_UNIX) as door:
        door.bind("")  # Linux chooses an abstract name
        door.listen()
        thread = threading.Thread(target=_hand_out, args=(listener, door), name="master port", daemon=True)
        thread.start()
        try:
            name = door.getsockname()[1:].decode()
            yield {"MASTER_PORT": str(listener.getsockname()[1]), "SWITCHML_MASTER_SOCKET": name}
        finally:
            door.shutdown(socket.SHUT_RDWR)
            thread.join()


def _listener() -> socket.socket:
    both = socket.has_dualstack_ipv6()
    return socket.create_server(("", 0), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both)


def _hand_out(listener: socket.socket, door: socket.socket) -> None:
    """Send the listener to each process of this user that connects, until the door is shut. They need not ask."""
    while True:
        try:
            caller, _ = door.accept()
        except OSError as error:
            if error.errno == errno.EINVAL:
                return
            raise
        with caller, contextlib.suppress(ConnectionError):
            if peer_credentials(caller).uid == os.geteuid():
                socket.send_fds(caller, [bytes(1)], [listener.fileno()])
