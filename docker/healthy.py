"""Check whether a daemon is healthy: exit status 0, or 1 with the reason on standard error.

Usage: python -I -S healthy.py switch|controller|agent, in the environment of the daemon.

Docker repeats this for every container, each second while the container starts. It therefore imports only a small part
of the standard library and makes only cheap requests: a gRPC client alone takes ten times as long to start.
"""

import os
import socket
import sys

SECONDS = 5.0
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # HTTP/2's preface, empty SETTINGS
FRAME_HEADER_BYTES = 9
SETTINGS = 4  # the type of the frame with which a server begins


class Unhealthy(Exception):
    """The daemon answers, and says that it cannot work."""


def connect(variable: str) -> socket.socket:
    """Return a connection to the HOST:PORT in an environment variable."""
    host, _, port = os.environ[variable].rpartition(":")
    return socket.create_connection((host, int(port)), SECONDS)


def metrics(variable: str) -> dict[str, float]:
    """Return the samples by name and labels, from the metrics address in an environment variable."""
    answer = bytearray()
    with connect(variable) as connection:
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        while received := connection.recv(65536):
            answer += received
    status, _, rest = answer.decode().partition("\r\n")
    if " 200 " not in status:
        raise Unhealthy(f"its metrics are not served: {status or 'no answer'}")
    samples = (line.rpartition(" ") for line in rest.partition("\r\n\r\n")[2].splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def switch() -> None:
    """Check that a soft switch or BMv2 answers at its P4Runtime port, by the first HTTP/2 frame."""
    with connect("SWITCHML_P4RUNTIME") as connection, connection.makefile("rb") as answer:
        connection.sendall(GREETING)
        header = answer.read(FRAME_HEADER_BYTES)
    if len(header) < FRAME_HEADER_BYTES or header[3] != SETTINGS:
        raise Unhealthy("the process that listens there is not a gRPC server")


def controller() -> None:
    """Check that the controller answers and drives its switch."""
    samples = metrics("SWITCHML_CONTROLLER_METRICS")
    driven = [value for name, value in samples.items() if name.startswith("switchml_switch_primary{")]
    if not driven or not all(driven):
        raise Unhealthy("its switch is not connected, or another controller drives it")


def agent() -> None:
    """Check that the agent answers and is registered with its controller."""
    if not metrics("SWITCHML_AGENT_METRICS").get("switchml_agent_registered"):
        raise Unhealthy("it is not registered with its controller")


CHECKS = {check.__name__: check for check in (switch, controller, agent)}


def main() -> int:
    """Run the check named by the only argument."""
    if len(sys.argv) != 2 or sys.argv[1] not in CHECKS:
        sys.stderr.write(f"usage: {sys.argv[0]} {'|'.join(CHECKS)}\n")
        return 2
    try:
        CHECKS[sys.argv[1]]()
    except (OSError, Unhealthy) as error:
        sys.stderr.write(f"{sys.argv[1]}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
