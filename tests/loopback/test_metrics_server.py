"""The metrics server, and clients that exceed its limits."""

from __future__ import annotations

import contextlib
import socket
import urllib.request
from collections.abc import Iterator

import pytest

from switchml.common.metrics_address import MetricsPlace
from switchml.common.metrics_server import MOST_CONNECTIONS, Families, MetricsExporter
from tests.support.soft_switch import wait_until


def fill(families: Families) -> None:
    families.gauge("switchml_answer", "An answer.", 42)


@pytest.fixture
def server() -> Iterator[MetricsExporter]:
    running = MetricsExporter(MetricsPlace("127.0.0.1", 0), fill)
    try:
        yield running
    finally:
        running.close()


def scrape(server: MetricsExporter) -> bytes:
    with urllib.request.urlopen(f"http://{server.address}/metrics", timeout=30) as answer:
        return bytes(answer.read())


def test_connections_beyond_the_limit_are_closed(server: MetricsExporter) -> None:
    host, port = server.address.rsplit(":", 1)
    assert b"switchml_answer 42" in scrape(server)
    with contextlib.ExitStack() as silent:
        held = [silent.enter_context(socket.create_connection((host, int(port)), 30)) for _ in range(MOST_CONNECTIONS)]
        with socket.create_connection((host, int(port)), 30) as one_more:
            assert one_more.recv(1) == b""
        assert all(connection.fileno() >= 0 for connection in held)

    def answers() -> bool:  # after it has noticed that they are gone
        with contextlib.suppress(OSError):
            return b"switchml_answer 42" in scrape(server)
        return False

    wait_until(answers, "it serves again")
