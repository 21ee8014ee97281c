"""Racks that a probe finds, and what it saves that hosts of one rack share a leaf. Needs root."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from studies.cloud_collectives.racks import Racks, racks
from switchml.topologies.shaped_links import Shape
from tests.support.controller_harness import ControllerProcess
from tests.support.fabric_harness import SCRIPTS, Ctl, needs_namespaces, wait_until

RACK_OF = {"h1": 0, "h2": 1, "h3": 0, "h4": 1, "h5": 1, "h6": 0}
TRUNK = Shape(50_000_000, 0.4)
VALUES, ELEMENTS = 256, 1 << 18
SWITCHES = {"top": ("rack-0", 48865), "leaf-0": ("rack-0", 48864), "leaf-1": ("rack-1", 48864)}


class RackFabric:
    """A switch above two leaves, one in each rack, and a controller; agents are attached to leaves as a test says."""

    def __init__(self, fabric: Racks, directory: Path) -> None:
        self._fabric = fabric
        self._directory = directory
        self._stack = contextlib.ExitStack()
        self._agents = contextlib.ExitStack()
        self.controller = f"unix:{directory}/controller.sock"

    def __enter__(self) -> RackFabric:
        self._stack.callback(self._agents.close)
        config = ""
        for name, (node, port) in SWITCHES.items():
            address, socket = self._fabric.address(node), f"unix:{self._directory}/{name}.sock"
            table = {"name": name, "target": "soft", "p4runtime": socket, "address": address, "udp_port": port}
            table |= {"values_per_packet": VALUES, "slots": 4096, "default_pool": 64}
            config += "[[switches]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
            config += "" if name == "top" else 'parent = {switch = "top", port = 1, uplink = 1}\n'
            arguments = ["--grpc", socket, "--udp-port", f"1={address}:{port}", "--values", str(VALUES)]
            self._run(self._stack, node, [str(SCRIPTS / "switchml-switch"), *arguments])
        process = ControllerProcess(self._directory, config)
        process.listen = self.controller
        self._stack.callback(process.stop)
        self.client = self._stack.enter_context(process.start())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def attach(self, below: Sequence[Sequence[str]]) -> None:
        """Attach the agents of these hosts to leaf-0 and leaf-1, and no others."""
        self._agents.close()
        wait_until(lambda: not any(one.live for one in self.client.list_agents()), "the agents are gone")
        for number, hosts in enumerate(below):
            for host in hosts:
                command = [str(SCRIPTS / "switchml-agent"), "--controller", self.controller, "--name", host]
                command += ["--address", self._fabric.address(host), "--socket", str(self._directory / f"{host}.sock")]
                self._run(self._agents, host, [*command, "--switch", f"leaf-{number}", "--transport", "udp"])
        wait_until(lambda: sum(one.live for one in self.client.list_agents()) == len(RACK_OF), "the agents are there")

    def _run(self, stack: contextlib.ExitStack, node: str, command: Sequence[str]) -> None:
        process = self._fabric.start(node, command)
        stack.callback(process.wait, 30)
        stack.callback(process.terminate)


@pytest.fixture
def fabric(ctl: Ctl) -> Iterator[tuple[Racks, RackFabric]]:
    directory = ctl.run_dir.parent / "racks"
    directory.mkdir()
    with racks(directory, RACK_OF, TRUNK) as found, RackFabric(found, directory) as made:
        yield found, made


@needs_namespaces
def test_probing_finds_the_racks_and_each_leaf_then_sends_one_contribution(
    ctl: Ctl, fabric: tuple[Racks, RackFabric]
) -> None:
    network, made = fabric

    def trunk_bytes_of_a_sum() -> float:
        before = network.trunk_bytes()
        program = f"import numpy, switchml; switchml.connect().all_reduce(numpy.ones({ELEMENTS}, numpy.float32))"
        command = ("--", "python", "-c", program)
        ctl.run("--controller", made.controller, "job", "start", "--workers", "6", "--switch", "top", *command)
        return network.trunk_bytes() - before

    hosts = list(RACK_OF)
    made.attach([hosts[:3], hosts[3:]])  # h2 and h6 are in the other rack than their leaf
    scattered = trunk_bytes_of_a_sum()
    ctl.run("--controller", made.controller, "probe", "--bytes", "1MiB")
    found = ctl.json("order", "--for", "leaves")["leaves"]
    assert found == [[host for host in hosts if RACK_OF[host] == rack] for rack in (0, 1)]
    ring = ctl.json("order", "--for", "ring")["order"]
    assert sum(RACK_OF[one] != RACK_OF[other] for one, other in zip(ring, [*ring[1:], ring[0]], strict=True)) == 2

    made.attach(found)
    together = trunk_bytes_of_a_sum()
    # The leaf of the other rack sends its sum to the top, and gets the result; before, h2 and h6 did so, too.
    size = 4 * ELEMENTS
    assert 2 * size < together < 3 * size  # a busy machine may send packets again
    assert scattered > 6 * size
