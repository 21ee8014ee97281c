"""The ports of a running switch, without a run of ptf."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ptf.dataplane import DataPlane

from ptf_tests.targets import Description
from ptf_tests.unix_port import UnixPort

__all__ = ["open_ports"]


@contextmanager
def open_ports(description: Description) -> Iterator[DataPlane]:
    """Return ptf's access to all ports, until the end of the ``with`` block."""
    config = {"platform": "switchml", "qlen": 100_000, "socket_recv_size": 65536}
    if description.unix:
        config["dataplane"] = {"portclass": UnixPort}
    dataplane = DataPlane(config)
    try:
        for port, interface in description.interfaces.items():
            dataplane.port_add(interface, 0, port)
        yield dataplane
    finally:
        dataplane.kill()
