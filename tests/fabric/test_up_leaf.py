"""`up --leaf` on two hosts in network namespaces, below a switch that they reach over their links."""

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

import switchml
from switchml.topologies.namespaces import HOST_INTERFACE, SWITCHES, Namespaces
from switchml.topologies.shaped_links import Shape, ShapedLinks
from switchml.topologies.topology import single_switch
from tests.support.fabric_harness import SCRIPTS, Ctl, needs_namespaces, runs, wait_until

T = TypeVar("T")

pytestmark = needs_namespaces

RACK = "10.0.0.254"
HOSTS = {"h1": "10.0.0.1", "h2": "10.0.0.2"}
RANKS = 4  # of each host
VALUES = 256
CONTROLLER = f"{RACK}:7600"
DEADLINE = 60.0

# Counts the packets between this host and the switch's data plane, each way, until SIGTERM.
COUNT = """
import json, signal, socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
link.bind((sys.argv[1], 3))
found = {"up": 0, "down": 0}
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print(json.dumps(found))))
print("ready", flush=True)
while True:
    frame, (_, _, kind, _, _) = link.recvfrom(1 << 16)
    ports = frame[34] << 8 | frame[35], frame[36] << 8 | frame[37]
    if frame[12:14] == b"\\x08\\x00" and frame[23] == 17 and 48864 in ports:
        found["up" if kind == socket.PACKET_OUTGOING else "down"] += 1
"""


class Rack:
    """A switch and a controller that two hosts can reach, and each host's part of the fabric."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.namespaces = Namespaces(directory)
        self.controls = {host: Ctl(directory / host) for host in HOSTS}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        ShapedLinks(self.namespaces, single_switch(len(HOSTS))).create(Shape(10**10, 0.1))
        socket = self.directory / "rack.sock"
        self._daemon("switchml-switch", "--grpc", f"unix:{socket}", "--udp-port", f"1={RACK}:48864")
        configuration = self.directory / "controller.toml"
        configuration.write_text(
            f'[controller]\nlisten = "{CONTROLLER}"\nstore = "{self.directory}/store.sqlite"\ninsecure = true\n'
            f'[[switches]]\nname = "rack"\ntarget = "soft"\np4runtime = "unix:{socket}"\naddress = "{RACK}"\n'
            + "".join(
                f'[[switches]]\nname = "{host}"\ntarget = "soft"\np4runtime = "{address}:9559"\naddress = "{address}"\n'
                'parent = {switch = "rack", port = 1, uplink = 1}\n'
                for host, address in HOSTS.items()
            )
        )
        self._daemon("switchml-controller", "--config", str(configuration))

    def _daemon(self, program: str, *arguments: str) -> None:
        ready = self.directory / f"{program}.ready"
        command = [str(SCRIPTS / program), *arguments, "--ready-file", str(ready)]
        with (self.directory / f"{program}.log").open("w") as log:
            self._daemons.append(subprocess.Popen(self.namespaces.command(SWITCHES, command), stderr=log))
        wait_until(ready.exists, f"{program} is ready")

    def ctl(self, host: str, *arguments: str) -> dict[str, Any]:
        """Run switchml-ctl on a host, and return the object on its standard output."""
        environment = self.controls[host].environment | {"SWITCHML_CONTROLLER": CONTROLLER, "SWITCHML_INSECURE": "1"}
        command = self.namespaces.command(host, [str(SCRIPTS / "switchml-ctl"), *arguments, "--json"])
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found

    def run_ranks(self, key: str, use: Callable[[switchml.Communicator], T]) -> list[T]:
        """Run a job with RANKS ranks at each host; return what `use` returned for each."""
        sockets = [self.directory / host / f"{host}.sock" for host in HOSTS for _ in range(RANKS)]

        def one(rank: int) -> T:
            size = len(sockets)
            with switchml.connect(
                agent=sockets[rank], job=key, rank=rank, world_size=size, create=True, timeout=DEADLINE
            ) as comm:
                return use(comm)

        with ThreadPoolExecutor(len(sockets)) as threads:
            return [each.result(DEADLINE) for each in [threads.submit(one, rank) for rank in range(len(sockets))]]

    @contextlib.contextmanager
    def counting(self, host: str, found: dict[str, int]) -> Iterator[None]:
        """Count the packets on a host's link while the context lasts."""
        command = self.namespaces.command(host, [sys.executable, "-c", COUNT, HOST_INTERFACE])
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as counter:
            assert counter.stdout is not None
            assert counter.stdout.readline() == "ready\n"
            try:
                yield
            finally:
                counter.terminate()
                found.update(json.loads(counter.communicate(timeout=DEADLINE)[0]))

    def stop(self) -> None:
        for process in reversed(self._daemons):
            process.send_signal(signal.SIGTERM)
        for process in self._daemons:
            process.wait(DEADLINE)
        self.namespaces.remove()


@pytest.fixture
def rack(ctl: Ctl) -> Iterator[Rack]:
    made = Rack(ctl.run_dir.parent)
    try:
        made.start()
        yield made
    finally:
        for control in made.controls.values():
            control.run("down")
        made.stop()


def test_one_contribution_for_all_ranks_of_a_host(rack: Rack) -> None:
    up = {host: rack.ctl(host, "up", "--leaf", host, "--address", address) for host, address in HOSTS.items()}
    for host, started in up.items():
        assert [process["name"] for process in started["processes"]] == ["ports", f"switch-{host}", host]
        assert started["controller"] == CONTROLLER
    calls = 200
    together = threading.Barrier(len(HOSTS) * RANKS)
    counted: dict[str, dict[str, int]] = {host: {} for host in HOSTS}

    def sums(comm: switchml.Communicator) -> bool:
        right = True
        total = comm.world_size * (comm.world_size + 1) // 2
        for _ in range(calls):  # of one packet each, so that no packets share a frame
            x = np.full(VALUES, comm.rank + 1, np.int32)
            comm.all_reduce(x)
            right = right and bool((x == total).all())
        together.wait(DEADLINE)
        return right

    with contextlib.ExitStack() as counters:
        for host in HOSTS:
            counters.enter_context(rack.counting(host, counted[host]))
        assert all(rack.run_ranks("counted", sums))
    [listed] = rack.ctl("h1", "job", "list", "--all")["jobs"]
    job = rack.ctl("h1", "job", "show", str(listed["id"]))
    again = sum(int(rank["counters"].get("retransmissions", 0)) for rank in job["ranks"])
    above = {place["switch"]: place.get("upstream", "") for place in job["switches"]}
    assert above == {"rack": "", "h1": "rack", "h2": "rack"}
    assert sum(int(rank["counters"]["sent"]) for rank in job["ranks"]) == len(HOSTS) * RANKS * calls + again
    for host in HOSTS:
        for direction in ("up", "down"):
            # Exactly one for each call; a busy machine may let a timer expire.
            assert calls <= counted[host][direction] <= calls + again
    pids = [process["pid"] for started in up.values() for process in started["processes"]]
    for host in HOSTS:
        assert rack.ctl(host, "down")["jobs_stopped"] == []
    assert not any(runs(pid) for pid in pids)
