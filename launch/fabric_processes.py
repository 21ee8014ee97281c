"""Start and end the processes of a fabric: switches, controller and agents."""

import dataclasses
import json
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from switchml.common.errors import StartError
from switchml.common.processes import StartingProcess, boot_id, find_program
from switchml.common.progress import Progress
from switchml.common.switch_trees import MAX_TREE_LEVELS, SwitchTrees
from switchml.common.version import VERSION
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from switchml.launch import port_keeper
from switchml.launch.fabric_state import CONTROLLER, PORT_KEEPER, Fabric
from switchml.launch.kinds import FabricKind
from switchml.launch.layouts import CONTROL_SOCKETS
from switchml.launch.orphans import mark, orphans
from switchml.launch.run_directory import RunDirectory
from switchml.topologies.namespaces import Namespaces

__all__ = [
    "METRICS_TOKEN",
    "PROMETHEUS_TARGETS",
    "STORE",
    "Reporter",
    "end_orphans",
    "end_processes",
    "launch",
    "live_jobs",
    "seconds_to_start",
    "stop_jobs",
]

START_SECONDS: Final = 30.0
_START_SECONDS_OF_EACH: Final = 2.0  # that each process adds, because all start on the CPUs of one machine
LOG_MEBIBYTES: Final = 16  # of each process's log, and as much again for its previous part
END_GRACE_SECONDS: Final = 5.0
_CONNECTED_STEP_SECONDS: Final = 0.02

PROMETHEUS_TARGETS: Final = "prometheus.json"
"""The file in the run directory that lists where the processes serve their metrics."""
METRICS_TOKEN: Final = "metrics.token"  # noqa: S105 - a file's name
"""The file in the run directory with the bearer token for these metrics."""

STORE: Final = "controller.sqlite"
"""The controller's store in the run directory, which outlives the fabric."""

_STEPS_BESIDES: Final = 3  # the network, the controller, and its connections to the switches
_PORTS_SOCKET: Final = "ports.sock"

Reporter = Callable[[str], None]
"""Called with one line at a time about the progress, for people who wait."""


