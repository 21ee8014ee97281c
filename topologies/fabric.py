"""The embedded fabric: one soft switch, one controller and some agents as processes of this machine."""

import contextlib
import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from controller.client import ControllerClient
from controller.errors import ControllerError
from controller.proto import switchml_pb2 as pb
from controller.version import VERSION
from topologies.config import FabricOptions, Settings
from topologies.errors import FabricBusyError, FabricStartError, NoFabricError
from topologies.processes import ProcessRecord, StartingProcess, boot_id, find_program, last_lines
from topologies.run_directory import RunDirectory

__all__ = ["Fabric", "FabricStatus", "Reporter", "controller_address", "inspect", "keep", "start", "stop", "using"]

SWITCH_NAME: Final = "switch-0"
START_SECONDS: Final = 30.0
LOCK_SECONDS: Final = 60.0
END_GRACE_SECONDS: Final = 5.0
_CONNECTED_STEP_SECONDS: Final = 0.02

Reporter = Callable[[str], None]
"""Told what happens, a line at a time, for people who wait."""


def _silent(_line: str) -> None:
    pass


@dataclasses.dataclass(frozen=True)
class Fabric:
    """A fabric as fabric.json describes it. `keep`: started by `up`, so the end of a job leaves it alone."""

    run_directory: RunDirectory
    phase: str  # starting, running
    keep: bool
    boot: str
    version: str
    started: float
    options: FabricOptions
    socket_directory: Path
    controller: str
    switch: dict[str, Any]
    agents: tuple[dict[str, Any], ...]
    processes: tuple[ProcessRecord, ...]

    def dead_processes(self) -> list[ProcessRecord]:
        """The processes that should run and do not."""
        if self.boot != boot_id():
            return list(self.processes)
        return [process for process in self.processes if not process.alive()]

    def save(self) -> None:
        """Write fabric.json."""
        content = dataclasses.asdict(self) | {"socket_directory": str(self.socket_directory)}
        del content["run_directory"]
        self.run_directory.write_state(content)

    @classmethod
    def read(cls, run_directory: RunDirectory) -> "Fabric | None":
        """What fabric.json says, None when there is none. Raises RunDirectoryError."""
        content = run_directory.read_state()
        if content is None:
            return None
        try:
            return cls(
                run_directory=run_directory,
                phase=content["phase"],
                keep=content["keep"],
                boot=content["boot"],
                version=content["version"],
                started=content["started"],
                options=FabricOptions(**content["options"]),
                socket_directory=Path(content["socket_directory"]),
                controller=content["controller"],
                switch=content["switch"],
                agents=tuple(content["agents"]),
                processes=tuple(ProcessRecord(**process) for process in content["processes"]),
            )
        except (KeyError, TypeError) as error:
            raise FabricStartError(
                f"{run_directory.state_file} was written by another version of SwitchML ({error}); end that fabric "
                "with the version that began it, or remove the file"
            ) from error


@dataclasses.dataclass(frozen=True)
class FabricStatus:
    """What is found in a run directory: `state` is none, starting, running or broken."""

    state: str
    fabric: Fabric | None
    dead: tuple[ProcessRecord, ...]


def inspect(run_directory: RunDirectory) -> FabricStatus:
    """Look at the run directory's fabric without changing anything. Raises RunDirectoryError."""
    fabric = Fabric.read(run_directory)
    if fabric is None:
        return FabricStatus("none", None, ())
    dead = tuple(fabric.dead_processes())
    if dead:
        return FabricStatus("broken", fabric, dead)
    return FabricStatus(fabric.phase, fabric, ())


def controller_address(settings: Settings) -> str:
    """The configured controller's address, else that of the run directory's live fabric.

    Raises NoFabricError when there is neither.
    """
    if settings.controller is not None:
        return settings.controller
    status = inspect(RunDirectory(settings.run_dir))
    if status.state == "running" and status.fabric is not None:
        return status.fabric.controller
    if status.state == "broken":
        first = status.dead[0]
        lines = "".join(f"\n  {line}" for line in last_lines(Path(first.log)))
        names = ", ".join(process.name for process in status.dead)
        raise NoFabricError(
            f"the fabric in {settings.run_dir} is broken: {names} has ended. "
            f"Begin anew with `switchml-ctl down` and `switchml-ctl up`. The end of {first.log}:{lines}"
        )
    if status.state == "starting":
        raise NoFabricError(f"the fabric in {settings.run_dir} is still starting; try again in a moment")
    raise NoFabricError(
        f"there is no controller: none is configured (--controller, SWITCHML_CONTROLLER, the configuration file) and "
        f"{settings.run_dir} holds no live fabric. Start one here with `switchml-ctl up`"
    )


