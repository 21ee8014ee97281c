"""Keep the UDP ports of a fabric's processes from other users, as long as this process runs.

A switch or an agent that has ended would leave its port to any user of the machine, while others still send to it. Its
standard input is the Unix datagram socket to which they pass their sockets as services do to systemd (sd_notify(3),
FDSTORE=1); native/net/held_ports.h has the other end. Runs as a script, without the packages that others need.
"""

import resource
import socket
from typing import Final

_MESSAGE_BYTES: Final = 4096
_DESCRIPTORS: Final = 16  # of one message


def main() -> None:
    """Hold what arrives until a signal ends this process."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    held: list[int] = []
    with socket.socket(fileno=0) as messages:
        while True:
            held += socket.recv_fds(messages, _MESSAGE_BYTES, _DESCRIPTORS)[1]


if __name__ == "__main__":
    main()