def launch(
    run_directory: RunDirectory, kind: FabricKind, *, keep: bool, report: Reporter, progress: Progress
) -> Fabric:
    """Start a fabric in a run directory without one.

    Raises NamespaceError, ProgramNotFoundError and StartError; everything that was started is removed then.
    """
    socket_directory = run_directory.socket_directory(max(CONTROL_SOCKETS, key=len))
    try:
        layout = kind.layout(run_directory.path, socket_directory)
        switches, places = layout.switches(), layout.agents()
    except BaseException:
        if socket_directory != run_directory.path:
            socket_directory.rmdir()
        raise
    fabric = Fabric(
        run_directory=run_directory,
        phase="starting",
        keep=keep,
        boot=boot_id(),
        version=VERSION,
        started=time.time(),
        options=kind.options(),
        socket_directory=socket_directory,
        topology=layout.topology.as_dict() if layout.topology is not None else None,
    )
    deadline = time.monotonic() + seconds_to_start(len(switches) + len(places))
    began = time.monotonic()
    agents = "1 agent" if len(places) == 1 else f"{len(places)} agents"
    where = run_directory.path if layout.topology is None else f"network namespaces, logs in {run_directory.logs}"
    what = "switch" if len(switches) == 1 else f"{len(switches)} switches"
    report(f"starting {what}{'' if layout.controller else ', controller'} and {agents} in {where}")

    # Metrics of processes in network namespaces could not be reached.
    metrics: list[str] = []
    if keep and layout.topology is None:
        metrics = ["--metrics", "127.0.0.1:0", "--metrics-token", str(_write_token(run_directory))]
    endpoints: dict[str, str] = {}

    progress.expect(_STEPS_BESIDES + len(switches) + len(places))

    def wait_ready(child: StartingProcess) -> dict[str, Any]:
        ready = child.wait_ready(deadline)
        if "metrics" in ready:
            endpoints[child.name] = ready["metrics"]
        return ready

    ports = socket_directory / _PORTS_SOCKET

    def begin(
        name: str, command: list[str], *, has_ready_file: bool = True, stdin: int = subprocess.DEVNULL
    ) -> StartingProcess:
        nonlocal fabric
        ready_file = run_directory.path / f"{name}.ready" if has_ready_file else None
        if has_ready_file:  # a SwitchML program
            command = [*command, "--log-limit", str(LOG_MEBIBYTES)]
        environment = mark(name, run_directory.path) | {"NOTIFY_SOCKET": str(ports)}
        child = StartingProcess(name, command, run_directory.logs / f"{name}.log", ready_file, environment, stdin)
        fabric = dataclasses.replace(fabric, processes=(*fabric.processes, child.record))
        fabric.save()  # at once: if this process is killed, the next starter finds what to end
        return child

    try:
        fabric.save()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as messages:
            ports.unlink(missing_ok=True)
            messages.bind(str(ports))
            ports.chmod(0o600)
            keeper = [sys.executable, "-I", "-S", port_keeper.__file__]
            begin(PORT_KEEPER, keeper, has_ready_file=False, stdin=messages.fileno())
        layout.prepare()
        progress.did()
        started = [
            begin(place.name, [*place.command, *metrics], has_ready_file=place.has_ready_file) for place in switches
        ]
        tables = []
        for place, child in zip(switches, started, strict=True):
            tables.append(layout.switch_table(place.name, wait_ready(child) if place.has_ready_file else {}))
            progress.did()
        fabric = dataclasses.replace(fabric, switches=tuple(tables))
        controller = layout.controller
        if not controller:
            configuration = run_directory.path / "controller.toml"
            configuration.write_text(_configuration(layout.listen, run_directory, tables), encoding="utf-8")
            command = layout.controller_command([find_program("switchml-controller"), "--config", str(configuration)])
            controller = wait_ready(begin(CONTROLLER, [*command, *metrics]))["address"]
        progress.did()
        fabric = dataclasses.replace(fabric, controller=controller)
        children = []
        for host in places:
            agent_socket = str(socket_directory / f"{host.name}.sock")
            arguments = ["--controller", fabric.controller, "--name", host.name, "--socket", agent_socket]
            children.append(begin(host.name, [*host.command, *arguments, *metrics]))
            agent = {"name": host.name, "socket": agent_socket, **host.description}
            fabric = dataclasses.replace(fabric, agents=(*fabric.agents, agent))
        for child in children:
            wait_ready(child)
            progress.did()
        _write_targets(run_directory, endpoints)
        if not layout.controller:
            _wait_connected(fabric.controller, started, deadline)
            stop_jobs(fabric.controller)  # those that a killed fabric left in the store
        progress.did()
        fabric = dataclasses.replace(fabric, phase="running")
        fabric.save()
    except (KeyError, TypeError) as error:
        end_processes(fabric)
        raise StartError(
            f"a ready file does not have the expected content (is another version installed?): {error}"
        ) from error
    except BaseException:
        end_processes(fabric)
        raise
    report(f"the fabric is up after {time.monotonic() - began:.1f} s; its controller is {fabric.controller}")
    return fabric


def seconds_to_start(processes: int) -> float:
    """Return the limit for the start of a fabric with this many switches and agents."""
    return START_SECONDS + _START_SECONDS_OF_EACH * processes


def _write_token(run_directory: RunDirectory) -> Path:
    """Write a new token for the fabric's metrics to a file that only its user can read; return the file."""
    path = run_directory.path / METRICS_TOKEN
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(f"{secrets.token_urlsafe()}\n", encoding="ascii")
    return path


