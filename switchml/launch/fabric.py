"""The fabric of a run directory: start it, find it, keep it while programs use it, and end it."""

import contextlib
import dataclasses
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from switchml.common.errors import FabricBusyError, FabricDiffersError, NoFabricError, StartError
from switchml.common.processes import last_lines
from switchml.common.progress import Progress
from switchml.controller.client import DEFAULT_SECONDS, ControllerClient
from switchml.controller.errors import ControllerError
from switchml.controller.retry import Retry, ask
from switchml.launch.fabric_processes import STORE, Reporter, end_orphans, end_processes, launch, live_jobs, stop_jobs
from switchml.launch.fabric_state import Fabric, FabricStatus, inspect
from switchml.launch.kinds import FabricKind, kind_of
from switchml.launch.orphans import orphans
from switchml.launch.run_directory import RunDirectory
from switchml.launch.settings import Key, Settings
from switchml.topologies.namespaces import Namespaces

__all__ = [
    "Fabric",
    "FabricStatus",
    "Reporter",
    "connect",
    "controller_address",
    "inspect",
    "keep",
    "start",
    "stop",
    "store_without_controller",
    "using",
    "wait_for_controller",
]

LOCK_SECONDS: Final = 60.0
_CONTROLLER_SECONDS: Final = 30.0
_CONTROLLER_STEP_SECONDS: Final = 0.05


def _silent(_line: str) -> None:
    pass


def controller_address(settings: Settings, notice: Reporter = _silent) -> str:
    """Return the configured controller's address, else that of the run directory's fabric.

    `notice` is called if other processes of that fabric have ended. Raises NoFabricError if there is neither.
    """
    if settings.controller is not None:
        return settings.controller
    status = inspect(RunDirectory(settings.run_dir))
    names = ", ".join(process.name for process in status.dead)
    if status.fabric is not None and status.state in ("running", "broken"):
        if not status.dead:
            return status.fabric.controller
        broken = f"the fabric in {settings.run_dir} is broken: {names} has ended"
        restart = "Restart it with `switchml-ctl down` and `switchml-ctl up`"
        if status.fabric.controller_lives:
            notice(f"{broken}, and its controller still runs. {restart}")
            return status.fabric.controller
        first = status.dead[0]
        lines = "".join(f"\n  {line}" for line in last_lines(Path(first.log)))
        raise NoFabricError(f"{broken}. {restart}. The end of {first.log}:{lines}")
    if status.state == "starting":
        raise NoFabricError(f"the fabric in {settings.run_dir} is still starting; try again in a moment")
    raise NoFabricError(
        "there is no controller: none is configured (--controller, SWITCHML_CONTROLLER, the configuration file), "
        f"and {settings.run_dir} holds no live fabric. Start one with `switchml-ctl up`"
    )


def store_without_controller(settings: Settings) -> Path | None:
    """Return the store of the run directory's fabric if its controller does not run; None if there is no such store."""
    if settings.controller is not None:
        return None
    status = inspect(RunDirectory(settings.run_dir))
    store = settings.run_dir / STORE
    lives = status.fabric is not None and (status.state == "starting" or status.fabric.controller_lives)
    return store if store.is_file() and not lives else None


def connect(
    settings: Settings, address: str, timeout: float | None = None, notice: Reporter = _silent
) -> ControllerClient:
    """Return a client of the controller at `address`, with the configured certificates if the controller is configured.

    A call takes at most `timeout` seconds, or ControllerClient's default. `notice` is called when a stream begins to
    wait for a controller that is away. Raises what ControllerClient raises.
    """
    seconds = DEFAULT_SECONDS if timeout is None else timeout
    if settings.controller is None:  # the run directory's fabric, on loopback or a Unix socket
        return ControllerClient(address, seconds, notice=notice)
    return ControllerClient(address, seconds, tls=settings.tls, insecure=settings.insecure, notice=notice)


def start(
    run_directory: RunDirectory,
    kind: FabricKind,
    *,
    keep: bool,
    given: Iterable[Key] = (),
    report: Reporter = _silent,
    progress: Progress | None = None,
) -> tuple[Fabric, bool]:
    """Return the live fabric of the run directory, and whether this call started it.

    A live fabric must have those options of `kind` that were `given`; with `keep` it survives the end of jobs from now
    on. A broken one is removed first. Raises FabricBusyError, FabricDiffersError, RunDirectoryError and what `launch`
    raises.
    """
    run_directory.create()
    with run_directory.lock(LOCK_SECONDS):
        live = _live(run_directory)
        if live is None:
            return _start_anew(run_directory, kind, keep=keep, report=report, progress=progress or Progress()), True
        _require_alike(live, kind, given)
        return (_kept(live) if keep else live), False


def _require_alike(fabric: Fabric, kind: FabricKind, given: Iterable[Key]) -> None:
    """Raise FabricDiffersError unless a live fabric has the options that were given."""
    differences = []
    options = kind.options()
    for key in given:
        field = key.name.removeprefix("fabric.")
        live, wanted = fabric.options.get(field), options.get(field)
        if live != wanted:
            differences.append(f"{key.option} is {live if live != '' else 'not given'} instead of {wanted}")
    if differences:
        raise FabricDiffersError(
            f"a fabric already runs in {fabric.run_directory.path}, with other options: {', '.join(differences)}; "
            "end it with `switchml-ctl down` first, or omit these"
        )


def _live(run_directory: RunDirectory) -> Fabric | None:
    """Return the run directory's fabric if all of it runs."""
    status = inspect(run_directory)
    return status.fabric if status.state == "running" else None


