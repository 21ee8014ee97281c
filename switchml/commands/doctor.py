"""`switchml-ctl doctor`: what this machine lacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from switchml.commands.command import Command
from switchml.commands.exit_status import ExitCode
from switchml.commands.result import Result
from switchml.commands.session import CommandSession

if TYPE_CHECKING:
    from switchml.ops.doctor import Check

__all__ = ["Diagnosis", "examine"]


@dataclasses.dataclass(frozen=True)
class Diagnosis(Result):
    """The results of all checks; the exit status tells whether anything must be changed."""

    checks: Sequence[Check]
    healthy: bool

    @property
    def exit_status(self) -> int:
        """1 if any check failed, else 0."""
        return ExitCode.OK if self.healthy else ExitCode.ERROR

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {"healthy": self.healthy, "checks": [dataclasses.asdict(check) for check in self.checks]}


@click.command("doctor", cls=Command, epilog="\b\nExample:\n  switchml-ctl doctor")
@click.pass_obj
def examine(session: CommandSession) -> Diagnosis:
    """Check this machine, the run directory and the controller, and say what to change."""
    from switchml.ops import doctor

    checks = doctor.examine(session.settings())
    return Diagnosis(checks, all(check.status != doctor.FAILURE for check in checks))
