"""The secret of an epoch: in every contribution, checked in every RESULT."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import numpy as np

from ptf_tests.wire import Packet
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import Kind
from tests.support.collective_harness import ADDRESS, running_fabric
from tests.support.soft_switch import wait_until

VALUES = 64
SECRET = 0x5EC2E7E1


def test_an_agent_takes_only_results_with_the_secret(tmp_path: Path) -> None:
    """Use a socket of this test as the switch, so that it can send wrong answers."""
    with running_fabric(tmp_path, VALUES) as fabric, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as switch:
        switch.bind((ADDRESS, 0))
        switch.settimeout(30)
        assignment = pb.Assignment(
            job=1,
            epoch=1,
            name="job-1",
            world_size=1,
            ranks=[0],
            slots=4,
            values_per_packet=VALUES,
            switch_address=ADDRESS,
            switch_udp_port=switch.getsockname()[1],
            secret=SECRET,
            check_key=bytes(16),
        )
        fabric.wait(fabric.agent.assignments.open(assignment))
        fabric.call(fabric.agent.orders.activate, pb.Activation(job=1, epoch=1))
        with fabric.connect(0) as comm:
            array = np.arange(VALUES, dtype=np.int32)
            work = comm.all_reduce(array, async_op=True)
            assert work is not None
            data, agent = switch.recvfrom(65536)
            contribution = Packet.unpack(data)
            assert contribution.secret == SECRET

            forged = replace(contribution, kind=Kind.RESULT, values=(7,) * VALUES)
            for secret in (0, SECRET ^ 1, SECRET ^ 1 << 31):
                switch.sendto(replace(forged, secret=secret).pack(), agent)
            ((_, _, handle),) = fabric.agent.jobs.open_ranks()
            wait_until(lambda: fabric.engines[0].status(handle)["ignored"] == 3, "the forged ones were looked at")
            assert not work.is_completed()

            switch.sendto(replace(contribution, kind=Kind.RESULT).pack(), agent)
            work.wait()
            np.testing.assert_array_equal(array, np.arange(VALUES))
