"""The commands of switchml-ctl about switches and agents."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from switchml.commands.command import CommandGroup, Parsed
from switchml.commands.completion import complete_agent, complete_switch
from switchml.commands.result import Result, message_dict
from switchml.commands.session import CommandSession
from switchml.commands.standard_streams import note
from switchml.common.job_numbers import HIGHEST_PORT
from switchml.common.shares import share

if TYPE_CHECKING:
    from switchml.controller.proto import switchml_pb2 as pb
    from switchml.ops.switch_ports import PortActivity

__all__ = [
    "AgentFound",
    "AgentList",
    "Losses",
    "PortList",
    "SwitchEntries",
    "SwitchFound",
    "SwitchList",
    "agent_group",
    "switch_group",
]


@dataclasses.dataclass(frozen=True)
class SwitchList(Result):
    """The switches that the controller drives."""

    switches: Sequence[pb.Switch]

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {"switches": [message_dict(switch) for switch in self.switches]}


@dataclasses.dataclass(frozen=True)
class SwitchFound(Result):
    """One switch."""

    switch: pb.Switch

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return message_dict(self.switch)


@dataclasses.dataclass(frozen=True)
class SwitchEntries(Result):
    """The tables, groups and counters of a switch."""

    detail: pb.SwitchDetail

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return message_dict(self.detail)


@dataclasses.dataclass(frozen=True)
class Losses(Result):
    """The ports of a switch that drop packets on purpose."""

    losses: Sequence[pb.PortLoss]

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {"losses": [message_dict(loss) for loss in self.losses]}


@dataclasses.dataclass(frozen=True)
class PortList(Result):
    """The ports of a switch, with their traffic."""

    ports: Sequence[PortActivity]

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {"ports": [port.as_dict() for port in self.ports]}


@dataclasses.dataclass(frozen=True)
class AgentList(Result):
    """The agents that have registered with the controller."""

    agents: Sequence[pb.Agent]

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {"agents": [message_dict(agent) for agent in self.agents]}


@dataclasses.dataclass(frozen=True)
class AgentFound(Result):
    """One agent, and the live jobs, which may have ranks there."""

    agent: pb.Agent
    jobs: Sequence[pb.Job]

    def carried(self) -> Iterator[tuple[pb.Job, pb.Rank]]:
        """Yield the ranks of this agent, with their jobs."""
        name = self.agent.name
        return ((job, rank) for job in self.jobs for rank in job.ranks if rank.agent == name)

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        ranks = [{"job": job.name, "job_id": job.id, **message_dict(rank)} for job, rank in self.carried()]
        return {**message_dict(self.agent), "ranks": ranks}


_ALL_PORTS = "all"
_switch_argument = click.argument(
    "name", required=False, default="", metavar="[SWITCH]", shell_complete=complete_switch
)
_SHARE = Parsed("share", share)


@click.group("switch", cls=CommandGroup)
def switch_group() -> None:
    """Show switches, and let them drop packets on purpose."""


@switch_group.command("list", epilog="\b\nExample:\n  switchml-ctl switch list")
@click.pass_obj
def list_switches(session: CommandSession) -> SwitchList:
    """List the switches that the controller drives."""
    with session.client() as client:
        return SwitchList(client.list_switches())


@switch_group.command(
    "show", epilog="\b\nExamples:\n  switchml-ctl switch show\n  switchml-ctl switch show leaf1 --json"
)
@_switch_argument
@click.pass_obj
def show_switch(session: CommandSession, name: str) -> SwitchEntries:
    """Show tables, multicast groups and counters of a switch, read at this moment. Default: the only switch."""
    with session.client() as client:
        return SwitchEntries(client.show_switch(name))


def _ports(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> list[int]:
    """Return the named ports; an empty list means all."""
    if _ALL_PORTS in values:
        return []
    if not all(value.isdecimal() and 1 <= int(value) <= HIGHEST_PORT for value in values):
        raise click.BadParameter(f"a port must be a number from 1 to {HIGHEST_PORT}, or {_ALL_PORTS}.")
    return [int(value) for value in values]


@switch_group.command(
    "loss",
    epilog="""\b
