"""A complete fabric of processes whose switch and agents send and receive Ethernet frames over DPDK or AF_XDP.

Switch, controller and agents are the daemons; the ranks are threads of the test that use the library.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import switchml
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from tests.support.soft_switch import DEADLINE, wait_until

SWITCH_IP, SWITCH_MAC = "10.9.0.254", "02:00:00:00:09:fe"
EAL = "--no-huge -m 160"
VALUES = 256
T = TypeVar("T")


@dataclass
class AgentPlace:
    """An agent: its address, the switch port that it is attached to, and the options of its transport."""

    address: str
    switch_port: int
    options: Sequence[str]
    prefix: Sequence[str] = ()  # the beginning of its command line: `ip netns exec ...`


@dataclass
class DeviceFabric:
    client: ControllerClient
    sockets: list[Path]
    logs: list[Path] = field(default_factory=list)  # of the switch, then of the agents
    metrics: list[str] = field(default_factory=list)  # their addresses, in the same order
    processes: list[int] = field(default_factory=list)
    p4runtime: str = ""  # of the switch

    def run_job(self, world_size: int, function: Callable[[switchml.Communicator], T]) -> list[T]:
        """Run `function` for every rank of a new job, each in a separate thread; return the results by rank."""
        job = self.client.start_job(pb.StartJobRequest(workers=world_size))
        agents = {rank.rank: rank.agent for rank in job.ranks}
        results: dict[int, T] = {}
        errors: dict[int, BaseException] = {}

        def run(rank: int) -> None:
            try:
                socket = self.sockets[int(agents[rank].removeprefix("a"))]
                with switchml.connect(agent=socket, job=job.id, rank=rank, world_size=world_size) as comm:
                    results[rank] = function(comm)
            except BaseException as error:
                errors[rank] = error

        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(world_size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
        assert not any(thread.is_alive() for thread in threads), f"ranks that do not end; others: {errors}"
        for error in errors.values():
            raise error
        *_, last = self.client.watch_job(job.id)
        assert last.state == pb.JOB_STATE_COMPLETED
        return [results[rank] for rank in range(world_size)]

    def check_all_reduce(self, world_size: int, elements: int, seed: int = 1) -> None:
        """All-reduce random integers and floats; compare every element of every rank with numpy's sums."""
        random = np.random.default_rng(seed)
        integers = random.integers(-(2**31), 2**31, (world_size, elements), dtype=np.int32)
        floats = random.standard_normal((world_size, elements), dtype=np.float32)

        def reduce(comm: switchml.Communicator) -> tuple[Any, Any]:
            whole, real = integers[comm.rank].copy(), floats[comm.rank].copy()
            comm.all_reduce(whole)
            comm.all_reduce(real)
            return whole, real

        with np.errstate(over="ignore"):
            expected = integers.sum(axis=0, dtype=np.int32)
        for whole, real in self.run_job(world_size, reduce):
            np.testing.assert_array_equal(whole, expected)
            np.testing.assert_allclose(real, floats.sum(axis=0), atol=1e-5 * world_size)


def link_counters(log: Path) -> dict[str, int]:
    """Return what an agent that has ended has logged about its device."""
    (line,) = [line for line in log.read_text().splitlines() if "'unknown_port'" in line]
    counters = json.loads(line[line.index("{") :].replace("'", '"'))
    assert isinstance(counters, dict)
    return counters


def port_counters(log: Path, port: int) -> dict[str, Any]:
    """Return what a switch that has ended has logged about a port."""
    (line,) = [line for line in log.read_text().splitlines() if f"port {port}: {{" in line]
    text = line[line.index("{") :].replace("'", '"').replace("True", "true").replace("False", "false")
    counters = json.loads(text)
    assert isinstance(counters, dict)
    return counters


