"""Completion of switchml-ctl in shells: its script, and the names that the controller knows."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from switchml.commands.command import Command
from switchml.commands.result import Result
from switchml.commands.session import Session

if TYPE_CHECKING:
    from switchml.controller.client import ControllerClient
    from switchml.controller.proto import switchml_pb2 as pb

__all__ = ["CompletionScript", "completion", "complete_agent", "complete_job", "complete_switch"]

_SECONDS = 2.0  # that somebody who has pressed the tab key waits at most


@dataclasses.dataclass(frozen=True)
class CompletionScript(Result):
    """What a shell evaluates to complete our command lines."""

    shell: str
    script: str

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return {"shell": self.shell, "script": self.script}


@click.command(
    "completion",
    cls=Command,
    epilog="""\b
Examples:
  eval "$(switchml-ctl completion bash)"
  switchml-ctl completion zsh > ~/.zfunc/_switchml-ctl
  switchml-ctl completion fish > ~/.config/fish/completions/switchml-ctl.fish""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> CompletionScript:
    """Print the completion script of a shell. It completes names of jobs, switches and agents as well."""
    complete = get_completion_class(shell)
    assert complete is not None
    script = complete(context.find_root().command, {}, "switchml-ctl", "_SWITCHML_CTL_COMPLETE").source()
    return CompletionScript(shell, script)


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
    from switchml.controller.proto import switchml_pb2 as pb
    from switchml.controller.proto.words import enum_word

    return CompletionItem(job.name, help=enum_word(pb.JobState, job.state))


def _named(
    context: click.Context, incomplete: str, ask: Callable[[ControllerClient], Iterable[CompletionItem]]
) -> list[CompletionItem]:
    """Return what the controller answers in time; nothing if it cannot be asked."""
    from switchml.common.errors import OperationError
    from switchml.controller.errors import ControllerError

    options = context.find_root().params  # of the command line so far; its group has not been run
    session = Session(*(options.get(name) for name in ("controller", "run_dir", "config_file", "tls", "insecure")))
    with contextlib.suppress(ControllerError, OperationError), session.client(_SECONDS) as client:
        return list({item.value: item for item in ask(client) if item.value.startswith(incomplete)}.values())
    return []
