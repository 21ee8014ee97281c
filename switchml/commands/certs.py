"""The commands of switchml-ctl about certificates."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from switchml.commands.command import CommandGroup
from switchml.commands.result import Result
from switchml.common.role import Role

if TYPE_CHECKING:
    from switchml.ops.certificates import Issued

__all__ = ["CertificateList", "certs_group"]


@dataclasses.dataclass(frozen=True)
class CertificateList(Result):
    """Certificates that were created, or found."""

    issued: Sequence[Issued]

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        content = [
            {"directory": str(one.directory), "role": one.role.value if one.role else "authority", "name": one.name}
            | {"tenant": one.tenant, "not_after": one.not_after.timestamp()}
            for one in self.issued
        ]
        return {"certificates": content}


_directory = click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
_days = click.option(
    "--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="Validity of the certificates."
)


@click.group("certs", cls=CommandGroup)
def certs_group() -> None:
    """Create and list certificates for TLS, with your own authority (docs/operate/security.md)."""


@certs_group.command(
    "init",
    epilog="\b\nExample:\n  switchml-ctl certs init /etc/switchml/certs --switch s1 --agent host-1 --agent host-2",
)
@_directory
@click.option(
    "--switch",
    "switches",
    multiple=True,
    metavar="NAME",
    help="Switch's name in the controller's configuration; repeat for more.",
)
@click.option(
    "--agent", "agents", multiple=True, metavar="NAME", help="Agent's --name; repeat for more.  [default: this host's]"
)
@_days
def init_authority(directory: Path, switches: tuple[str, ...], agents: tuple[str, ...], days: int) -> CertificateList:
    """Create an authority in DIRECTORY, and certificates for a fabric.

    Each is in a separate directory for --tls: controller, switch-NAME, agent-NAME, and admin, operator and viewer for
    people. Keys have mode 0600. Keep DIRECTORY/ca, which can issue further certificates, off the machines of the
    fabric.
    """
    from switchml.ops.certificates import init

    return CertificateList(init(directory, switches, agents or (socket.gethostname(),), days))


@certs_group.command(
    "issue",
    epilog="""\b
Examples:
  switchml-ctl certs issue certs --role agent --name host-3
  switchml-ctl certs issue certs --role operator --name alice --tenant vision --days 30""",
)
@_directory
@click.option("--role", type=click.Choice([role.value for role in Role]), required=True)
@click.option("--name", metavar="NAME", help="Name of the person, agent or switch.  [default: the role]")
@click.option(
    "--tenant",
    default="",
    metavar="TENANT",
    help="Tenant whose quotas apply to its jobs, or whose ranks an agent accepts.",
)
@_days
def issue_certificate(directory: Path, role: str, name: str | None, tenant: str, days: int) -> CertificateList:
    """Issue another certificate with the authority in DIRECTORY, or renew one."""
    from switchml.ops.certificates import issue

    return CertificateList([issue(directory, Role(role), name or role, tenant, days)])


@certs_group.command(
    "list", epilog="\b\nExamples:\n  switchml-ctl certs list certs\n  switchml-ctl certs list certs --json"
)
@_directory
def list_certificates(directory: Path) -> CertificateList:
    """List the certificates in DIRECTORY, also the authority's, those that expire first at the top."""
    from switchml.ops.certificates import listed

    return CertificateList(listed(directory))