def _kept(fabric: Fabric) -> Fabric:
    """Return a live fabric, which from now on survives the end of jobs."""
    if not fabric.keep:
        fabric = dataclasses.replace(fabric, keep=True)
        fabric.save()
    return fabric


def _start_anew(
    run_directory: RunDirectory, kind: FabricKind, *, keep: bool, report: Reporter, progress: Progress
) -> Fabric:
    """Start a fabric, after what is left of a broken one has been removed."""
    status = inspect(run_directory)
    if status.fabric is not None:
        names = ", ".join(process.name for process in status.dead) or "the process that started it"
        if run_directory.used_by_others():
            raise FabricBusyError(
                f"the fabric in {run_directory.path} is broken ({names} has ended) and jobs still use it; wait for "
                "them to end or end it with `switchml-ctl down`"
            )
        report(f"removing the fabric whose {names} has ended")
        end_processes(status.fabric)
    _end_orphans(run_directory, report)
    _clear_stale_namespaces(run_directory, report)
    return launch(run_directory, kind, keep=keep, report=report, progress=progress)


def _clear_stale_namespaces(run_directory: RunDirectory, report: Reporter) -> None:
    """Remove network namespaces of an earlier fabric that fabric.json no longer lists."""
    removed = Namespaces(run_directory.path).remove()
    if removed:
        report(f"removed network namespaces that an earlier fabric had left behind: {', '.join(removed)}")


def _end_orphans(run_directory: RunDirectory, report: Reporter) -> None:
    """End the processes of a fabric whose fabric.json is lost. Raises FabricBusyError if jobs still use them."""
    names = ", ".join(process.name for process in orphans(run_directory.path))
    if names and run_directory.used_by_others():
        raise FabricBusyError(
            f"{run_directory.state_file} is lost, and jobs still use the processes that it listed ({names}); wait "
            "for them to end or end all with `switchml-ctl down`"
        )
    if names:
        report(f"ending the processes of a fabric whose {run_directory.state_file.name} is lost: {names}")
        end_orphans(run_directory)


def wait_for_controller(settings: Settings, fabric: Fabric) -> None:
    """Return when the controller of a larger fabric is connected to the switch of this host.

    Without a certificate that lets it ask, return at once. Raises StartError, and what ControllerClient raises.
    """
    if settings.tls is None and not settings.insecure:
        return
    leaf = fabric.options["leaf"]
    deadline = time.monotonic() + _CONTROLLER_SECONDS
    retry = Retry(give_up=lambda: time.monotonic() >= deadline)
    with connect(settings, fabric.controller) as client:
        while True:
            [switch] = [one for one in ask(client.list_switches, retry) if one.name == leaf]
            if switch.primary:
                return
            if time.monotonic() >= deadline:
                raise StartError(
                    f"the controller at {fabric.controller} has not reached this host's switch {leaf}: "
                    f"{switch.failure}; its configuration says where that switch is"
                )
            time.sleep(_CONTROLLER_STEP_SECONDS)


def keep(run_directory: RunDirectory) -> None:
    """Keep the live fabric when jobs end, as if `up` had started it."""
    with run_directory.lock(LOCK_SECONDS):
        fabric = Fabric.read(run_directory)
        if fabric is not None:
            _kept(fabric)


def stop(run_directory: RunDirectory, *, report: Reporter = _silent) -> tuple[list[str], list[str]]:
    """End the run directory's fabric, and return the names of the jobs stopped and of the processes ended.

    Processes whose fabric.json is lost are ended as well. Without a fabric both lists are empty.

    Raises RunDirectoryError, and NamespaceError if its network namespaces cannot be removed.
    """
    if not run_directory.exists():
        ended = end_orphans(run_directory)
        _clear_stale_namespaces(run_directory, report)
        return [], ended
    run_directory.check()
    with run_directory.lock(LOCK_SECONDS):
        fabric = Fabric.read(run_directory)
        if fabric is None:
            ended = end_orphans(run_directory)
            _clear_stale_namespaces(run_directory, report)
            return [], ended
        jobs: list[str] = []
        if fabric.controller_lives:
            try:
                jobs = stop_jobs(fabric.controller)
            except ControllerError as error:
                report(f"jobs could not be stopped in order: {error}")
        return jobs, end_processes(fabric) + end_orphans(run_directory)


@contextlib.contextmanager
def using(settings: Settings, *, report: Reporter = _silent) -> Iterator[str]:
    """Yield a controller's address for the duration of the context: the configured one, a live fabric's or a new one's.

    A fabric that was started here and not by `up` ends with its last user, unless a job is live. Raises what `start`
    and `kind_of` raise.
    """
    if settings.controller is not None:
        yield settings.controller
        return
    run_directory = RunDirectory(settings.run_dir)
    run_directory.create()
    with run_directory.lock(LOCK_SECONDS):
        fabric = _live(run_directory)
        if fabric is None:
            kind = kind_of(settings.fabric)
            fabric = _start_anew(run_directory, kind, keep=False, report=report, progress=Progress())
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
            live = live_jobs(fabric.controller) if fabric.controller_lives else []
        except ControllerError as error:  # which does not say that no job is live
            report(f"the fabric keeps running: {error}; end it with `switchml-ctl down`")
            return
        if live:
            report(
                f"the fabric keeps running for {', '.join(job.name for job in live)}; end it with `switchml-ctl down`"
            )
            return
        end_processes(fabric)
        report("the fabric that was started for this job has ended")
