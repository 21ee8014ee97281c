"""The agent's checks of the path to the switch: the MTU, and the best GSO batch size."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from switchml import Communicator
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES
from switchml.host_agent._engine import Engine
from tests.loopback.rank_assignments import rank_assignment
from tests.loopback.veth_wires import in_namespace, ip, veth_wires, why_not
from tests.support.collective_harness import running_fabric

takes_namespaces = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")

HEADERS = 20 + 8 + PROTOCOL_HEADER_BYTES  # of IPv4, UDP and SwitchML
MTU = 1500


def refusal(values: int) -> str:
    """Return the reason why a rank is refused in a namespace with this MTU, or an empty text."""

    def open_rank() -> str:
        engine = Engine()
        engine.start()
        try:
            switch = {"switch_address": "10.9.0.100", "switch_udp_port": 48864}
            assignment = rank_assignment(1, 0, 2, slots=4, values=values, address="10.9.0.1", **switch)
            handle = engine.open_rank(assignment)
            engine.close_rank(handle)
        except ValueError as error:
            return str(error)
        finally:
            engine.stop()
        return ""

    with veth_wires() as wires:
        ip("-n", wires.hosts[0], "link", "set", "eth0", "mtu", str(MTU))
        return in_namespace(wires.hosts[0], open_rank)


@takes_namespaces
def test_packets_above_the_mtu_are_refused() -> None:
    message = refusal(512)
    assert re.search(
        r"packets of 2080 bytes .* 10\.9\.0\.1 to the switch at 10\.9\.0\.100, .* 1472: raise its MTU", message
    )


@takes_namespaces
def test_packets_that_fill_the_mtu_are_taken() -> None:
    assert refusal((MTU - HEADERS) // 4) == ""
    assert "do not fit" in refusal((MTU - HEADERS) // 4 + 1)


def test_the_packets_of_a_message_are_chosen_by_measurement(tmp_path: Path) -> None:
    """Check that the chosen size is the maximum, which is seven packets here, or a half, a quarter ... of it."""
    values = 2048
    with running_fabric(tmp_path, values, 256) as fabric:
        fabric.add_job(1, 2, slots=256)

        def chosen() -> set[int]:
            return {
                fabric.engines[0].status(handle)["gso_batch_size"] for _, _, handle in fabric.agent.jobs.open_ranks()
            }

        def run(comm: Communicator) -> tuple[set[int], set[int]]:
            x = np.ones(2_000_000, np.int32)
            before = chosen_now()
            for _ in range(20):
                x[:] = 1
                comm.all_reduce(x)
                assert (x == 2).all()
            return before, chosen_now()

        def chosen_now() -> set[int]:
            return fabric.call(chosen)

        for before, after in fabric.run_ranks(2, run):
            assert before == {0}
            assert len(after) == 1  # the ranks share one socket
            assert after < {7, 3, 1}
