"""The controller drives BMv2 with the same driver; whether the P4 program adds right is not asked here."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from controller_harness import DEADLINE, ControllerProcess, ScriptedAgent

from controller.proto import switchml_pb2 as pb

pytestmark = pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="BMv2 is not installed")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = ["simple_switch_grpc", "--no-p4", "--device-id", "1", "--", "--grpc-server-addr", address]
    with (tmp_path / "bmv2.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    yield address
    process.terminate()
    process.wait(DEADLINE)


def test_a_job_and_a_restart(address: str, tmp_path: Path):
    config = f'[[switches]]\nname = "b1"\ntarget = "bmv2"\np4runtime = "{address}"\naddress = "10.0.0.254"\n'
    controller = ControllerProcess(tmp_path, config + 'mac = "02:00:00:00:00:fe"\n')
    try:
        client = controller.start()
        (switch,) = client.list_switches()
        assert (switch.target, switch.values_per_packet) == ("bmv2", 64)
        with ScriptedAgent(client.address) as agent:
            job = client.start_job(4)
            assert (job.state, job.slots) == (pb.READY, 32)
            tables = [entry.table for entry in client.show_switch().entries]
            assert (tables.count("worker_table"), tables.count("rank_table"), tables.count("job_table")) == (4, 4, 1)
            client.close()
            controller.stop()
            assert agent.ended.wait(DEADLINE)
        before = len(controller.log.read_text())
        client = controller.start()
        # Nothing is loaded or written a second time.
        log = controller.log.read_text()[before:]
        assert "is connected at" in log
        assert "pipeline loaded" not in log
        assert "updates written" not in log
        client.stop_job(job.id)
        detail = client.show_switch()
        assert [entry.table for entry in detail.entries] == ["switch_address_table"]
        assert not detail.groups
    finally:
        controller.stop()
