"""Completion of switchml-ctl in shells: its script, and the names that the controller knows."""

import contextlib
from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem, get_completion_class

from switchml.commands import output
from switchml.commands.session import Session, json_option
from switchml.common.errors import OperationError
from switchml.controller.client import ControllerClient
from switchml.controller.errors import ControllerError
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word

__all__ = ["completion", "complete_agent", "complete_job", "complete_switch"]

_SECONDS = 2.0  # that somebody who has pressed the tab key waits at most


@click.command(
    epilog="""\b
Examples:
  eval "$(switchml-ctl completion bash)"
  switchml-ctl completion zsh > ~/.zfunc/_switchml-ctl
  switchml-ctl completion fish > ~/.config/fish/completions/switchml-ctl.fish"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@click.pass_context
def completion(context: click.Context, shell: str, as_json: bool) -> None:
    """Print the completion script of a shell. It completes names of jobs, switches and agents as well."""
    complete = get_completion_class(shell)
    assert complete is not None
    script = complete(context.find_root().command, {}, "switchml-ctl", "_SWITCHML_CTL_COMPLETE").source()
    if as_json:
        output.print_json({"shell": shell, "script": script})
    else:
        click.echo(script)


def complete_job(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of jobs, live ones first, that begin so."""
    every = context.command.name in _OF_ENDED_JOBS
    return _named(context, incomplete, lambda client: map(_job_item, client.list_jobs(include_ended=every)[::-1]))


def complete_switch(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of switches that begin so."""
    return _named(
        context,
        incomplete,
        lambda client: (CompletionItem(switch.name, help=switch.target) for switch in client.list_switches()),
    )


def complete_agent(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of agents that begin so."""
    return _named(
        context,
        incomplete,
        lambda client: (
            CompletionItem(agent.registration.name, help=agent.registration.host) for agent in client.list_agents()
        ),
    )


_OF_ENDED_JOBS = ("show", "status", "logs", "wait", "watch", "events")


def _job_item(job: pb.Job) -> CompletionItem:
    return CompletionItem(job.name, help=enum_word(pb.JobState, job.state))


def _named(
    context: click.Context, incomplete: str, ask: Callable[[ControllerClient], Iterable[CompletionItem]]
) -> list[CompletionItem]:
    """Return what the controller answers in time; nothing if it cannot be asked."""
    options = context.find_root().params  # of the command line so far; its group has not been run
    session = Session(*(options.get(name) for name in ("controller", "run_dir", "config_file", "tls", "insecure")))
    with contextlib.suppress(ControllerError, OperationError), session.client(_SECONDS) as client:
        return list({item.value: item for item in ask(client) if item.value.startswith(incomplete)}.values())
    return []
