"""The commands of switchml-ctl that make certificates."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from switchml.commands import output
from switchml.commands.session import json_option
from switchml.common.tls import Role

if TYPE_CHECKING:
    from switchml.ops.certificates import Issued

__all__ = ["certs_group"]

_directory = click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
_days = click.option(
    "--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="How long they are valid."
)


@click.group("certs")
def certs_group() -> None:
    """Make certificates for TLS, with an authority of your own (docs/security.md)."""


@certs_group.command(
    "init",
    epilog="\b\nExample:\n  switchml-ctl certs init /etc/switchml/certs --switch s1 --agent host-1 --agent host-2",
)
@_directory
@click.option("--switch", "switches", multiple=True, metavar="NAME", help="As the controller calls it; repeat.")
@click.option("--agent", "agents", multiple=True, metavar="NAME", help="Its --name; repeat.  [default: this host's]")
@_days
@json_option
def init_authority(
    directory: Path, switches: tuple[str, ...], agents: tuple[str, ...], days: int, as_json: bool
) -> None:
    """Make an authority in DIRECTORY, and certificates for a fabric.

    Each is in a directory of its own, to be given to --tls: controller, switch-NAME, agent-NAME, and admin, operator
    and viewer for people. Keys have mode 0600. Keep DIRECTORY/ca, with which anybody can make more, off the machines
    of the fabric.
    """
    # What makes certificates takes a tenth of a second to import.
    from switchml.ops.certificates import init

    _show(init(directory, switches, agents or (socket.gethostname(),), days), as_json)


@certs_group.command(
    "issue",
    epilog="""\b
Examples:
  switchml-ctl certs issue certs --role agent --name host-3
  switchml-ctl certs issue certs --role operator --name alice --tenant vision --days 30""",
)
@_directory
@click.option("--role", type=click.Choice([role.value for role in Role]), required=True)
@click.option("--name", metavar="NAME", help="Of the person, agent or switch.  [default: the role]")
@click.option(
    "--tenant", default="", metavar="TENANT", help="Whose quotas hold for its jobs; whose ranks an agent carries."
)
@_days
@json_option
def issue_certificate(directory: Path, role: str, name: str | None, tenant: str, days: int, as_json: bool) -> None:
    """Make one more certificate with the authority in DIRECTORY, or renew one."""
    from switchml.ops.certificates import issue

    _show([issue(directory, Role(role), name or role, tenant, days)], as_json)


def _show(issued: list[Issued], as_json: bool) -> None:
    if as_json:
        content = [
            {"directory": str(one.directory), "role": one.role.value, "name": one.name, "tenant": one.tenant}
            | {"not_after": one.not_after.timestamp()}
            for one in issued
        ]
        output.print_json({"certificates": content})
        return
    for one in issued:
        tenant = f" of {one.tenant}" if one.tenant else ""
        click.echo(f"{one.directory}: {one.role.value} {one.name}{tenant}, until {one.not_after:%Y-%m-%d %H:%M} UTC")
