"""Orders of ranks: their cost in a model, and the time of Gloo's ring over two racks with a slow link between them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from studies.cloud_collectives.racks import Racks, racks
from switchml.benchmarks import gloo
from switchml.benchmarks.errors import BenchmarkError
from switchml.benchmarks.linked_systems import PORT, own_run_directory
from switchml.benchmarks.ranks import rank_group
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.benchmarks.systems import launch_each, rank_command, rank_environment
from switchml.benchmarks.turns import Task
from switchml.common.progress import Progress
from switchml.controller.client import ControllerClient
from switchml.ops import rank_order
from switchml.ops.probe_matrix import ProbeMatrix
from switchml.topologies.namespaces import HOST_INTERFACE, require_privileges
from switchml.topologies.shaped_links import Shape

__all__ = ["MODEL", "RACKS", "CloudCollectivesOptions", "OrderRow", "crossings", "model_rows", "run"]

MODEL: Final = "model"
RACKS: Final = "two racks"
_RING: Final = "ring"
_NEAR, _POD, _FAR = 1.0, 3.0, 6.0  # the paths of the model, in a rack, in a pod, and between pods
_MACHINES, _MACHINES_OF_RACK, _MACHINES_OF_POD = 16, 4, 8
_NOISE: Final = 0.3
_DRAWS: Final = 2000
_PROBE_BYTES: Final = 8 << 20
_VALUES: Final = 256
_READY_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05

_Costs = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class CloudCollectivesOptions:
    """Options: `calls` all-reduces of `bytes` in each order, of which `orders` are random."""

    hosts: int
    rate: int
    queue: float
    bytes: int
    orders: int
    calls: int
    seed: int
    torch_python: str


@dataclasses.dataclass(frozen=True)
class OrderRow:
    """An order: how often its ring crosses between racks, and what it costs.

    `cost` is that of the ring by the model's paths, or by those that the probe has measured, in ms for a MiB. `seconds`
    is the median of a call, and `trunk_bytes` are those between the racks in a call; None in the model. `ratio` is the
    time, or in the model the cost, over that of the found order.
    """

    where: str
    order: str
    crossings: float
    cost: float
    seconds: float | None
    trunk_bytes: float | None
    ratio: float


def crossings(order: Sequence[int], rack_of: Sequence[int]) -> int:
    """Return how often a ring in this order goes from one rack to another."""
    following = [*order[1:], order[0]]
    return sum(rack_of[one] != rack_of[other] for one, other in zip(order, following, strict=True))


def run(options: CloudCollectivesOptions, run_dir: Path, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Compute and measure, in a separate run directory next to `run_dir`.

    Raises NamespaceError without root, BenchmarkError, and what ControllerClient raises.
    """
    require_privileges()
    record = Record(report)
    record.systems["gloo"] = gloo.version(options.torch_python)
    progress.expect(options.orders + 2)
    rows = model_rows(options.seed)
    with own_run_directory(run_dir) as (run_directory, directory):
        rows += _measured(options, run_directory.path, directory, record, progress)
    return BenchmarkResult.of("cloud_collectives", options, rows, record)


# ---- the model ------------------------------------------------------------------------------------------------------


def model_rows(seed: int) -> list[OrderRow]:
    """Return random orders and the found one of 16 machines in four racks and two pods, and one found despite noise."""
    random = np.random.default_rng(seed)
    machines = np.arange(_MACHINES)
    racks_of, pods_of = machines // _MACHINES_OF_RACK, machines // _MACHINES_OF_POD
    costs = np.where(pods_of[:, None] == pods_of, _POD, _FAR)
    costs[racks_of[:, None] == racks_of] = _NEAR
    np.fill_diagonal(costs, 0)
    draws = [random.permutation(_MACHINES).tolist() for _ in range(_DRAWS)]
    noise = np.triu(random.uniform(1 - _NOISE, 1 + _NOISE, costs.shape), 1)
    found = {
        "found": rank_order.best_order(_RING, costs),
        f"found with {_NOISE:.0%} of noise": rank_order.best_order(_RING, costs * (noise + noise.T)),
    }
    least = rank_order.cost(_RING, costs, found["found"])
    rack_list = racks_of.tolist()

    def row(name: str, orders: Sequence[Sequence[int]]) -> OrderRow:
        cost = statistics.fmean(rank_order.cost(_RING, costs, order) for order in orders)
        crossed = statistics.fmean(crossings(order, rack_list) for order in orders)
        return OrderRow(MODEL, name, crossed, cost, None, None, cost / least)

    return [*(row(name, [order]) for name, order in found.items()), row("random, mean", draws)]


# ---- measurement ----------------------------------------------------------------------------------------------------