def start(
    run_directory: RunDirectory, options: FabricOptions, *, keep: bool, report: Reporter = _silent
) -> tuple[Fabric, bool]:
    """The live fabric of the run directory, and whether this call started it.

    A live fabric is taken as it is, whatever `options` says; with `keep` it is from now on left alone by the end of a
    job. A broken one is cleared away first. Raises FabricStartError, FabricBusyError, ProgramNotFoundError and
    RunDirectoryError.
    """
    run_directory.create()
    with run_directory.lock(LOCK_SECONDS):
        return _start_locked(run_directory, options, keep=keep, report=report)


def _start_locked(
    run_directory: RunDirectory, options: FabricOptions, *, keep: bool, report: Reporter
) -> tuple[Fabric, bool]:
    status = inspect(run_directory)
    if status.state == "running" and status.fabric is not None:
        fabric = status.fabric
        if keep and not fabric.keep:
            fabric = dataclasses.replace(fabric, keep=True)
            fabric.save()
        return fabric, False
    if status.fabric is not None:
        names = ", ".join(process.name for process in status.dead) or "its starter"
        if run_directory.used_by_others():
            raise FabricBusyError(
                f"the fabric in {run_directory.path} is broken ({names} has ended) and jobs still use it; "
                "wait for them to end or end it with `switchml-ctl down`"
            )
        report(f"clearing away the fabric whose {names} has ended")
        _end_processes(status.fabric)
    return _launch(run_directory, options, keep=keep, report=report), True


def keep(run_directory: RunDirectory) -> None:
    """Leave the live fabric alone from now on, as if `up` had started it."""
    with run_directory.lock(LOCK_SECONDS):
        fabric = Fabric.read(run_directory)
        if fabric is not None and not fabric.keep:
            dataclasses.replace(fabric, keep=True).save()


def _launch(run_directory: RunDirectory, options: FabricOptions, *, keep: bool, report: Reporter) -> Fabric:
    programs = {name: find_program(f"switchml-{name}") for name in ("switch", "controller", "agent")}
    longest = f"agent-{options.agents - 1}.sock"
    fabric = Fabric(
        run_directory=run_directory,
        phase="starting",
        keep=keep,
        boot=boot_id(),
        version=VERSION,
        started=time.time(),
        options=options,
        socket_directory=run_directory.socket_directory(longest),
        controller="",
        switch={},
        agents=(),
        processes=(),
    )
    deadline = time.monotonic() + START_SECONDS
    began = time.monotonic()
    agents = "1 agent" if options.agents == 1 else f"{options.agents} agents"
    report(f"starting switch, controller and {agents} in {run_directory.path}")

    def begin(name: str, command: list[str]) -> StartingProcess:
        nonlocal fabric
        child = StartingProcess(name, command, run_directory.logs / f"{name}.log", run_directory.path / f"{name}.ready")
        fabric = dataclasses.replace(fabric, processes=(*fabric.processes, child.record))
        fabric.save()  # at once: should we be killed, the next starter finds what to end
        return child

    try:
        fabric.save()
        switch = begin(SWITCH_NAME, [programs["switch"], *_switch_arguments(options)]).wait_ready(deadline)
        port = switch["ports"]["1"]
        fabric = dataclasses.replace(
            fabric,
            switch={
                "name": SWITCH_NAME,
                "p4runtime": switch["grpc"],
                "address": port["address"],
                "udp_port": port["udp_port"],
            },
        )
        configuration = run_directory.path / "controller.toml"
        configuration.write_text(_controller_configuration(run_directory, fabric), encoding="utf-8")
        controller = begin("controller", [programs["controller"], "--config", str(configuration)]).wait_ready(deadline)
        fabric = dataclasses.replace(fabric, controller=controller["address"])
        children = []
        for number in range(options.agents):
            agent = {
                "name": f"agent-{number}",
                "address": f"127.0.0.{number + 1}",
                "socket": str(fabric.socket_directory / f"agent-{number}.sock"),
            }
            arguments = ["--controller", fabric.controller, "--name", agent["name"], "--address", agent["address"]]
            children.append(begin(agent["name"], [programs["agent"], *arguments, "--socket", agent["socket"]]))
            fabric = dataclasses.replace(fabric, agents=(*fabric.agents, agent))
        for child in children:
            child.wait_ready(deadline)
        _wait_connected(fabric.controller, deadline)
        _stop_jobs(fabric.controller)  # left in the store by a fabric that was not ended in order
        fabric = dataclasses.replace(fabric, phase="running")
        fabric.save()
    except (KeyError, TypeError) as error:
        _end_processes(fabric)
        raise FabricStartError(f"a ready file is not as expected (other versions installed?): {error}") from error
    except BaseException:
        _end_processes(fabric)
        raise
    report(f"the fabric is up after {time.monotonic() - began:.1f} s; its controller is {fabric.controller}")
    return fabric


