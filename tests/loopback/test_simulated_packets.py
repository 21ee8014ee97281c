"""The simulation of the study of SwitchML counts the packets that the soft switch counts for the same all-reduce."""

from pathlib import Path

import numpy as np
import pytest

from studies.switchml.network import Network
from studies.switchml.tree import all_reduce
from switchml.dataplane.constants import Verdict
from tests.support.collective_harness import running_fabric

pytest.importorskip("simpy")

VALUES = 64
SLOTS = 64


@pytest.mark.parametrize("ranks", [2, 5])
@pytest.mark.parametrize("packets", [1, 200])
def test_packets_of_an_all_reduce(tmp_path: Path, ranks: int, packets: int) -> None:
    network = Network(
        bits_per_second=10**9, values=VALUES, pool=SLOTS, switch_delay=0, host_delay=10**7, host_packet=10**6
    )
    simulated = all_reduce(network, (ranks,), packets).counts[0]
    tensors = [np.arange(VALUES * packets, dtype=np.int32) for _ in range(ranks)]
    with running_fabric(tmp_path, VALUES) as fabric:
        fabric.add_job(1, ranks, SLOTS)
        fabric.run_ranks(ranks, lambda comm: comm.all_reduce(tensors[comm.rank]))
        counted = fabric.verdicts()
    for tensor in tensors:
        np.testing.assert_array_equal(tensor, ranks * np.arange(VALUES * packets))
    # A busy machine makes timers retransmit; what a switch drops or sends again is therefore not compared.
    assert counted[Verdict.AGGREGATED] == simulated.aggregated == (ranks - 1) * packets
    assert counted[Verdict.COMPLETED] == simulated.completed == packets