def _write_targets(run_directory: RunDirectory, endpoints: dict[str, str]) -> None:
    """Write the file that tells a Prometheus server where the metrics are, in the form of its file_sd_configs."""
    targets = [
        {"targets": [address], "labels": {"process": name, "fabric": str(run_directory.path)}}
        for name, address in endpoints.items()
    ]
    (run_directory.path / PROMETHEUS_TARGETS).write_text(json.dumps(targets, indent=2) + "\n", encoding="utf-8")


def _wait_connected(controller: str, processes: Sequence[StartingProcess], deadline: float) -> None:
    """Return when the controller is connected to its switches; no call waits for that."""
    with ControllerClient(controller) as client:
        while True:
            switches = client.list_switches()
            if all(switch.connected and switch.primary for switch in switches):
                return
            for process in processes:
                process.require_alive()
            if time.monotonic() >= deadline:
                failures = "; ".join(f"{switch.name}: {switch.failure or 'not connected'}" for switch in switches)
                raise StartError(f"the controller did not reach its switches in time: {failures}")
            time.sleep(_CONNECTED_STEP_SECONDS)


def _configuration(listen: str, run_directory: RunDirectory, switches: Sequence[dict[str, Any]]) -> str:
    text = json.dumps  # a JSON string or number is also a TOML one
    tables = "\n".join(map(_switch_table, switches))
    parents = {switch["name"]: switch["parent"]["switch"] if "parent" in switch else None for switch in switches}
    trees = SwitchTrees(parents, MAX_TREE_LEVELS)
    return f"""\
# Written by switchml-ctl.
[controller]
listen = {text(listen)}
store = {text(str(run_directory.path / STORE))}
tree_levels = {trees.levels}

{tables}"""


def _switch_table(switch: dict[str, Any]) -> str:
    """Return the [[switches]] table; a nested dictionary becomes an inline table."""

    def printed(value: Any) -> str:
        if isinstance(value, dict):
            return f"{{{', '.join(f'{key} = {printed(one)}' for key, one in value.items())}}}"
        return json.dumps(value)

    return "[[switches]]\n" + "".join(f"{key} = {printed(value)}\n" for key, value in switch.items())


def live_jobs(controller: str) -> list[pb.Job]:
    """Return the jobs that have not ended. Raises what ControllerClient raises."""
    with ControllerClient(controller) as client:
        return client.list_jobs()


def stop_jobs(controller: str) -> list[str]:
    """Stop all live jobs, and return their names. Raises what ControllerClient raises."""
    jobs = live_jobs(controller)
    with ControllerClient(controller) as client:
        for job in jobs:
            client.stop_job(job.id)
    return [job.name for job in jobs]


def end_processes(fabric: Fabric) -> list[str]:
    """End the running processes, agents first, remove files that only a running fabric has, and return the names."""
    ended = []
    if fabric.boot == boot_id():
        ended = [process.name for process in reversed(fabric.processes) if process.end(END_GRACE_SECONDS)]
    directory = fabric.run_directory
    if fabric.topology is not None:
        Namespaces(directory.path).remove()
    for path in (*fabric.socket_directory.glob("*.sock"), *directory.path.glob("*.ready")):
        path.unlink(missing_ok=True)  # a process that was killed leaves them
    if fabric.socket_directory != directory.path:
        shutil.rmtree(fabric.socket_directory, ignore_errors=True)
    for name in (PROMETHEUS_TARGETS, METRICS_TOKEN):
        (directory.path / name).unlink(missing_ok=True)
    directory.clear_state()
    return ended


def end_orphans(run_directory: RunDirectory) -> list[str]:
    """End processes that were started for the run directory but are not in fabric.json; return their names."""
    found = orphans(run_directory.path)
    ended = [process.name for process in found if process.end(END_GRACE_SECONDS)]
    if ended:
        for pattern in ("*.sock", "*.ready", PROMETHEUS_TARGETS, METRICS_TOKEN):
            for path in run_directory.path.glob(pattern):
                path.unlink(missing_ok=True)
    return ended
