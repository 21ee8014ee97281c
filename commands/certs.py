"""The commands of switchml-ctl that make certificates."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from switchml.commands.command import Group
from switchml.commands.result import Result
from switchml.common.role import Role

if TYPE_CHECKING:
    from switchml.ops.certificates import Issued

__all__ = ["Certificates", "certs_group"]


@dataclasses.dataclass(frozen=True)
class Certificates(Result):
    """Certificates that were made."""

    issued: Sequence[Issued]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        content = [
            {"directory": str(one.directory), "role": one.role.value, "name": one.name, "tenant": one.tenant}
            | {"not_after": one.not_after.timestamp()}
            for one in self.issued
        ]
        return {"certificates": content}


_directory = click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
_days = click.option(
    "--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="How long they are valid."
)


@click.group("certs", cls=Group)
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
def init_authority(directory: Path, switches: tuple[str, ...], agents: tuple[str, ...], days: int) -> Certificates:
    """Make an authority in DIRECTORY, and certificates for a fabric.

    Each is in a directory of its own, to be given to --tls: controller, switch-NAME, agent-NAME, and admin, operator
    and viewer for people. Keys have mode 0600. Keep DIRECTORY/ca, with which anybody can make more, off the machines
    of the fabric.
    """
    from switchml.ops.certificates import init

    return Certificates(init(directory, switches, agents or (socket.gethostname(),), days))


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
def issue_certificate(directory: Path, role: str, name: str | None, tenant: str, days: int) -> Certificates:
    """Make one more certificate with the authority in DIRECTORY, or renew one."""
    from switchml.ops.certificates import issue

    return Certificates([issue(directory, Role(role), name or role, tenant, days)])
