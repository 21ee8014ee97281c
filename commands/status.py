"""The command of switchml-ctl that says how a job stands."""

import click

from switchml.commands import output
from switchml.commands.completion import complete_job
from switchml.commands.session import Session, json_option
from switchml.ops import stragglers

__all__ = ["job_status"]


@click.command(
    "status",
    epilog="""\b
Examples:
  switchml-ctl job status digits
  switchml-ctl job status 7 --json | jq .straggler""",
)
@click.argument("job", metavar="JOB", shell_complete=complete_job)
@json_option
@click.pass_obj
def job_status(session: Session, job: str, as_json: bool) -> None:
    """Show how a job stands: its state, its losses and epochs, and the slowest rank and how far it is behind."""
    with session.client() as client:
        found = client.get_job(job)
    slowest = stragglers.straggler(found)
    if as_json:
        output.print_json(output.job_status_dict(found, slowest))
    else:
        output.show_job_status(found, slowest)
