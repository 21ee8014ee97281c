"""DPDK over net_memif: agents and the switch are separate processes, without huge pages."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import switchml
from switchml.common.counter_table import DEVICE, LINK, PORT
from switchml.common.counter_table import FAULTS as INJECTED
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.devices import built
from tests.loopback.counter_pages import counters_on, described, page
from tests.loopback.device_harness import VALUES, check_restart, link_counters, port_counters, running_fabric
from tests.loopback.memif_links import agent, switch_options

pytestmark = pytest.mark.skipif(
    not built("dpdk"), reason="skipped: built without DPDK; on Debian: apt-get install libdpdk-dev pkg-config"
)

MEGABYTE = 1 << 20


FAULTS = ("--drop", "0.01", "--duplicate", "0.01", "--delay", "0.01", "--seed", "3")


@pytest.mark.parametrize("faults", [pytest.param((), marks=pytest.mark.long), FAULTS])
def test_all_reduce_between_processes(tmp_path: Path, faults: tuple[str, ...]) -> None:
    options = [*switch_options(tmp_path, 2), *faults]
    with running_fabric(tmp_path, options, [agent(tmp_path, 1), agent(tmp_path, 2)]) as fabric:
        fabric.check_all_reduce(4, 4 * MEGABYTE // 4)
    switch, *agents = fabric.logs
    for port, log in enumerate(agents, 1):
        counters = link_counters(log)
        # Values were read from the memory that the agent shares with its processes.
        assert counters["uncopied"] > 0.8 * counters["sent"]
        assert counters["received"] > 0
        # A packet that the switch held back may arrive after the job: unknown_port.
        assert not any(counters[name] for name in ("malformed", "bad_checksum", "not_for_us")), counters
        injected = port_counters(switch, port)
        assert bool(injected["injected_drop"]) == bool(faults)


def samples(address: str) -> dict[tuple[str, str], float]:
    """Return the metrics at `address`, by name and by their rank, port or reason."""
    keys = ("rank", "port", "reason", "state")
    return {
        (sample.name, "".join(sample.labels.get(key, "") for key in keys)): sample.value
        for family in page(address)
        for sample in family.samples
    }


def test_profile_and_metrics_count_what_goes_over_devices(tmp_path: Path) -> None:
    elements = MEGABYTE // 4
    packets = elements // VALUES
    with running_fabric(tmp_path, switch_options(tmp_path, 2), [agent(tmp_path, 1), agent(tmp_path, 2)]) as fabric:
        profiles: list[pb.RankProfile] = []
        agents: list[dict[tuple[str, str], float]] = []

        def reduce(comm: switchml.Communicator) -> None:
            comm.all_reduce(np.ones(elements, dtype=np.int32))
            comm.barrier()
            if comm.rank == 0:
                job = next(job.id for job in fabric.client.list_jobs() if job.state == pb.JOB_STATE_RUNNING)
                profiles.extend(fabric.client.profile_job(job, calls=10).ranks)
                agents.extend(samples(address) for address in fabric.metrics[1:])
                for address in fabric.metrics[1:]:
                    assert counters_on(page(address), "switchml_agent_device_") == described((*DEVICE, *LINK))
            comm.barrier()

        fabric.run_job(2, reduce)
        switch = samples(fabric.metrics[0])
        assert counters_on(page(fabric.metrics[0]), "switchml_softswitch_port_") == described((*PORT, *INJECTED))
    assert sorted(profile.rank for profile in profiles) == [0, 1]
    for profile in profiles:
        assert profile.send_ns > 0
        assert profile.receive_ns > 0
        assert profile.received_bytes >= elements * 4
        counted, rank = agents[int(profile.agent.removeprefix("a"))], str(profile.rank)
        assert counted["switchml_rank_received_packets_total", rank] >= packets
        assert counted["switchml_rank_path_seconds_total", f"{rank}send"] > 0
        assert counted["switchml_rank_path_seconds_total", f"{rank}receive"] > 0
        for name in ("sent", "received", "uncopied"):
            assert counted[f"switchml_agent_device_{name}_frames_total", ""] >= packets
        for reason in ("malformed", "bad_checksum", "unknown_port", "receive_errors"):
            assert counted["switchml_agent_device_dropped_frames_total", reason] == 0
    for port in ("1", "2"):
        for direction in ("received", "sent"):
            assert switch[f"switchml_softswitch_port_{direction}_packets_total", port] >= packets
        assert switch["switchml_softswitch_port_receive_errors_total", port] == 0


@pytest.mark.long
def test_data_threads_that_never_sleep(tmp_path: Path) -> None:
    busy = ("--poll", "busy")
    places = [agent(tmp_path, port) for port in (1, 2)]
    places = [replace(place, options=(*place.options, *busy)) for place in places]
    with running_fabric(tmp_path, [*switch_options(tmp_path, 2), *busy], places) as fabric:
        fabric.check_all_reduce(2, MEGABYTE // 4)


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_agents_find_a_switch_that_was_started_again(tmp_path: Path, how: signal.Signals) -> None:
    agents = [agent(tmp_path, 1), agent(tmp_path, 2)]
    check_restart(tmp_path, switch_options(tmp_path, 2), agents, how, MEGABYTE // 4)