@contextlib.contextmanager
def daemon(
    command: Sequence[str], ready_file: Path, log: Path, ended_by: signal.Signals = signal.SIGTERM
) -> Iterator[dict[str, Any]]:
    """Run a daemon until the end of the block, or until the block sends the signal `ended_by`; wait until it is ready.

    Yields the contents of its ready file.
    """
    with log.open("w") as stderr:
        process = subprocess.Popen([*command, "--ready-file", str(ready_file)], stdout=stderr, stderr=stderr)
    try:
        wait_until(lambda: ready_file.exists() or process.poll() is not None, f"{log.stem} is ready")
        assert process.poll() is None, log.read_text()
        yield json.loads(ready_file.read_text())
    finally:
        process.terminate()
        try:
            expected = 0 if ended_by == signal.SIGTERM else -ended_by
            assert process.wait(DEADLINE) == expected, f"exit status {process.returncode}\n{log.read_text()}"
        finally:
            process.kill()
    # The controller's log may contain one if an agent disconnects while the controller sends to it.
    assert log.stem == "controller" or "Traceback" not in log.read_text(), log.read_text()


@contextlib.contextmanager
def running_fabric(
    directory: Path,
    switch_options: Sequence[str],
    agents: Sequence[AgentPlace],
    prefix: Sequence[str] = (),
    switch_mac: str = SWITCH_MAC,
    values: int = VALUES,
    ended_by: signal.Signals = signal.SIGTERM,
) -> Iterator[DeviceFabric]:
    """Run a switch and its controller, both behind `prefix`, and agents a0, a1, ...; `ended_by` ends the switch."""
    with contextlib.ExitStack() as stack:
        log = directory / "switch.log"
        command = [*prefix, sys.executable, "-m", "switchml.dataplane.softswitch.daemon", "--grpc", "127.0.0.1:0"]
        command += ["--metrics", "127.0.0.1:0"]
        ready = stack.enter_context(daemon([*command, *switch_options], directory / "switch.ready", log, ended_by))
        table = {
            "name": "s1",
            "target": "soft",
            "p4runtime": ready["grpc"],
            "address": SWITCH_IP,
            "mac": switch_mac,
            "values_per_packet": values,
            "slots": 4096,
            "default_pool": 512,
        }
        config = directory / "controller.toml"
        config.write_text("[[switches]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()))
        command = [*prefix, sys.executable, "-m", "switchml.controller.daemon", "--config", str(config)]
        command += ["--store", str(directory / "store.sqlite"), "--listen", f"unix:{directory}/controller.sock"]
        stack.enter_context(daemon(command, directory / "controller.ready", directory / "controller.log"))
        client = stack.enter_context(ControllerClient(f"unix:{directory}/controller.sock"))
        wait_until(lambda: all(switch.connected for switch in client.list_switches()), "the switch is connected")
        fabric = DeviceFabric(client, [], [log], [ready["metrics"]], [ready["pid"]], ready["grpc"])
        for number, place in enumerate(agents):
            socket, log = directory / f"agent-{number}.sock", directory / f"agent-{number}.log"
            command = [*place.prefix, sys.executable, "-m", "switchml.host_agent.daemon", "--name", f"a{number}"]
            command += ["--controller", f"unix:{directory}/controller.sock", "--socket", str(socket)]
            command += ["--address", place.address, "--switch-port", str(place.switch_port), *place.options]
            command += ["--metrics", "127.0.0.1:0"]
            ready = stack.enter_context(daemon(command, directory / f"agent-{number}.ready", log))
            fabric.metrics.append(ready["metrics"])
            fabric.processes.append(ready["pid"])
            fabric.sockets.append(socket)
            fabric.logs.append(log)
        yield fabric


def check_restart(
    directory: Path, options: Sequence[str], agents: Sequence[AgentPlace], how: signal.Signals, elements: int
) -> None:
    """Check that agents find a switch again that was ended by a signal and restarted with the same options."""
    with contextlib.ExitStack() as stack:
        fabric = stack.enter_context(running_fabric(directory, options, agents, ended_by=how))
        fabric.check_all_reduce(2, 1000)
        os.kill(fabric.processes[0], how)
        wait_until(lambda: not any(switch.connected for switch in fabric.client.list_switches()), "the switch is gone")
        command = [sys.executable, "-m", "switchml.dataplane.softswitch.daemon", "--grpc", fabric.p4runtime, *options]
        stack.enter_context(daemon(command, directory / "again.ready", directory / "again.log"))
        wait_until(lambda: all(switch.connected for switch in fabric.client.list_switches()), "the switch is back")
        fabric.check_all_reduce(2, elements)
