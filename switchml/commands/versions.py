"""`switchml-ctl version`: the running versions of SwitchML."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from switchml.commands.command import Command
from switchml.commands.exit_status import ExitCode
from switchml.commands.result import Result
from switchml.commands.session import CommandSession
from switchml.commands.standard_streams import note

if TYPE_CHECKING:
    from switchml.ops.versions import Version

__all__ = ["Versions", "show_versions"]


@dataclasses.dataclass(frozen=True)
class Versions(Result):
    """The versions of this program and of the servers that it can reach."""

    versions: Sequence[Version]

    @property
    def exit_status(self) -> int:
        """1 if a version differs from this program's."""
        return ExitCode.ERROR if any(version.same is False for version in self.versions) else ExitCode.OK

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {"versions": [dataclasses.asdict(version) for version in self.versions]}


@click.command("version", cls=Command, epilog="\b\nExamples:\n  switchml-ctl version\n  switchml-ctl version --json")
@click.pass_obj
def show_versions(session: CommandSession) -> Versions:
    """Show the version of this program, and those of the controller, the agents and the switches.

    The exit status is 1 if a version differs, and also 0 without a fabric.
    """
    from switchml.common.errors import NoFabricError
    from switchml.controller.errors import ControllerUnavailable
    from switchml.ops import versions

    found = [versions.client_version()]
    try:
        with session.client() as client:
            found += versions.server_versions(client)
    except (ControllerUnavailable, NoFabricError) as error:
        note(str(error))
    return Versions(found)
