"""Asks a daemon whether it does its work: exit status 0, or 1 with the reason on standard error.

Usage: python healthy.py switch|controller|agent, with the environment that the daemon's script was started with.
"""

import os
import socket
import sys

import grpc
from finsy.proto import p4r, p4r_grpc

from controller.client import ControllerClient
from controller.errors import ControllerError

SECONDS = 5.0


class Unhealthy(Exception):
    """The daemon answers, and says that it cannot work."""


def switch() -> None:
    """The P4Runtime server answers: soft switch and BMv2 alike."""
    with grpc.insecure_channel(os.environ["SWITCHML_P4RUNTIME"], [("grpc.enable_http_proxy", 0)]) as channel:
        p4r_grpc.P4RuntimeStub(channel).Capabilities(p4r.CapabilitiesRequest(), timeout=SECONDS)


def controller() -> None:
    """The controller answers and drives its switch."""
    with ControllerClient(os.environ["SWITCHML_CONTROLLER"], SECONDS, insecure=True) as client:
        for found in client.list_switches():
            if not (found.connected and found.primary):
                raise Unhealthy(f"switch {found.name} is not driven: {found.failure or 'not connected'}")


def agent() -> None:
    """The controller has the agent of this address registered, and its socket takes connections."""
    address = os.environ.get("SWITCHML_ADDRESS") or socket.gethostbyname(os.uname().nodename)
    with ControllerClient(os.environ["SWITCHML_CONTROLLER"], SECONDS, insecure=True) as client:
        live = {found.registration.address: found.registration for found in client.list_agents() if found.live}
    if address not in live:
        raise Unhealthy(f"the controller has no live agent at {address}, only at {', '.join(live) or 'no address'}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.settimeout(SECONDS)
        probe.connect(live[address].socket)


CHECKS = {check.__name__: check for check in (switch, controller, agent)}


def main() -> int:
    """Run the check that the only argument names."""
    if len(sys.argv) != 2 or sys.argv[1] not in CHECKS:
        sys.stderr.write(f"usage: {sys.argv[0]} {'|'.join(CHECKS)}\n")
        return 2
    try:
        CHECKS[sys.argv[1]]()
    except grpc.RpcError as error:
        sys.stderr.write(f"{sys.argv[1]}: {error.details()}\n")
    except (ControllerError, OSError, Unhealthy) as error:
        sys.stderr.write(f"{sys.argv[1]}: {error}\n")
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
