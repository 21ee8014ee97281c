"""Packets that do not fit the way to the switch: said when the job starts, not by silence afterwards."""

from __future__ import annotations

import re

import pytest
from veth_wires import in_namespace, ip, veth_wires, why_not

from dataplane.constants import PROTOCOL_HEADER_BYTES
from host_agent._engine import Engine

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")

HEADERS = 20 + 8 + PROTOCOL_HEADER_BYTES  # IPv4's, UDP's, ours
MTU = 1500


def refusal(values: int) -> str:
    """What a rank is refused for, in a namespace whose interface has this MTU; empty where it is not."""

    def open_rank() -> str:
        engine = Engine()
        engine.start()
        try:
            handle = engine.open_rank("10.9.0.1", "10.9.0.100", 48864, 1, 0, 1, 2, 0, 4, values)
            engine.close_rank(handle)
        except ValueError as error:
            return str(error)
        finally:
            engine.stop()
        return ""

    with veth_wires() as wires:
        ip("-n", wires.hosts[0], "link", "set", "eth0", "mtu", str(MTU))
        return in_namespace(wires.hosts[0], open_rank)


def test_packets_above_the_mtu_are_refused() -> None:
    message = refusal(512)
    assert re.search(
        r"packets of 2076 bytes .* 10\.9\.0\.1 to the switch at 10\.9\.0\.100, .* 1472: raise its MTU", message
    )


def test_packets_that_fill_the_mtu_are_taken() -> None:
    assert refusal((MTU - HEADERS) // 4) == ""
    assert "do not fit" in refusal((MTU - HEADERS) // 4 + 1)
