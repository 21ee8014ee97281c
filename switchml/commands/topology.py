"""The commands of switchml-ctl about topologies."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from switchml.commands.command import CommandGroup
from switchml.commands.result import Result
from switchml.commands.session import CommandSession
from switchml.commands.standard_streams import note

if TYPE_CHECKING:
    from switchml.topologies.topology import Topology

__all__ = ["ControllerFile", "TopologyFound", "topology_group"]


@dataclasses.dataclass(frozen=True)
class TopologyFound(Result):
    """A topology; `drawn` tells whether a picture was written, which replaces the text."""

    topology: Topology
    drawn: bool

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return self.topology.as_dict()


@dataclasses.dataclass(frozen=True)
class ControllerFile(Result):
    """The controller's configuration for a topology."""

    configuration: str

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {"configuration": self.configuration}


@click.group("topology", cls=CommandGroup)
def topology_group() -> None:
    """Show topologies, which `up --switch` lays out in network namespaces."""


@topology_group.command(
    "show",
    epilog="""\b
Examples:
  switchml-ctl topology show
  switchml-ctl topology show my-topology.yaml --output my-topology.svg""",
)
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False), metavar="[FILE]")
@click.option(
    "--output",
    "picture",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.png|svg",
    help="Draw the topology into this file.",
)
@click.pass_obj
def show_topology(session: CommandSession, file: Path | None, picture: Path | None) -> TopologyFound:
    """Draw a topology file; default: that of the run directory's fabric, else the one that comes with SwitchML."""
    from switchml.topologies import drawing, topology

    shown = topology.load(file) if file is not None else _laid_out(session) or topology.load(topology.PACKAGED)
    if picture is not None:
        drawing.picture(shown, picture)
        note(f"wrote {picture}")
    return TopologyFound(shown, drawn=picture is not None)


@topology_group.command(
    "controller",
    epilog="""\b
Example:
  switchml-ctl topology controller tofino.yaml > controller.toml""",
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def controller_of_topology(file: Path) -> ControllerFile:
    """Print the controller's configuration for a topology file whose switch, a Tofino, already exists."""
    from switchml.topologies import controller_file, topology

    return ControllerFile(controller_file.controller_file(topology.load(file)))


def _laid_out(session: CommandSession) -> Topology | None:
    """Return the topology of the run directory's fabric, or None."""
    from switchml.launch import fabric
    from switchml.topologies.topology import Topology

    found = fabric.inspect(session.run_directory()).fabric
    if found is None or found.topology is None:
        return None
    return Topology.from_dict(found.topology)
