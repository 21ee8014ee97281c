"""`switchml-ctl events`: what has happened in the fabric."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from switchml.commands.command import Command, Parsed
from switchml.commands.completion import complete_job, complete_switch
from switchml.commands.result import Feed, Result, message_dict
from switchml.commands.session import CommandSession

if TYPE_CHECKING:
    from switchml.controller.proto import events_pb2 as pb

__all__ = ["Events", "FollowedEvents", "show_events"]

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


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


def _moment(text: str) -> float:
    """Return the time that a text names, in seconds since 1970."""
    ago = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if ago is not None:
        return time.time() - int(ago[1]) * _SECONDS[ago[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is neither a time, as in 2026-01-31T12:00, nor a duration, as in 10m") from None


@click.command(
    "events",
    cls=Command,
    epilog="""\b
Examples:
  switchml-ctl events
  switchml-ctl events --job digits --last 20
  switchml-ctl events --since 10m --level warning
  switchml-ctl events --since 2026-01-31T12:00 --kind job-failed --kind rank-lost --switch leaf1
  switchml-ctl events --follow --json | jq 'select(.level == "error")'""",
)
@click.option("--job", metavar="JOB", shell_complete=complete_job, help="Show only events of this job, by id or name.")
@click.option("--last", type=click.IntRange(0, 20_000), default=100, show_default=True, help="Number of past events.")
@click.option(
    "--since", type=Parsed("time", _moment), metavar="TIME",
    help="Show only events from this time on: 2026-01-31T12:00, or 90s, 10m, 2h or 3d ago.",
)  # fmt: skip
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Show only this kind, as listed; repeat for more.")
@click.option(
    "--level", type=click.Choice(["info", "warning", "error"]), help="Show only events of at least this level."
)
@click.option("--switch", default="", metavar="NAME", shell_complete=complete_switch, help="Show only this switch's.")
@click.option("-f", "--follow", is_flag=True, help="Continue with new events as they occur.")
@click.pass_obj
def show_events(
    session: CommandSession,
    job: str | None,
    last: int,
    since: float | None,
    kinds: tuple[str, ...],
    level: str | None,
    switch: str,
    follow: bool,
) -> Events:
    """Show what happened to jobs, ranks, agents, switches and the controller, when, and who requested it.

    The controller keeps the latest 20,000 events, also after the end of its fabric. With --json --follow each event is
    an object on a separate line.
    """
    chosen: dict[str, Any] = {"since": since or 0.0, "kinds": kinds, "level": level or "", "switch": switch}
    if follow:
        return FollowedEvents(session.client_until_shown().read_events(job, latest=last, follow=True, **chosen))
    records = session.records_until_shown()
    return Events(records.read_events(job, latest=last, **chosen) if last else iter(()))
