"""The commands of switchml-ctl that start, end and show the fabric of a run directory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from switchml.commands.command import Command, setting
from switchml.commands.exit_status import ExitCode
from switchml.commands.result import Result, message_dict
from switchml.commands.session import CommandSession
from switchml.commands.standard_streams import note

if TYPE_CHECKING:
    from switchml.controller.proto import switchml_pb2 as pb
    from switchml.launch.fabric_state import FabricStatus

__all__ = ["FabricEnded", "FabricFound", "FabricRunning", "FabricStarted", "down", "status", "up"]


@dataclasses.dataclass(frozen=True)
class FabricFound(Result):
    """The content of a run directory without a running fabric."""

    found: FabricStatus
    run_dir: Path

    @property
    def exit_status(self) -> int:
        """The exit status for an unreachable controller."""
        return ExitCode.UNREACHABLE

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return _fabric_dict(self.found, self.run_dir)


@dataclasses.dataclass(frozen=True)
class FabricStarted(Result):
    """A running fabric, and whether this command has started it."""

    found: FabricStatus
    run_dir: Path
    started: bool

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {"started": self.started, **_fabric_dict(self.found, self.run_dir)}


@dataclasses.dataclass(frozen=True)
class FabricRunning(Result):
    """A fabric as reported by its controller at `address`; `found` is the content of the run directory.

    Processes other than its controller may have ended.
    """

    found: FabricStatus
    run_dir: Path
    address: str
    info: pb.InfoResponse
    switches: Sequence[pb.Switch]
    agents: Sequence[pb.Agent]
    jobs: Sequence[pb.Job]

    @property
    def exit_status(self) -> int:
        """0, or that of an unreachable controller if any process of the fabric has ended."""
        return ExitCode.UNREACHABLE if self.found.dead else ExitCode.OK

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {
            **_fabric_dict(self.found, self.run_dir),
            "state": "broken" if self.found.dead else "running",
            "controller": self.address,
            "controller_version": self.info.version,
            "switches": [message_dict(switch) for switch in self.switches],
            "agents": [message_dict(agent) for agent in self.agents],
            "jobs": [message_dict(job) for job in self.jobs],
        }


@dataclasses.dataclass(frozen=True)
class FabricEnded(Result):
    """The names of the jobs that were stopped and of the processes that were ended."""

    run_dir: Path
    jobs_stopped: Sequence[str]
    ended: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {"run_dir": str(self.run_dir), "jobs_stopped": list(self.jobs_stopped), "ended": list(self.ended)}


def _fabric_dict(status: FabricStatus, run_dir: Path) -> dict[str, Any]:
    found = status.fabric
    content: dict[str, Any] = {"state": status.state, "run_dir": str(run_dir)}
    if found is not None:
        dead = {process.name for process in status.dead}
        content |= {
            "controller": found.controller,
            "version": found.version,
            "options": found.options,
            "topology": found.topology,
            "switches": list(found.switches),
            "agents": list(found.agents),
            "processes": [
                {"name": process.name, "pid": process.pid, "alive": process.name not in dead, "log": process.log}
                for process in found.processes
            ],
        }
    return content


@click.command(
    "up",
    cls=Command,
    epilog="""\b
Examples:
  switchml-ctl up
  switchml-ctl up --agents 4 --values 1024
  switchml-ctl up --transport udp
  switchml-ctl up --racks 2 --agents 4
  switchml-ctl up --drop 0.01 --duplicate 0.01 --delay 0.01 --seed 7
  switchml-ctl up --switch bmv2 --workers 4
  switchml-ctl up --switch bmv2 --program switchml_floats
  switchml-ctl up --switch soft --workers 8 --racks 2
  switchml-ctl up --switch soft --topology my-topology.yaml
  switchml-ctl --controller 10.0.0.1:7600 up --leaf host-1 --address 10.0.0.11 --certificates certs""",
)
@setting("fabric.switch")
@setting("fabric.workers")
@setting("fabric.racks")
@setting("fabric.topology")
@setting("fabric.agents")
@setting("fabric.transport")
@setting("fabric.threads")
@setting("fabric.values")
@setting("fabric.program")
@setting("fabric.slots")
@setting("fabric.drop")
@setting("fabric.duplicate")
@setting("fabric.delay")
@setting("fabric.flip")
@setting("fabric.seed")
@setting("fabric.leaf")
@setting("fabric.address")
@setting("fabric.certificates")
@click.pass_obj
def up(session: CommandSession, /, **options: Any) -> FabricStarted:
    """Start switches, controller and agents as processes of this machine.

    They run until `switchml-ctl down`. A fabric that already runs is left as it is; it is an error if the given options
    differ from its own.

    With --switch or --topology they are laid out in network namespaces: one for the switches and the controller, one
    for each host with its agent, and links between them. That needs root. With --racks each rack has a switch below
    one that they share.

    With --leaf it starts this host's part of a fabric on several hosts: a switch that adds up what the ranks of this
    host have in shared memory, and sends one contribution for all of them to the switch above it, and their agent.
    """
    from switchml.commands.displays import ProgressBar
    from switchml.launch import fabric
    from switchml.launch.kinds import kind_of
    from switchml.launch.run_directory import RunDirectory

    settings = session.settings(**options)
    directory = RunDirectory(settings.run_dir)
    with ProgressBar() as bar:
        found, started = fabric.start(
            directory, kind_of(settings.fabric), keep=True, given=settings.given, report=bar.note, progress=bar
        )
        if not found.owns_controller:
            fabric.wait_for_controller(settings, found)
    if not started:
        note("a fabric already runs")
    return FabricStarted(fabric.inspect(directory), settings.run_dir, started)


@click.command("down", cls=Command, epilog="\b\nExample:\n  switchml-ctl down")
@click.pass_obj
def down(session: CommandSession) -> FabricEnded:
    """Stop the jobs of this run directory's fabric and end its processes."""
    from switchml.launch import fabric

    directory = session.run_directory()
    return FabricEnded(directory.path, *fabric.stop(directory, report=note))


@click.command(
    "status", cls=Command, epilog="\b\nExamples:\n  switchml-ctl status\n  switchml-ctl status --json | jq .state"
)
@click.pass_obj
def status(session: CommandSession) -> FabricFound | FabricRunning:
    """Show the fabric: processes, switches, agents, live jobs. Exit status 4 if no fabric runs, or not all of it."""
    from switchml.common.errors import NoFabricError
    from switchml.launch import fabric

    settings = session.settings()
    found = fabric.FabricStatus("none", None, ())
    if settings.controller is None:
        found = fabric.inspect(session.run_directory())
        try:
            fabric.controller_address(settings)
        except NoFabricError as error:
            click.echo(str(error), err=True)
            return FabricFound(found, settings.run_dir)
    with session.client() as client:
        return FabricRunning(
            found,
            settings.run_dir,
            client.address,
            client.info(),
            client.list_switches(),
            client.list_agents(),
            client.list_jobs(),
        )
