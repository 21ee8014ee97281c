"""The systems that `bench links` compares: SwitchML and its peers, with ranks on hosts behind shaped links."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from switchml.benchmarks import gloo, open_mpi
from switchml.benchmarks.errors import MissingPeer
from switchml.benchmarks.link_rows import OURS
from switchml.benchmarks.ranks import RankGroup, rank_group
from switchml.benchmarks.systems import SwitchML, launch_each, prepare_work_directory, rank_command, rank_environment
from switchml.benchmarks.workers.counters import take_share
from switchml.launch import fabric
from switchml.launch import own_run_directory as launch
from switchml.launch.kinds.shaped import TOP_SWITCH, Shaped
from switchml.launch.run_directory import RunDirectory
from switchml.launch.settings import EMBEDDED_VALUES
from switchml.topologies.namespaces import HOST_INTERFACE, SWITCHES, Namespaces
from switchml.topologies.shaped_links import Shape, ShapedLinks, Traffic
from switchml.topologies.topology import Host, Topology

__all__ = ["CYCLIC", "LEAVES", "PORT", "LinkUse", "LinkedPeer", "LinkedSystems", "find_peer", "linked_systems"]
__all__ += ["own_run_directory"]

T = TypeVar("T")

LEAVES: Final = "leaf"
"""SwitchML with a switch on each host, with which its ranks share memory."""
CYCLIC: Final = "-cyclic"
"""The end of a peer's name whose neighbouring ranks are on different hosts."""
PORT: Final = 29500  # of Gloo's rendezvous, in the namespace of its first rank; the next one if dealt out
_REMOTE_SHELL: Final = "remote-shell"


@contextlib.contextmanager
def own_run_directory(settings_run_directory: Path) -> Iterator[tuple[RunDirectory, Path]]:
    """Yield the benchmark's run directory, next to that of the settings, and a work directory for the ranks in it.

    Raises BenchmarkError if its path is too long, FabricBusyError if another benchmark runs, and NamespaceError.
    """
    with launch.own_run_directory(settings_run_directory, "links", "bench") as run_directory:
        work = run_directory.path / "ranks"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(mode=0o700)
        prepare_work_directory(work, "use a --run-dir with a shorter path")
        yield run_directory, work


@dataclasses.dataclass(frozen=True)
class LinkUse:
    """The use of links and CPUs by a turn.

    `bytes` are those of the link and direction that carried most, `packets` and `drops` those of all links; `idle` is
    the fraction of the CPUs' time in which they did nothing.
    """

    bytes: int
    packets: int
    drops: int
    idle: float


@dataclasses.dataclass(frozen=True)
class LinkedSystems:
    """SwitchML on hosts behind links, and what the peers need to run on the same hosts.

    `places` are the hosts of the ranks of a group, by rank. `leaves` is SwitchML with a switch on each host, if wanted.
    """

    switchml: SwitchML
    namespaces: Namespaces
    places: tuple[Host, ...]
    links: ShapedLinks
    leaves: SwitchML | None = None

    def inside(self, host: Host) -> list[str]:
        """Return the command that runs another one on a host."""
        return self.namespaces.command(host.name, [])

    def watch(self, turn: Callable[[], T]) -> tuple[T, LinkUse]:
        """Take a turn; return its result, and how it used links and CPUs. Raises NamespaceError."""
        before, idle_before, begin = self.links.traffic(), _idle_seconds(), time.monotonic()
        found = turn()
        elapsed, idle, after = time.monotonic() - begin, _idle_seconds() - idle_before, self.links.traffic()
        carried = [after[link] - before[link] for link in after]
        total = sum(carried, Traffic())
        most = max(traffic.bytes for traffic in carried)
        return found, LinkUse(most, total.packets, total.drops, idle / (elapsed * (os.cpu_count() or 1)))


def _idle_seconds() -> float:
    """Return the time that all CPUs of this machine together have been idle since it started."""
    first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
    return (int(first[4]) + int(first[5])) / os.sysconf("SC_CLK_TCK")  # idle and iowait, proc(5)


