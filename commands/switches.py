"""The commands of switchml-ctl about switches and agents."""

import click

from switchml.commands import output
from switchml.commands.completion import complete_agent, complete_switch
from switchml.commands.session import Parsed, Session, json_option
from switchml.common.port_numbers import HIGHEST_PORT
from switchml.common.shares import share
from switchml.ops import switch_ports

__all__ = ["agent_group", "switch_group"]

_ALL_PORTS = "all"
_switch_argument = click.argument(
    "name", required=False, default="", metavar="[SWITCH]", shell_complete=complete_switch
)
_SHARE = Parsed("share", share)


@click.group("switch")
def switch_group() -> None:
    """Look at switches, and let them lose packets."""


@switch_group.command("list", epilog="\b\nExample:\n  switchml-ctl switch list")
@json_option
@click.pass_obj
def list_switches(session: Session, as_json: bool) -> None:
    """List the switches that the controller drives."""
    with session.client() as client:
        found = client.list_switches()
    if as_json:
        output.print_json({"switches": [output.as_dict(switch) for switch in found]})
    else:
        output.show_switches(found)


@switch_group.command(
    "show", epilog="\b\nExamples:\n  switchml-ctl switch show\n  switchml-ctl switch show leaf1 --json"
)
@_switch_argument
@json_option
@click.pass_obj
def show_switch(session: Session, name: str, as_json: bool) -> None:
    """Show tables, multicast groups and counters of a switch, read from it now. Without a name: the only one."""
    with session.client() as client:
        found = client.show_switch(name)
    if as_json:
        output.print_json(output.as_dict(found))
    else:
        output.show_switch(found)


def _ports(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> list[int]:
    """The ports that are named; none stands for all."""
    if _ALL_PORTS in values:
        return []
    if not all(value.isdecimal() and 1 <= int(value) <= HIGHEST_PORT for value in values):
        raise click.BadParameter(f"a port is a number from 1 to {HIGHEST_PORT}, or {_ALL_PORTS}.")
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
    "--port", "ports", multiple=True, callback=_ports, metavar="P|all", help="Repeat for more.  [default: all]"
)
@click.option("--ingress", type=_SHARE, metavar="SHARE", help="Share of the packets that come in: 0.02 or 2%.")
@click.option("--egress", type=_SHARE, metavar="SHARE", help="Share of those that leave, each copy.")
@click.option("--off", is_flag=True, help="Lose none any more.")
@json_option
@click.pass_obj
def set_loss(
    session: Session, name: str, ports: list[int], ingress: float | None, egress: float | None, off: bool, as_json: bool
) -> None:
    """Let a switch lose packets on purpose, at random, and show which ports do.

    A direction that is not given stays as it is. `all` ports are those to which live agents are attached and those
    that lose packets now. It holds until the switch is restarted.
    """
    if off == (ingress is not None or egress is not None):
        raise click.UsageError("give --ingress, --egress or both, or --off")
    if off:
        ingress = egress = 0.0
    with session.client() as client:
        found = client.set_loss(name, ports, ingress, egress)
    if as_json:
        output.print_json({"losses": [output.as_dict(loss) for loss in found]})
    else:
        output.show_losses(found)


@switch_group.command(
    "ports",
    epilog="\b\nExamples:\n  switchml-ctl switch ports\n  switchml-ctl switch ports leaf1 --interval 5 --json",
)
@_switch_argument
@click.option(
    "--interval", type=click.FloatRange(0.5, 60), default=2.0, show_default=True, metavar="S",
    help="Seconds that rates are taken over.",
)  # fmt: skip
@json_option
@click.pass_obj
def show_ports(session: Session, name: str, interval: float, as_json: bool) -> None:
    """Show the ports of a switch: the agents attached there, packets per second, and losses on purpose.

    Contributions are counted by the switch as it admits them, results by the agents.
    """
    with session.client() as client:
        found = switch_ports.look_twice(client, name, interval)
    if as_json:
        output.print_json({"ports": [port.as_dict() for port in found]})
    else:
        output.show_ports(found)


@switch_group.command(
    "drain", epilog="\b\nExamples:\n  switchml-ctl switch drain leaf1\n  switchml-ctl switch drain leaf1 --wait"
)
@_switch_argument
@click.option("--wait", is_flag=True, help="Return when no job is left on it.")
@json_option
@click.pass_obj
def drain_switch(session: Session, name: str, wait: bool, as_json: bool) -> None:
    """Place no new jobs on a switch. Jobs that run there go on until they end; it holds until `undrain`."""
    _drain(session, name, True, wait, as_json)


@switch_group.command("undrain", epilog="\b\nExample:\n  switchml-ctl switch undrain leaf1")
@_switch_argument
@json_option
@click.pass_obj
def undrain_switch(session: Session, name: str, as_json: bool) -> None:
    """Place new jobs on a switch again."""
    _drain(session, name, False, False, as_json)


def _drain(session: Session, name: str, drained: bool, wait: bool, as_json: bool) -> None:
    with session.client() as client:
        found = client.drain_switch(name, drained)
        if wait:
            output.note(f"{found.jobs} jobs are left on switch {found.name}")
            found = client.wait_without_jobs(found.name)
    if as_json:
        output.print_json(output.as_dict(found))
    else:
        output.show_switches([found])


@click.group("agent")
def agent_group() -> None:
    """Look at agents."""


@agent_group.command("list", epilog="\b\nExample:\n  switchml-ctl agent list")
@json_option
@click.pass_obj
def list_agents(session: Session, as_json: bool) -> None:
    """List the agents that have registered with the controller."""
    with session.client() as client:
        found = client.list_agents()
    if as_json:
        output.print_json({"agents": [output.as_dict(agent) for agent in found]})
    else:
        output.show_agents(found)


@agent_group.command(
    "show", epilog="\b\nExamples:\n  switchml-ctl agent show host-1\n  switchml-ctl agent show host-1 --json"
)
@click.argument("name", metavar="AGENT", shell_complete=complete_agent)
@json_option
@click.pass_obj
def show_agent(session: Session, name: str, as_json: bool) -> None:
    """Show one agent and the ranks of live jobs that it carries."""
    with session.client() as client:
        found, carried = client.get_agent(name), client.list_jobs()
    if as_json:
        output.print_json(output.agent_dict(found, carried))
    else:
        output.show_agent(found, carried)
