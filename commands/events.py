"""`switchml-ctl events`: what happened in the fabric."""

import json
import time

import click
from rich.text import Text

from switchml.commands import output
from switchml.commands.completion import complete_job
from switchml.commands.session import Session, json_option
from switchml.controller.proto import events_pb2 as pb

__all__ = ["show_events"]

_STYLES = {"warning": "yellow", "error": "red"}


@click.command(
    "events",
    epilog="""\b
Examples:
  switchml-ctl events
  switchml-ctl events --job digits --last 20
  switchml-ctl events --follow --json | jq 'select(.level == "error")'""",
)
@click.option("--job", metavar="JOB", shell_complete=complete_job, help="Only those of this job, by id or name.")
@click.option("--last", type=click.IntRange(0, 20_000), default=100, show_default=True, help="How many of the past.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new ones as they come.")
@json_option
@click.pass_obj
def show_events(session: Session, job: str | None, last: int, follow: bool, as_json: bool) -> None:
    """Show what happened: to jobs, ranks, agents, switches and the controller, when, and who asked for it.

    The controller keeps the latest 20,000 events. With --json --follow each event is an object on a line of its own.
    """
    found = []
    any_shown = False
    with session.client() as client:
        if last or follow:
            for event in client.read_events(job, latest=last, follow=follow):
                any_shown = True
                if not as_json:
                    output.console().print(_line(event), soft_wrap=True)
                elif follow:
                    click.echo(json.dumps(output.as_dict(event)))
                else:
                    found.append(output.as_dict(event))
    if as_json and not follow:
        output.print_json({"events": found})
    elif not any_shown:
        click.echo("no events")


def _line(event: pb.Event) -> Text:
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.time))
    line = Text.assemble((f"{moment}.{int(event.time % 1 * 1000):03d}  ", "dim"))
    line.append(f"{event.kind:<20}", _STYLES.get(event.level, ""))
    about = []
    if event.job_key:
        about.append(f"job {event.job_name} (id {event.job}, epoch {event.epoch})")
    if event.HasField("rank"):
        about.append(f"rank {event.rank}")
    about += [f"{what} {name}" for what, name in (("agent", event.agent), ("switch", event.switch)) if name]
    line.append(" " + ", ".join(about))
    if event.detail:
        line.append(f": {event.detail}")
    if event.actor:
        line.append(f"  [{event.actor}]", "dim")
    return line