def _measured(
    options: CloudCollectivesOptions, run_directory: Path, directory: Path, record: Record, progress: Progress
) -> Iterator[OrderRow]:
    random = np.random.default_rng(options.seed)
    rack_of = random.permutation(np.arange(options.hosts) % 2).tolist()
    hosts = [f"h{number + 1}" for number in range(options.hosts)]
    trunk = Shape(options.rate, options.queue)
    with racks(run_directory, dict(zip(hosts, rack_of, strict=True)), trunk) as network:
        costs = _probed(network, hosts, directory)
        sides = [[host for host in range(options.hosts) if rack_of[host] == rack] for rack in (0, 1)]
        turns = [host for pair in zip(*sides, strict=False) for host in pair]
        turns += [host for host in range(options.hosts) if host not in turns]
        orders = {"found": rank_order.best_order(_RING, costs)}
        orders |= {
            f"random {number + 1}": random.permutation(options.hosts).tolist() for number in range(options.orders)
        }
        orders["racks in turns"] = turns
        least = 0.0
        for number, (name, order) in enumerate(orders.items()):
            seconds, carried = _timed(network, [hosts[host] for host in order], number, options, directory)
            least = least or seconds
            crossed = crossings(order, rack_of)
            record.report(f"  {name}: {crossed} crossings, {seconds:.3g} s, {carried / 1e6:.0f} MB between the racks")
            progress.did(1)
            yield OrderRow(
                RACKS, name, crossed, rank_order.cost(_RING, costs, order), seconds, carried, seconds / least
            )


def _timed(
    network: Racks, order: Sequence[str], number: int, options: CloudCollectivesOptions, directory: Path
) -> tuple[float, float]:
    """Return the median seconds of a call, and the bytes of a call between the racks. Raises RankFailed."""

    def launch(address: Path, log: Path) -> list[subprocess.Popen[bytes]]:
        environment = rank_environment(address.parent) | {
            "WORLD_SIZE": str(len(order)),
            "MASTER_ADDR": network.address(order[0]),
            "MASTER_PORT": str(PORT),
            "GLOO_SOCKET_IFNAME": HOST_INTERFACE,
        }
        command = rank_command(options.torch_python, "gloo", address)
        commands = (network.namespaces.command(host, command) for host in order)
        return launch_each([(line, environment | {"RANK": str(rank)}) for rank, line in enumerate(commands)], log)

    task = Task(options.bytes, 1, options.calls)
    with rank_group(f"gloo-{number}", len(order), directory, launch) as group:
        before = network.trunk_bytes()
        answers = group.command(task.command)
        carried = network.trunk_bytes() - before
    slowest = [max(call) for call in zip(*(answer["seconds"] for answer in answers), strict=True)]
    return statistics.median(slowest), carried / (options.calls + task.warm_up)


def _probed(network: Racks, hosts: Sequence[str], directory: Path) -> _Costs:
    """Return the costs of the paths between these hosts, as `switchml-ctl probe --bytes` measures them."""
    with _fabric(network, hosts, directory) as client:
        matrix = ProbeMatrix.of(client.probe_agents(_PROBE_BYTES))
    places = [[host.name for host in matrix.hosts].index(host) for host in hosts]
    return matrix.costs()[np.ix_(places, places)]


@contextlib.contextmanager
def _fabric(network: Racks, hosts: Sequence[str], directory: Path) -> Iterator[ControllerClient]:
    """Provide a controller and an agent on each host; a switch, which agents need, is in the first rack."""
    scripts = Path(sysconfig.get_path("scripts"))
    switch, controller = f"unix:{directory}/switch.sock", f"unix:{directory}/controller.sock"
    address, port = network.address("rack-0"), 48865
    table = {"name": "s1", "target": "soft", "p4runtime": switch, "address": address, "udp_port": port}
    table |= {"values_per_packet": _VALUES, "slots": 4096, "default_pool": 64}
    config = directory / "controller.toml"
    config.write_text(
        "[[switches]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()), encoding="utf-8"
    )
    with contextlib.ExitStack() as stack:

        def started(node: str, command: Sequence[str]) -> None:
            process = network.start(node, command, directory / "fabric.log")
            stack.callback(process.wait, _READY_SECONDS)
            stack.callback(process.terminate)

        udp = f"1={address}:{port}"
        program = str(scripts / "switchml-switch")
        started("rack-0", [program, "--grpc", switch, "--udp-port", udp, "--values", str(_VALUES)])
        ready = directory / "controller.ready"
        daemon = [sys.executable, "-m", "switchml.controller.daemon", "--config", str(config), "--listen", controller]
        started("rack-0", [*daemon, "--store", str(directory / "store.sqlite"), "--ready-file", str(ready)])
        _wait(ready.exists, "the controller is not ready")
        client = stack.enter_context(ControllerClient(controller))
        _wait(lambda: all(one.connected for one in client.list_switches()), "the switch is not connected")
        for host in hosts:
            agent = [str(scripts / "switchml-agent"), "--controller", controller, "--name", host, "--switch", "s1"]
            agent += ["--address", network.address(host), "--socket", str(directory / f"{host}.sock")]
            started(host, [*agent, "--transport", "udp"])
        _wait(lambda: sum(one.live for one in client.list_agents()) == len(hosts), "not all agents are attached")
        yield client


def _wait(condition: Callable[[], bool], failure: str) -> None:
    """Wait until the condition is met. Raises BenchmarkError after the deadline."""
    end = time.monotonic() + _READY_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise BenchmarkError(f"two racks: {failure} after {_READY_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)