@contextlib.contextmanager
def linked_systems(
    run_directory: RunDirectory, hosts: int, shape: Shape, ranks: int = 0, *, servers: bool = False
) -> Iterator[LinkedSystems]:
    """Yield `hosts` hosts and a fabric over their links, for one rank on each host.

    With `ranks` each host has that many, and also a switch. With `servers` each host has a parameter server, and one
    more host has nothing else. Raises what starting a fabric raises.
    """
    kind = Shaped(workers=hosts + int(servers), shape=shape, leaves=ranks > 0, servers=servers, values=EMBEDDED_VALUES)
    found, _ = fabric.start(run_directory, kind, keep=True)
    try:
        for process in found.processes:
            take_share(process.pid)
        namespaces = Namespaces(run_directory.path)
        topology = Topology.from_dict(found.topology)
        prefixes = {agent["name"]: ["ip", "netns", "exec", agent["namespace"]] for agent in found.agents}
        system = SwitchML(OURS, f"SwitchML {found.version}", found, prefixes, topology.switch.name)
        leaves = dataclasses.replace(system, name=LEAVES, switch=TOP_SWITCH) if ranks > 0 else None
        places = tuple(host for host in topology.hosts[:hosts] for _ in range(max(ranks, 1)))
        yield LinkedSystems(system, namespaces, places, ShapedLinks(namespaces, topology), leaves)
    finally:
        fabric.stop(run_directory)


@dataclasses.dataclass(frozen=True)
class LinkedPeer:
    """A peer that uses a network. Created by `find_peer`."""

    name: str
    description: str
    python: str
    cyclic: bool = False

    def dealt_out(self) -> LinkedPeer:
        """Return this peer with its ranks dealt out to the hosts in turn, instead of host after host."""
        return dataclasses.replace(self, name=self.name + CYCLIC, cyclic=True)

    @contextlib.contextmanager
    def group(self, systems: LinkedSystems, directory: Path) -> Iterator[RankGroup]:
        """Yield a new group with a rank at each place. Raises RankFailed."""

        def launch(address: Path, log: Path) -> list[subprocess.Popen[bytes]]:
            if self.name.removesuffix(CYCLIC) == "gloo":
                return self._launch_gloo(systems, address, log)
            return self._launch_open_mpi(systems, address, log)

        with rank_group(self.name, len(systems.places), directory, launch) as group:
            yield group

    def _launch_gloo(self, systems: LinkedSystems, address: Path, log: Path) -> list[subprocess.Popen[bytes]]:
        places = systems.places
        if self.cyclic:
            hosts = tuple(dict.fromkeys(places))
            places = hosts * (len(places) // len(hosts))
        environment = rank_environment(address.parent) | {
            "WORLD_SIZE": str(len(places)),
            "MASTER_ADDR": str(places[0].ipv4.ip),
            "MASTER_PORT": str(PORT + self.cyclic),
            "GLOO_SOCKET_IFNAME": HOST_INTERFACE,
        }
        command = rank_command(self.python, "gloo", address)
        return launch_each(
            [
                ([*systems.inside(host), *command], environment | {"RANK": str(rank)})
                for rank, host in enumerate(places)
            ],
            log,
        )

    def _launch_open_mpi(self, systems: LinkedSystems, address: Path, log: Path) -> list[subprocess.Popen[bytes]]:
        shell = address.parent / _REMOTE_SHELL
        nodes = {str(host.ipv4.ip): systems.namespaces.name(host.name) for host in systems.places}
        shell.write_text(_remote_shell(nodes), encoding="utf-8")
        shell.chmod(0o700)
        network = str(systems.places[0].ipv4.network)
        command = open_mpi.command_on_hosts(list(nodes), address, shell, network)
        environment = rank_environment(address.parent)
        return launch_each([(systems.namespaces.command(SWITCHES, command), environment)], log)


def _remote_shell(namespaces: dict[str, str]) -> str:
    """Return a program that Open MPI starts its daemons with, as it would use ssh: PROGRAM HOST COMMAND..."""
    cases = "".join(f"{host}) namespace={shlex.quote(name)} ;;\n" for host, name in namespaces.items())
    return f"""#!/bin/sh
host=$1
shift
case $host in
{cases}*) echo "unknown host $host" >&2; exit 1 ;;
esac
exec ip netns exec "$namespace" sh -c "$*"
"""


def find_peer(name: str, torch_python: str) -> LinkedPeer | MissingPeer:
    """Return the peer of this name, of LINK_PEERS, or why it is missing on this machine."""
    try:
        if name == "gloo":
            return LinkedPeer(name, gloo.version(torch_python), torch_python)
        open_mpi.command(name, 1, Path(os.devnull))  # compiles the rank, or says what is missing
        return LinkedPeer(name, open_mpi.version(), torch_python)
    except MissingPeer as error:
        return error
