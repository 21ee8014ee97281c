"""Times of all-reduces over UDP, AF_XDP and DPDK, in turns: `python -m tests.loopback.device_times`, as root.

Every transport has a separate fabric with a job of two ranks; all run at the same time. In each repetition each job
reduces a tensor once, and every element is checked. Packets have 256 values, as the MTU of 1500 allows.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

import switchml
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.devices import built
from tests.loopback import memif_links
from tests.loopback.device_harness import SWITCH_IP, SWITCH_MAC, AgentPlace, DeviceFabric, running_fabric
from tests.loopback.veth_wires import HOSTS, Wires, fabric_options, ip, veth_wires, why_not

NO_MAC = "00:00:00:00:00:00"
TICKS = os.sysconf("SC_CLK_TCK")


class Pair:
    """A job of two ranks over one transport."""

    def __init__(self, name: str, fabric: DeviceFabric, close: contextlib.ExitStack) -> None:
        self.name = name
        self._fabric = fabric
        job = fabric.client.start_job(pb.StartJobRequest(workers=HOSTS))
        agents = [fabric.sockets[int(rank.agent.removeprefix("a"))] for rank in sorted(job.ranks, key=lambda r: r.rank)]
        self._threads = close.enter_context(ThreadPoolExecutor(HOSTS))
        self._comms = list(self._threads.map(lambda rank: self._connect(agents[rank], job.id, rank), range(HOSTS)))
        close.callback(lambda: list(self._threads.map(lambda comm: comm.close(), self._comms)))
        self._together = threading.Barrier(HOSTS)

    def _connect(self, agent: Path, job: int, rank: int) -> switchml.Communicator:
        return switchml.connect(agent=agent, job=job, rank=rank, world_size=HOSTS)

    def seconds(self, elements: int) -> float:
        """Return the time of one all-reduce, which is that of the slower rank."""
        return max(self._threads.map(lambda comm: self._reduce(comm, elements), self._comms))

    def _reduce(self, comm: switchml.Communicator, elements: int) -> float:
        values = np.arange(elements, dtype=np.float32) % 1000 * (comm.rank + 1)
        self._together.wait(30)
        begin = time.perf_counter()
        comm.all_reduce(values)
        took = time.perf_counter() - begin
        np.testing.assert_allclose(values, np.arange(elements, dtype=np.float32) % 1000 * 3, rtol=1e-5, atol=1e-4)
        return took

    def processor_seconds(self) -> float:
        """Return the CPU seconds of agents and switch since their start."""
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self._fabric.processes]
        return sum(int(field[11]) + int(field[12]) for field in fields) / TICKS


def fabric_with(
    directory: Path, options: Sequence[str], agents: Sequence[AgentPlace], prefix: Sequence[str], threads: int, mac: str
) -> contextlib.AbstractContextManager[DeviceFabric]:
    """Start a fabric with this many data threads in each agent, and shards of the switch."""
    places = [replace(agent, options=(*agent.options, "--threads", str(threads))) for agent in agents]
    return running_fabric(directory, [*options, "--shards", str(threads)], places, prefix, mac)


def udp_over_veth(directory: Path, wires: Wires, threads: int) -> contextlib.AbstractContextManager[DeviceFabric]:
    ip("-n", wires.switch, "addr", "add", f"{SWITCH_IP}/32", "dev", "lo")
    agents = []
    for port, host in enumerate(wires.hosts, 1):
        ip("-n", wires.switch, "route", "add", f"10.9.0.{port}/32", "dev", f"eth{port}", "src", SWITCH_IP)
        agents.append(AgentPlace(f"10.9.0.{port}", 1, ("--transport", "udp"), wires.prefix(host)))
    options = ["--udp-port", f"1={SWITCH_IP}:48864"]
    return fabric_with(directory, options, agents, wires.prefix(wires.switch), threads, NO_MAC)


@contextlib.contextmanager
def pairs(directory: Path, threads: int) -> Iterator[list[Pair]]:
    with contextlib.ExitStack() as stack:

        def add(name: str, start: Callable[[Path], contextlib.AbstractContextManager[DeviceFabric]]) -> None:
            place = directory / name.replace(" ", "-").replace(",", "")
            place.mkdir()
            made.append(Pair(name, stack.enter_context(start(place)), stack))

        def over_veth(kind: str, place: Path) -> contextlib.AbstractContextManager[DeviceFabric]:
            wires = stack.enter_context(veth_wires())
            options, agents = fabric_options([kind] * HOSTS, wires)
            prefix = wires.prefix(wires.switch)
            return fabric_with(place, options, agents, prefix, threads if kind == "dpdk" else 1, SWITCH_MAC)

        def memif(place: Path) -> contextlib.AbstractContextManager[DeviceFabric]:
            agents = [memif_links.agent(place, port) for port in range(1, HOSTS + 1)]
            return fabric_with(place, memif_links.switch_options(place, HOSTS), agents, (), threads, SWITCH_MAC)

        made: list[Pair] = []
        add("udp, veth", lambda place: udp_over_veth(place, stack.enter_context(veth_wires()), threads))
        add("xdp, veth", lambda place: over_veth("xdp", place))
        add("dpdk af_packet, veth", lambda place: over_veth("dpdk", place))
        add("dpdk memif", memif)
        yield made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1, help="of each agent, and shards; xdp has one")
    arguments = parser.parse_args()
    missing = why_not() or (
        "" if built("dpdk") and built("xdp") else "skipped: built without libdpdk-dev or libxdp-dev"
    )
    if missing:
        sys.exit(missing)
    with tempfile.TemporaryDirectory() as directory, pairs(Path(directory), arguments.threads) as systems:
        for megabytes in arguments.megabytes:
            elements = (megabytes << 20) // 4
            times: dict[str, list[float]] = {system.name: [] for system in systems}
            used = dict.fromkeys(times, 0.0)
            for repetition in range(arguments.repetitions + 1):
                for system in systems:
                    before = system.processor_seconds()
                    took = system.seconds(elements)
                    if repetition > 0:  # the first repetition is a warm-up
                        times[system.name].append(took)
                        used[system.name] += system.processor_seconds() - before
            first = times[systems[0].name]
            for name, seconds in times.items():
                ratio = statistics.median(mine / theirs for mine, theirs in zip(seconds, first, strict=True))
                sys.stdout.write(
                    f"{megabytes:3} MiB  {name:22} {statistics.median(seconds) * 1e3:8.1f} ms"
                    f" ({min(seconds) * 1e3:.1f} to {max(seconds) * 1e3:.1f}), {ratio:.2f} of udp,"
                    f" {used[name] / arguments.repetitions * 1e3:.0f} ms of CPU time\n"
                )
    sys.stdout.write(f"load {os.getloadavg()[0]:.1f}\n")


if __name__ == "__main__":
    main()
