"""The metrics page of each program has exactly its counters of counters.toml."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import Metric

import switchml
from switchml.common.counter_table import FAULTS, PATH, PORT, PROCESS, RANK, THREAD
from switchml.common.counters import Counter
from switchml.common.metrics_address import MetricsPlace
from switchml.common.metrics_server import MetricsExporter, on_loop
from switchml.dataplane.softswitch.metrics import SwitchMetrics
from switchml.host_agent.metrics import AgentMetrics
from tests.loopback.counter_pages import counters_on, described, page
from tests.support.collective_harness import PORT as UDP_PORT
from tests.support.collective_harness import SHM_PORT, Fabric, running_fabric
from tests.support.soft_switch import wait_until

ANY_PORT = MetricsPlace("127.0.0.1", 0)


@pytest.fixture(params=["udp", "shm"])
def fabric(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fabric]:
    with running_fabric(tmp_path, transport=request.param) as running:
        yield running


def read(server: MetricsExporter | switchml.MetricsServer) -> list[Metric]:
    try:
        return page(server.address)
    finally:
        server.close()


def agent_page(fabric: Fabric) -> list[Metric]:
    metrics = AgentMetrics(fabric.engines[0], fabric.agent.jobs, "a1", "udp", lambda: True)
    return read(MetricsExporter(ANY_PORT, fabric.call(lambda: on_loop(metrics))))


def switch_page(fabric: Fabric) -> list[Metric]:
    return read(MetricsExporter(ANY_PORT, SwitchMetrics(fabric.switch, (UDP_PORT, SHM_PORT), "1", list)))


@contextmanager
def after_calls(fabric: Fabric) -> Iterator[None]:
    """Provide a rank that has made some calls and makes no more."""
    fabric.add_job(1, 1)
    with fabric.connect(0) as comm:
        for _ in range(3):
            comm.all_reduce(np.ones(10_000, np.float32))
        yield


def check_values(families: list[Metric], counters: tuple[Counter, ...], values: Any, **series: str) -> None:
    samples = {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}
    for counter in counters:
        labels = series | dict(counter.labels)
        if counter.is_histogram:
            assert samples[f"{counter.metric}_count", frozenset(labels.items())] == sum(values[counter.name])
            assert samples[f"{counter.metric}_sum", frozenset(labels.items())] == values[counter.total] / 1e9
        elif counter.metric:
            found = samples[counter.metric, frozenset(labels.items())]
            assert found == counter.in_units(values[counter.name]), counter.name


def test_an_agent_exports_what_the_table_says(fabric: Fabric) -> None:
    of_rank = (*RANK, *THREAD, *PROCESS, *PATH)
    with after_calls(fabric):
        handle = fabric.call(lambda: fabric.agent.jobs[1].ranks[0].handle)
        assert handle is not None
        engine = fabric.engines[0]

        def thread_times() -> list[Any]:
            profile: dict[str, Any] = {**engine.profile(handle, 0)}
            return [profile[counter.name] for counter in THREAD]

        wait_until(lambda: thread_times() == thread_times(), "the rank's thread is idle")
        families = agent_page(fabric)
        found: dict[str, Any] = {**engine.status(handle), **engine.profile(handle, 0)}
    assert counters_on(families, "switchml_") == described(of_rank)
    stable = tuple(counter for counter in of_rank if counter.name not in ("send_ns", "receive_ns"))
    check_values(families, stable, found, job_name="job-1", rank="0")
    assert found["calls"] == 3
    assert found["sent"] >= 3 * 10_000 // fabric.values


def test_a_soft_switch_exports_what_the_table_says(fabric: Fabric) -> None:
    with after_calls(fabric):
        families = switch_page(fabric)
        counted = {port: fabric.switch.port_counters(port) for port in (UDP_PORT, SHM_PORT)}
    assert counters_on(families, "switchml_softswitch_port_") == described((*PORT, *FAULTS))
    for port, found in counted.items():
        check_values(families, (*PORT, *FAULTS), found, port=str(port))
        assert (found["received"] > 0) == (port == fabric.port)


def test_a_training_process_exports_the_counters_of_its_thread(fabric: Fabric) -> None:
    with after_calls(fabric):
        found = counters_on(read(switchml.serve_metrics()), "switchml_")
    expected = described((*THREAD, *PROCESS))
    assert found == {(name.replace("switchml_rank_", "switchml_process_"), labels) for name, labels in expected}
