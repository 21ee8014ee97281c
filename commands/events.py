"""`switchml-ctl events`: what has happened in the fabric."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from switchml.commands.command import Command
from switchml.commands.completion import complete_job
from switchml.commands.result import Feed, Result, message_dict
from switchml.commands.session import Session

if TYPE_CHECKING:
    from switchml.controller.proto import events_pb2 as pb

__all__ = ["Events", "FollowedEvents", "show_events"]


@dataclasses.dataclass(frozen=True)
class Events(Result):
    """Past events, oldest first."""

    events: Iterator[pb.Event]

    def as_dict(self) -> dict[str, Any]:
        """Return all of them as a dictionary for JSON."""
        return {"events": [message_dict(event) for event in self.events]}


@dataclasses.dataclass(frozen=True)
class FollowedEvents(Events, Feed):
    """Past events, followed by new ones as they occur."""

    def parts(self) -> Iterator[dict[str, Any]]:
        """Yield each as a dictionary for JSON."""
        return (message_dict(event) for event in self.events)


@click.command(
    "events",
    cls=Command,
    epilog="""\b
Examples:
  switchml-ctl events
  switchml-ctl events --job digits --last 20
  switchml-ctl events --follow --json | jq 'select(.level == "error")'""",
)
@click.option("--job", metavar="JOB", shell_complete=complete_job, help="Show only events of this job, by id or name.")
@click.option("--last", type=click.IntRange(0, 20_000), default=100, show_default=True, help="Number of past events.")
@click.option("-f", "--follow", is_flag=True, help="Continue with new events as they occur.")
@click.pass_obj
def show_events(session: Session, job: str | None, last: int, follow: bool) -> Events:
    """Show what happened to jobs, ranks, agents, switches and the controller, when, and who requested it.

    The controller keeps the latest 20,000 events, also after the end of its fabric. With --json --follow each event is
    an object on a separate line.
    """
    if follow:
        return FollowedEvents(session.client_until_shown().read_events(job, latest=last, follow=True))
    records = session.records_until_shown()
    return Events(records.read_events(job, latest=last) if last else iter(()))
