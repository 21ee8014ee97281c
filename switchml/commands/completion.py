"""Shell completion of switchml-ctl: its script, and the names that the controller knows."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from switchml.commands.command import Command
from switchml.commands.result import Result
from switchml.commands.session import CommandSession

if TYPE_CHECKING:
    from switchml.controller.client import ControllerClient
    from switchml.controller.proto import switchml_pb2 as pb

__all__ = ["CompletionScript", "completion", "complete_agent", "complete_job", "complete_switch"]

_SECONDS = 2.0  # the longest time that a user who has pressed the tab key waits


@dataclasses.dataclass(frozen=True)
class CompletionScript(Result):
    """The script with which a shell completes switchml-ctl's command lines."""

    shell: str
    script: str

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
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
    """Print the completion script of a shell. It also completes names of jobs, switches and agents."""
    complete = get_completion_class(shell)
    assert complete is not None
    script = complete(context.find_root().command, {}, "switchml-ctl", "_SWITCHML_CTL_COMPLETE").source()
    return CompletionScript(shell, script)


def complete_job(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of jobs with this prefix, live ones first."""
    every = context.command.name in _OF_ENDED_JOBS
    return _named(context, incomplete, lambda client: map(_job_item, client.list_jobs(include_ended=every)[::-1]))


def complete_switch(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of switches with this prefix."""
    return _named(
        context,
        incomplete,
        lambda client: (CompletionItem(switch.name, help=switch.target) for switch in client.list_switches()),
    )


def complete_agent(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of agents with this prefix."""
    return _named(
        context,
        incomplete,
        lambda client: (CompletionItem(agent.name, help=agent.registration.host) for agent in client.list_agents()),
    )


_OF_ENDED_JOBS = ("show", "status", "logs", "wait", "watch", "events")


def _job_item(job: pb.Job) -> CompletionItem:
    from switchml.controller.proto import switchml_pb2 as pb
    from switchml.controller.proto.words import enum_word

    return CompletionItem(job.name, help=enum_word(pb.JobState, job.state))


def _named(
    context: click.Context, incomplete: str, ask: Callable[[ControllerClient], Iterable[CompletionItem]]
) -> list[CompletionItem]:
    """Return the controller's answer if it arrives in time, else an empty list."""
    from switchml.common.errors import OperationError
    from switchml.controller.errors import ControllerError

    options = context.find_root().params  # of the command line so far; its group has not been invoked
    given: dict[str, Any] = {
        name: options.get(name) for name in ("controller", "run_dir", "config_file", "tls", "insecure")
    }
    silent = CommandSession(**given).client(_SECONDS, notice=lambda _text: None)
    with contextlib.suppress(ControllerError, OperationError), silent as client:
        return list({item.value: item for item in ask(client) if item.value.startswith(incomplete)}.values())
    return []
