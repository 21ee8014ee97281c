"""`switchml-ctl top`: the current activity of the fabric."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from switchml.commands.command import Command
from switchml.commands.result import Result
from switchml.commands.session import CommandSession

if TYPE_CHECKING:
    from switchml.ops.top import Snapshot

__all__ = ["Activity", "show_top"]


@dataclasses.dataclass(frozen=True)
class Activity(Result):
    """Snapshots of the fabric's activity as they are taken; JSON has the first."""

    snapshots: Iterator[Snapshot]

    def as_dict(self) -> dict[str, Any]:
        """Return the next snapshot as a dictionary for JSON."""
        return next(self.snapshots).as_dict()


@click.command(
    "top",
    cls=Command,
    epilog="""\b
Examples:
  switchml-ctl top
  switchml-ctl top --interval 5
  switchml-ctl top --once --json | jq '.jobs[].bytes_per_second'""",
)
@click.option(
    "--interval", type=click.FloatRange(0.5, 60), default=2.0, show_default=True, metavar="S",
    help="Seconds between two readings; rates are measured between them.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Show one snapshot, after one interval.")
@click.pass_obj
def show_top(session: CommandSession, interval: float, once: bool) -> Activity:
    """Show live jobs with rates, retransmissions and lagging ranks, until interrupted. --json shows one snapshot.

    A job's rate is that of its slowest rank, in bytes of tensors. Agents report their counters once a second.
    """
    from switchml.ops import top

    client = session.client_until_shown()
    return Activity(itertools.islice(top.watch(client, interval), 1 if once else None))
