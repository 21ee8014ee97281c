"""Text about fabrics."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from switchml.commands.fabric import FabricEnded, FabricFound, FabricRunning, FabricStarted
from switchml.commands.job import Jobs
from switchml.commands.switch import AgentList, SwitchList
from switchml.commands.text.printing import Part, text
from switchml.commands.text.tables import table
from switchml.launch.fabric_state import FabricStatus

__all__: list[str] = []


@text.register(FabricFound)
def _(found: FabricFound) -> Iterator[Part]:
    return _processes(found.found)


@text.register(FabricStarted)
def _(started: FabricStarted) -> Iterator[Part]:
    return _processes(started.found)


@text.register(FabricRunning)
def _(running: FabricRunning) -> Iterator[Part]:
    yield from _processes(running.found)
    yield from text(SwitchList(running.switches))
    yield from text(AgentList(running.agents))
    yield from text(Jobs(running.jobs))


def _processes(status: FabricStatus) -> Iterator[Part]:
    """Yield the processes of the run directory's fabric, if it has one."""
    fabric = status.fabric
    if fabric is None:
        return
    dead = {process.name for process in status.dead}
    yield f"fabric in {fabric.run_directory.path}: {status.state}, controller {fabric.controller}"
    processes = table("process", "pid", "state", "log", right=("pid",), wrap=("log",))
    for process in fabric.processes:
        state = Text("ended", style="red") if process.name in dead else Text("runs", style="green")
        processes.add_row(process.name, str(process.pid), state, process.log)
    yield processes


@text.register(FabricEnded)
def _(end: FabricEnded) -> Iterator[Part]:
    for name in end.jobs_stopped:
        yield f"stopped job {name}"
    yield f"ended {', '.join(end.ended)}" if end.ended else f"no fabric runs in {end.run_dir}"
