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
from switchml.launch.layouts import CONTROL_SOCKETS, Layout
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
    fabric = Fabric(
        run_directory=run_directory,
        phase="starting",
        keep=keep,
        boot=boot_id(),
        version=VERSION,
        started=time.time(),
        options=kind.options(),
        socket_directory=socket_directory,
    )
    try:
        start = _FabricStart(fabric, kind.layout(run_directory.path, socket_directory), progress)
    except BaseException:
        if socket_directory != run_directory.path:
            socket_directory.rmdir()
        raise
    began = time.monotonic()
    report(f"starting {start.description()}")
    try:
        start.prepare()
        start.start_switches()
        start.start_controller()
        start.start_agents()
        start.finish()
    except (KeyError, TypeError) as error:
        end_processes(start.fabric)
        raise StartError(
            f"a ready file does not have the expected content (is another version installed?): {error}"
        ) from error
    except BaseException:
        end_processes(start.fabric)
        raise
    report(f"the fabric is up after {time.monotonic() - began:.1f} s; its controller is {start.fabric.controller}")
    return start.fabric


class _FabricStart:
    """The steps of a fabric's start, in their order; `fabric` is the record of what has been started so far.

    The constructor raises ProgramNotFoundError.
    """

    def __init__(self, fabric: Fabric, layout: Layout, progress: Progress) -> None:
        self._layout = layout
        self._switches, self._agents = layout.switches(), layout.agents()
        self._progress = progress
        self._deadline = time.monotonic() + seconds_to_start(len(self._switches) + len(self._agents))
        self._ports = fabric.socket_directory / _PORTS_SOCKET
        self._metrics: list[str] = []  # the arguments with which a process serves them
        self._endpoints: dict[str, str] = {}  # where each process serves its metrics
        self._switch_processes: list[StartingProcess] = []
        topology = layout.topology.as_dict() if layout.topology is not None else None
        self.fabric = dataclasses.replace(fabric, topology=topology)

    def description(self) -> str:
        """Return what is started, and where."""
        directory, layout = self.fabric.run_directory, self._layout
        switches = "switch" if len(self._switches) == 1 else f"{len(self._switches)} switches"
        controller = "" if layout.controller else ", controller"
        agents = "1 agent" if len(self._agents) == 1 else f"{len(self._agents)} agents"
        where = directory.path if layout.topology is None else f"network namespaces, logs in {directory.logs}"
        return f"{switches}{controller} and {agents} in {where}"

    def prepare(self) -> None:
        """Create what the processes need: the keeper of their ports, the network, the token of their metrics."""
        self._progress.expect(_STEPS_BESIDES + len(self._switches) + len(self._agents))
        self.fabric.save()
        # Metrics of processes in network namespaces could not be reached.
        if self.fabric.keep and self._layout.topology is None:
            token = _write_token(self.fabric.run_directory)
            self._metrics = ["--metrics", "127.0.0.1:0", "--metrics-token", str(token)]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as messages:
            self._ports.unlink(missing_ok=True)
            messages.bind(str(self._ports))
            self._ports.chmod(0o600)
            keeper = [sys.executable, "-I", "-S", port_keeper.__file__]
            self._begin(PORT_KEEPER, keeper, stdin=messages.fileno())
        self._layout.prepare()
        self._progress.did()

    def start_switches(self) -> None:
        """Start the switches, and return when those with a ready file are ready."""
        for place in self._switches:
            begin = self._begin_ours if place.has_ready_file else self._begin
            self._switch_processes.append(begin(place.name, place.command))
        tables = []
        for place, child in zip(self._switches, self._switch_processes, strict=True):
            ready = self._wait_ready(child) if place.has_ready_file else {}
            tables.append(self._layout.switch_table(place.name, ready))
            self._progress.did()
        self.fabric = dataclasses.replace(self.fabric, switches=tuple(tables))

    def start_controller(self) -> None:
        """Start the controller of these switches, unless one runs already."""
        controller = self._layout.controller
        if not controller:
            directory = self.fabric.run_directory
            configuration = directory.path / "controller.toml"
            text = _configuration(self._layout.listen, directory, self.fabric.switches)
            configuration.write_text(text, encoding="utf-8")
            program = [find_program("switchml-controller"), "--config", str(configuration)]
            child = self._begin_ours(CONTROLLER, self._layout.controller_command(program))
            controller = self._wait_ready(child)["address"]
        self.fabric = dataclasses.replace(self.fabric, controller=controller)
        self._progress.did()

    def start_agents(self) -> None:
        """Start the agents, and return when all are ready."""
        children = []
        for place in self._agents:
            agent_socket = str(self.fabric.socket_directory / f"{place.name}.sock")
            arguments = ["--controller", self.fabric.controller, "--name", place.name, "--socket", agent_socket]
            children.append(self._begin_ours(place.name, [*place.command, *arguments]))
            agent = {"name": place.name, "socket": agent_socket, **place.description}
            self.fabric = dataclasses.replace(self.fabric, agents=(*self.fabric.agents, agent))
        for child in children:
            self._wait_ready(child)
            self._progress.did()

    def finish(self) -> None:
        """Return when the controller has reached its switches; write where metrics are, and that the fabric runs."""
        _write_targets(self.fabric.run_directory, self._endpoints)
        if not self._layout.controller:
            _wait_connected(self.fabric.controller, self._switch_processes, self._deadline)
            stop_jobs(self.fabric.controller)  # those that a killed fabric left in the store
        self._progress.did()
        self.fabric = dataclasses.replace(self.fabric, phase="running")
        self.fabric.save()

    def _begin_ours(self, name: str, command: list[str]) -> StartingProcess:
        """Start a SwitchML program, which writes a ready file."""
        ready_file = self.fabric.run_directory.path / f"{name}.ready"
        return self._begin(name, [*command, *self._metrics, "--log-limit", str(LOG_MEBIBYTES)], ready_file)

    def _begin(
        self, name: str, command: list[str], ready_file: Path | None = None, stdin: int = subprocess.DEVNULL
    ) -> StartingProcess:
        directory = self.fabric.run_directory
        environment = mark(name, directory.path) | {"NOTIFY_SOCKET": str(self._ports)}
        child = StartingProcess(name, command, directory.logs / f"{name}.log", ready_file, environment, stdin)
        self.fabric = dataclasses.replace(self.fabric, processes=(*self.fabric.processes, child.record))
        self.fabric.save()  # at once: if this process is killed, the next starter finds what to end
        return child

    def _wait_ready(self, child: StartingProcess) -> dict[str, Any]:
        ready = child.wait_ready(self._deadline)
        if "metrics" in ready:
            self._endpoints[child.name] = ready["metrics"]
        return ready


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