def _wait_connected(controller: str, deadline: float) -> None:
    """Return when the controller drives its switch; it has no call that waits for that."""
    with ControllerClient(controller) as client:
        while True:
            switches = client.list_switches()
            if all(switch.connected and switch.primary for switch in switches):
                return
            if time.monotonic() >= deadline:
                failures = "; ".join(f"{switch.name}: {switch.failure or 'not connected'}" for switch in switches)
                raise FabricStartError(f"the controller did not reach its switch in time: {failures}")
            time.sleep(_CONNECTED_STEP_SECONDS)


def _switch_arguments(options: FabricOptions) -> list[str]:
    arguments = ["--grpc", "127.0.0.1:0", "--device-id", "1", "--udp-port", "1=127.0.0.1:0"]
    arguments += ["--values", str(options.values), "--slots", str(options.slots)]
    if options.drop or options.duplicate or options.delay:
        arguments += ["--drop", str(options.drop), "--duplicate", str(options.duplicate)]
        arguments += ["--delay", str(options.delay), "--seed", str(options.seed)]
    return arguments


def _controller_configuration(run_directory: RunDirectory, fabric: Fabric) -> str:
    switch = fabric.switch
    text = json.dumps  # a JSON string is a TOML basic string
    return f"""\
# Written by switchml-ctl for the embedded fabric.
[controller]
listen = "127.0.0.1:0"
store = {text(str(run_directory.path / "controller.sqlite"))}

[[switches]]
name = {text(switch["name"])}
target = "soft"
p4runtime = {text(switch["p4runtime"])}
device_id = 1
address = {text(switch["address"])}
udp_port = {switch["udp_port"]}
values_per_packet = {fabric.options.values}
slots = {fabric.options.slots}
"""


def _live_jobs(controller: str) -> list[pb.Job]:
    with ControllerClient(controller) as client:
        return client.list_jobs()


def _stop_jobs(controller: str) -> list[str]:
    jobs = _live_jobs(controller)
    with ControllerClient(controller) as client:
        for job in jobs:
            client.stop_job(job.id)
    return [job.name for job in jobs]


def stop(run_directory: RunDirectory, *, report: Reporter = _silent) -> tuple[list[str], list[str]]:
    """End the run directory's fabric: names of the jobs stopped and of the processes ended, both empty without one.

    Raises RunDirectoryError.
    """
    if not run_directory.exists():
        return [], []
    run_directory.check()
    with run_directory.lock(LOCK_SECONDS):
        fabric = Fabric.read(run_directory)
        if fabric is None:
            return [], []
        jobs: list[str] = []
        if fabric.phase == "running" and not fabric.dead_processes():
            try:
                jobs = _stop_jobs(fabric.controller)
            except ControllerError as error:
                report(f"jobs could not be stopped in order: {error}")
        return jobs, _end_processes(fabric)


def _end_processes(fabric: Fabric) -> list[str]:
    """End what still runs, agents first, and remove what only makes sense while it runs."""
    ended = []
    if fabric.boot == boot_id():
        ended = [process.name for process in reversed(fabric.processes) if process.end(END_GRACE_SECONDS)]
    directory = fabric.run_directory
    for agent in fabric.agents:
        Path(agent["socket"]).unlink(missing_ok=True)
    for process in fabric.processes:
        (directory.path / f"{process.name}.ready").unlink(missing_ok=True)
    if fabric.socket_directory != directory.path:
        shutil.rmtree(fabric.socket_directory, ignore_errors=True)
    directory.clear_state()
    return ended


@contextlib.contextmanager
def using(settings: Settings, *, report: Reporter = _silent) -> Iterator[str]:
    """Address of a controller for as long as the context lasts: the configured one, a live fabric's or a new one's.

    A fabric that was started here and not by `up` ends with the last that uses it, but not under a live job.
    Raises what `start` raises.
    """
    if settings.controller is not None:
        yield settings.controller
        return
    run_directory = RunDirectory(settings.run_dir)
    run_directory.create()
    with run_directory.lock(LOCK_SECONDS):
        fabric, _ = _start_locked(run_directory, settings.fabric, keep=False, report=report)
        user = run_directory.use()
    try:
        yield fabric.controller
    finally:
        _leave(run_directory, user, report)


def _leave(run_directory: RunDirectory, user: int, report: Reporter) -> None:
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(run_directory.lock(LOCK_SECONDS))
        finally:
            with open(user, "rb"):  # closes it
                pass
        fabric = Fabric.read(run_directory)
        if fabric is None or fabric.keep or run_directory.used_by_others():
            return
        try:
            live = _live_jobs(fabric.controller) if not fabric.dead_processes() else []
        except ControllerError as error:
            report(f"the controller cannot be asked for live jobs: {error}")
            live = []
        if live:
            report(f"the fabric stays up for {', '.join(job.name for job in live)}; end it with `switchml-ctl down`")
            return
        _end_processes(fabric)
        report("the fabric that was started for this job has ended")
