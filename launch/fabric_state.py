"""The record of a fabric in its run directory."""

import dataclasses
from pathlib import Path
from typing import Any

from switchml.common.errors import StartError
from switchml.common.processes import ProcessRecord, boot_id
from switchml.launch.run_directory import RunDirectory
from switchml.launch.settings import FabricOptions

__all__ = ["CONTROLLER", "Fabric", "FabricStatus", "inspect"]

CONTROLLER = "controller"
"""The name of the controller among a fabric's processes."""


@dataclasses.dataclass(frozen=True)
class Fabric:
    """A fabric as fabric.json describes it. `keep` is set by `up`, and lets the fabric survive the end of jobs.

    `topology` is the content of a topology file; None for the embedded fabric.
    """

    run_directory: RunDirectory
    phase: str  # starting or running
    keep: bool
    boot: str
    version: str
    started: float
    options: FabricOptions
    socket_directory: Path
    topology: dict[str, Any] | None = None
    controller: str = ""
    switches: tuple[dict[str, Any], ...] = ()
    agents: tuple[dict[str, Any], ...] = ()
    processes: tuple[ProcessRecord, ...] = ()

    @property
    def owns_controller(self) -> bool:
        """False for one host's part of a larger fabric, whose jobs are not its own."""
        return not self.options.leaf

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
            return cls(
                run_directory=run_directory,
                phase=content["phase"],
                keep=content["keep"],
                boot=content["boot"],
                version=content["version"],
                started=content["started"],
                options=FabricOptions(**content["options"]),
                socket_directory=Path(content["socket_directory"]),
                topology=content["topology"],
                controller=content["controller"],
                switches=tuple(content["switches"]),
                agents=tuple(content["agents"]),
                processes=tuple(ProcessRecord(**process) for process in content["processes"]),
            )
        except (KeyError, TypeError) as error:
            raise StartError(
                f"{run_directory.state_file} was written by another version of SwitchML ({error}); end that fabric "
                "with the version that started it, or remove the file"
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
