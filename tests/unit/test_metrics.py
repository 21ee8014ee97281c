"""Metrics: the addresses that serve them, and the families that are made from native counters."""

import asyncio
import logging
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import switchml
from switchml.client import metrics as process_metrics
from switchml.common.metrics_address import MetricsPlace, parse_address, read_token
from switchml.common.metrics_server import Families, MetricsExporter, on_loop
from switchml.common.tls import Certificates
from switchml.ops.certificates import init


def read(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9800", ("127.0.0.1", 9800)),
        ("0", ("127.0.0.1", 0)),
        ("10.0.0.1:9800", ("10.0.0.1", 9800)),
        ("[::1]:9800", ("::1", 9800)),
        ("host.example:1", ("host.example", 1)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", ":", ":9800", "host", "host:", "1:65536", "1:-1", "1:²"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="neither PORT nor HOST:PORT"):
        parse_address(text)


def fill(families: Families) -> None:
    families.gauge("test_jobs", "Jobs.", 1, state="ready")
    families.gauge("test_jobs", "Jobs.", 2, state="running")
    families.counter("test_packets_total", "Packets.", 2**60)
    families.durations("test_call_seconds", "Calls.", [1, 0, 2, 3], 4_500_000_000, rank="0")


def test_families_are_served() -> None:
    server = MetricsExporter(MetricsPlace("127.0.0.1", 0), fill)
    try:
        text = read(server.address)
    finally:
        server.close()
    for line in (
        'test_jobs{state="ready"} 1.0',
        'test_jobs{state="running"} 2.0',
        f"test_packets_total {float(2**60)!r}",
        'test_call_seconds_bucket{le="1.024e-06",rank="0"} 1.0',
        'test_call_seconds_bucket{le="2.048e-06",rank="0"} 1.0',
        'test_call_seconds_bucket{le="4.096e-06",rank="0"} 3.0',
        'test_call_seconds_bucket{le="+Inf",rank="0"} 6.0',
        'test_call_seconds_count{rank="0"} 6.0',
        'test_call_seconds_sum{rank="0"} 4.5',
    ):
        assert line in text.splitlines()
    assert text.count("# TYPE test_jobs gauge") == 1
    assert "process_cpu_seconds_total" in text
    with pytest.raises(OSError, match="refused"):
        read(server.address)


def test_a_token_is_asked_for() -> None:
    server = MetricsExporter(MetricsPlace("127.0.0.1", 0, "correct-horse-battery"), fill)
    try:
        for wrong in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "correct-horse-battery"}):
            request = urllib.request.Request(f"http://{server.address}/metrics", headers=wrong)
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(request, timeout=30)
        right = {"Authorization": "Bearer correct-horse-battery"}
        request = urllib.request.Request(f"http://{server.address}/metrics", headers=right)
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert 'test_jobs{state="ready"} 1.0' in answer.read().decode()
    finally:
        server.close()


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (None, 0o600, "cannot be read"),
        ("a-token-of-some-length\n", 0o604, "can be read by every user; chmod 600"),
        ("short\n", 0o600, "16 printable characters or more"),
        ("two words of some length", 0o600, "one word"),
        ("", 0o600, "one word"),
    ],
)
def test_token_files_that_are_refused(tmp_path: Path, content: str | None, mode: int, words: str) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    with pytest.raises(ValueError, match=words):
        read_token(path)


def test_a_token_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("a-token-of-some-length\n")
    path.chmod(0o600)
    assert read_token(path) == "a-token-of-some-length"


def test_an_address_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"metrics cannot be served at 127.0.0.1:{port}: .*another --metrics"):
            MetricsExporter(MetricsPlace("127.0.0.1", port), fill)


def test_other_hosts_can_read_only_when_told(caplog: pytest.LogCaptureFixture) -> None:
    MetricsExporter(MetricsPlace("127.0.0.1", 0), fill).close()
    assert not caplog.records
    MetricsExporter(MetricsPlace("0.0.0.0", 0), fill).close()
    assert "to everyone who can reach it" in caplog.text


async def test_state_of_an_event_loop_is_read_on_it() -> None:
    loops = []

    def note(families: Families) -> None:
        loops.append(asyncio.get_running_loop())
        fill(families)

    server = MetricsExporter(MetricsPlace("127.0.0.1", 0), on_loop(note))
    text = await asyncio.to_thread(read, server.address)
    assert 'test_jobs{state="ready"} 1.0' in text
    assert loops == [asyncio.get_running_loop()]
    await asyncio.to_thread(server.close)


# ---- training processes ---------------------------------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(process_metrics, "_from_environment", None)
    yield
    if process_metrics._from_environment is not None:
        process_metrics._from_environment.close()


def test_a_process_without_communicators() -> None:
    server = switchml.serve_metrics()
    try:
        assert server.address.startswith("127.0.0.1:")
        assert "process_cpu_seconds_total" in read(server.address)
    finally:
        server.close()


def test_nothing_is_served_unasked(fresh: None) -> None:
    assert process_metrics.serve_from_environment({}) is None


def test_local_ranks_have_ports_of_their_own(fresh: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    server = process_metrics.serve_from_environment({"SWITCHML_METRICS": str(port - 3), "LOCAL_RANK": "3"})
    assert server is not None
    assert server.address == f"127.0.0.1:{port}"
    assert process_metrics.serve_from_environment({"SWITCHML_METRICS": "0"}) is server  # only once


def test_a_port_that_is_taken_does_not_end_the_training(fresh: None, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, caplog.at_level(logging.WARNING):
        port = taken.getsockname()[1]
        assert process_metrics.serve_from_environment({"SWITCHML_METRICS": f"127.0.0.1:{port}"}) is None
    assert f"cannot serve the metrics of this process at 127.0.0.1:{port} (SWITCHML_METRICS)" in caplog.text


@pytest.mark.parametrize("text", ["x", "host:", "70000", "1:x"])
def test_what_is_no_address_is_refused(text: str, fresh: None) -> None:
    with pytest.raises(switchml.ConnectError, match="SWITCHML_METRICS"):
        process_metrics.serve_from_environment({"SWITCHML_METRICS": text})


def test_the_expiry_of_a_certificate_is_served(tmp_path: Path) -> None:
    issued = init(tmp_path, agents=("host-1",))[0]
    server = MetricsExporter(MetricsPlace("127.0.0.1", 0), lambda _families: None, Certificates(issued.directory))
    try:
        [line] = [line for line in read(server.address).splitlines() if line.startswith("switchml_certificate_expiry")]
        assert abs(float(line.split()[1]) - issued.not_after.timestamp()) < 1
    finally:
        server.close()
