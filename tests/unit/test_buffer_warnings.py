"""Warnings about small socket buffers advise settings that also work in a container or a hardened unit."""

import logging
from typing import cast

import pytest

from switchml.dataplane.softswitch import daemon as switch_daemon
from switchml.dataplane.softswitch._native import UDP_PORT_BUFFER_BYTES, Switch
from switchml.host_agent import daemon as agent_daemon
from switchml.host_agent._engine import SOCKET_BUFFER_BYTES

GRANTED = 1000


class SmallBuffers:
    """The counters of a UDP port that got smaller buffers from the kernel than it requested."""

    def port_counters(self, port: int) -> dict[str, int]:
        return {"udp_port": 48864, "receive_buffer": GRANTED, "send_buffer": GRANTED}


def advise(records: list[logging.LogRecord]) -> list[str]:
    """Return the advice in each warning."""
    return [record.getMessage().partition("larger bursts; ")[2] for record in records]


def test_the_switch_advises_a_setting_of_the_machine(caplog: pytest.LogCaptureFixture) -> None:
    switch_daemon._warn_of_small_buffers(1, cast(Switch, SmallBuffers()))
    wanted = UDP_PORT_BUFFER_BYTES
    assert advise(caplog.records) == [
        f"as root on this machine, outside of any container: sysctl -w net.core.{limit}={wanted}"
        for limit in ("rmem_max", "wmem_max")
    ]


def test_the_agent_advises_a_setting_of_the_machine(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_daemon, "granted_socket_buffers", lambda: (GRANTED, GRANTED))
    agent_daemon._warn_of_small_buffers()
    wanted = SOCKET_BUFFER_BYTES
    assert advise(caplog.records) == [
        f"as root on this machine, outside of any container: sysctl -w net.core.{limit}={wanted}"
        for limit in ("rmem_max", "wmem_max")
    ]