Examples:
  switchml-ctl switch loss --ingress 0.02 --egress 0.02
  switchml-ctl switch loss s1 --port 1 --port 3 --egress 5%
  switchml-ctl switch loss --off""",
)
@_switch_argument
@click.option(
    "--port",
    "ports",
    multiple=True,
    callback=_ports,
    metavar="P|all",
    help="Port number; repeat for more.  [default: all]",
)
@click.option("--ingress", type=_SHARE, metavar="SHARE", help="Fraction of received packets to drop: 0.02 or 2%.")
@click.option("--egress", type=_SHARE, metavar="SHARE", help="Fraction of sent packets to drop, for each copy.")
@click.option("--off", is_flag=True, help="Drop no more packets.")
@click.pass_obj
def set_loss(
    session: CommandSession, name: str, ports: list[int], ingress: float | None, egress: float | None, off: bool
) -> Losses:
    """Let a switch drop packets on purpose, at random, and show which ports do.

    A direction that is not given keeps its setting. `all` ports are those that live agents are attached to and those
    that drop packets now. The setting holds until the switch restarts.
    """
    if off == (ingress is not None or egress is not None):
        raise click.UsageError("give --ingress, --egress or both, or --off")
    if off:
        ingress = egress = 0.0
    with session.client() as client:
        return Losses(client.set_loss(name, ports, ingress, egress))


@switch_group.command(
    "ports",
    epilog="\b\nExamples:\n  switchml-ctl switch ports\n  switchml-ctl switch ports leaf1 --interval 5 --json",
)
@_switch_argument
@click.option(
    "--interval", type=click.FloatRange(0.5, 60), default=2.0, show_default=True, metavar="S",
    help="Seconds over which rates are measured.",
)  # fmt: skip
@click.pass_obj
def show_ports(session: CommandSession, name: str, interval: float) -> PortList:
    """Show the ports of a switch: the agents attached to them, packets per second, and intentional losses.

    The switch counts contributions as it admits them; the agents count results.
    """
    from switchml.ops.switch_ports import look_twice

    with session.client() as client:
        return PortList(look_twice(client, name, interval))


@switch_group.command(
    "drain", epilog="\b\nExamples:\n  switchml-ctl switch drain leaf1\n  switchml-ctl switch drain leaf1 --wait"
)
@_switch_argument
@click.option("--wait", is_flag=True, help="Return when no job is left on it.")
@click.pass_obj
def drain_switch(session: CommandSession, name: str, wait: bool) -> SwitchFound:
    """Place no new jobs on a switch, until `undrain`. Jobs that run there continue until they end."""
    with session.client() as client:
        found = client.drain_switch(name, True)
        if wait:
            note(f"{found.jobs} jobs are left on switch {found.name}")
            found = client.wait_without_jobs(found.name)
    return SwitchFound(found)


@switch_group.command("undrain", epilog="\b\nExample:\n  switchml-ctl switch undrain leaf1")
@_switch_argument
@click.pass_obj
def undrain_switch(session: CommandSession, name: str) -> SwitchFound:
    """Place new jobs on a switch again."""
    with session.client() as client:
        return SwitchFound(client.drain_switch(name, False))


@click.group("agent", cls=CommandGroup)
def agent_group() -> None:
    """Show agents."""


@agent_group.command("list", epilog="\b\nExample:\n  switchml-ctl agent list")
@click.pass_obj
def list_agents(session: CommandSession) -> AgentList:
    """List the agents that have registered with the controller."""
    with session.client() as client:
        return AgentList(client.list_agents())


@agent_group.command(
    "show", epilog="\b\nExamples:\n  switchml-ctl agent show host-1\n  switchml-ctl agent show host-1 --json"
)
@click.argument("name", metavar="AGENT", shell_complete=complete_agent)
@click.pass_obj
def show_agent(session: CommandSession, name: str) -> AgentFound:
    """Show one agent and its ranks of live jobs."""
    with session.client() as client:
        return AgentFound(client.get_agent(name), client.list_jobs())
