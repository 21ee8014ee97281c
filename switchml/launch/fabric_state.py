"""The record of a fabric in its run directory."""

import dataclasses
from pathlib import Path
from typing import Any, Final

from switchml.common.errors import RunDirectoryError
from switchml.common.processes import ProcessRecord, boot_id
from switchml.launch.run_directory import WITHOUT_STATE, RunDirectory
from switchml.launch.settings import FABRIC_OPTIONS

__all__ = ["CONTROLLER", "PORT_KEEPER", "Fabric", "FabricStatus", "inspect"]

CONTROLLER = "controller"
"""The name of the controller among a fabric's processes."""
PORT_KEEPER: Final = "ports"
"""The name of the process that keeps the UDP ports of the others (port_keeper.py). It starts first and ends last."""

_HIGHEST_PID: Final = 2**22
_SHAPE: Final = {
    "phase": "running",
    "keep": True,
    "boot": "",
    "version": "",
    "started": 0.0,
    "options": FABRIC_OPTIONS,
    "socket_directory": "",
    "controller": "",
    "switches": [{"name": ""}],
    "agents": [{"name": "", "socket": ""}],
    "processes": [{"name": "", "pid": 1, "start_time": 1, "log": ""}],
}
"""The keys of fabric.json, with values of their types."""


def _require_like(value: Any, example: Any, place: str = "the file") -> None:
    """Raise ValueError unless a value and its parts have the types of an example, and KeyError if a part is missing."""
    if isinstance(example, float) and isinstance(value, int):
        value = float(value)
    if type(value) is not type(example):
        raise ValueError(f"{place} is {value!r}")
    if isinstance(example, dict):
        for key in example:
            _require_like(value[key], example[key], key)
    elif isinstance(example, list):
        for part in value:
            _require_like(part, example[0], f"an entry of {place}")
    elif (place == "pid" and not 0 < value <= _HIGHEST_PID) or (
        place == "phase" and value not in ("starting", "running")
    ):
        raise ValueError(f"{place} is {value!r}")


@dataclasses.dataclass(frozen=True)
class Fabric:
    """A fabric as fabric.json describes it. `keep` is set by `up`, and lets the fabric survive the end of jobs.

    `options` has a value for each of FABRIC_OPTIONS. `topology` is the content of a topology file; None for a fabric
    without network namespaces.
    """

    run_directory: RunDirectory
    phase: str  # starting or running
    keep: bool
    boot: str
    version: str
    started: float
    options: dict[str, Any]
    socket_directory: Path
    topology: dict[str, Any] | None = None
    controller: str = ""
    switches: tuple[dict[str, Any], ...] = ()
    agents: tuple[dict[str, Any], ...] = ()
    processes: tuple[ProcessRecord, ...] = ()

    @property
    def owns_controller(self) -> bool:
        """False for one host's part of a larger fabric, whose jobs are not its own."""
        return not self.options["leaf"]

    def dead_processes(self) -> list[ProcessRecord]:
        """Return the processes that should run but do not."""
        if self.boot != boot_id():
            return list(self.processes)
        return [process for process in self.processes if not process.alive()]

    @property
    def controller_lives(self) -> bool:
        """True if its own controller can be asked, whatever else has ended."""
        ended = {process.name for process in self.dead_processes()}
        return self.owns_controller and bool(self.controller) and CONTROLLER not in ended

    def save(self) -> None:
        """Write fabric.json."""
        content = dataclasses.asdict(self) | {"socket_directory": str(self.socket_directory)}
        del content["run_directory"]
        self.run_directory.write_state(content)

    @classmethod
    def read(cls, run_directory: RunDirectory) -> "Fabric | None":
        """Return the content of fabric.json, or None if it does not exist. Raises RunDirectoryError."""
        content = run_directory.read_state()
        if content is None:
            return None
        try:
            _require_like(content, _SHAPE)
            return cls(
                run_directory=run_directory,
                phase=content["phase"],
                keep=content["keep"],
                boot=content["boot"],
                version=content["version"],
                started=content["started"],
                options=content["options"],
                socket_directory=Path(content["socket_directory"]),
                topology=content["topology"],
                controller=content["controller"],
                switches=tuple(content["switches"]),
                agents=tuple(content["agents"]),
                processes=tuple(ProcessRecord(**process) for process in content["processes"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RunDirectoryError(
                f"{run_directory.state_file} is damaged, or was written by another version of SwitchML ({error}); "
                f"{WITHOUT_STATE}"
            ) from error


@dataclasses.dataclass(frozen=True)
class FabricStatus:
    """The state of a run directory, in `state`: none, starting, running or broken."""

    state: str
    fabric: Fabric | None
    dead: tuple[ProcessRecord, ...]


def inspect(run_directory: RunDirectory) -> FabricStatus:
    """Inspect the run directory's fabric without changing anything. Raises RunDirectoryError."""
    fabric = Fabric.read(run_directory)
    if fabric is None:
        return FabricStatus("none", None, ())
    dead = tuple(fabric.dead_processes())
    if dead:
        return FabricStatus("broken", fabric, dead)
    return FabricStatus(fabric.phase, fabric, ())
