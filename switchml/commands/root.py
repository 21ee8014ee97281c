"""switchml-ctl itself: its options, its commands by name, and the handling of errors and signals."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from switchml.commands.exit_status import ExitCode
from switchml.common.version import VERSION

if TYPE_CHECKING:
    from switchml.commands.rendering import Renderer
    from switchml.commands.result import Rendered, Result

__all__ = ["Deferred", "Root", "cli", "terminate"]

_COMMANDS: Final = {
    "advise": (
        "advise:advise",
        "Run a PyTorch training for some steps, and say whether SwitchML makes it faster, and which options do.",
    ),
    "agent": ("switch:agent_group", "Show agents."),
    "bench": ("bench:bench_group", "Measure all-reduces, compared with Gloo and Open MPI, and their parts."),
    "certs": (
        "certs:certs_group",
        "Create and list certificates for TLS, with your own authority (docs/operate/security.md).",
    ),
    "completion": ("completion:completion", "Print the completion script of a shell."),
    "doctor": (
        "doctor:examine",
        "Check this machine, the run directory and the controller, and say what to change.",
    ),
    "down": ("fabric:down", "Stop the jobs of this run directory's fabric and end its processes."),
    "events": (
        "events:show_events",
        "Show what happened to jobs, ranks, agents, switches and the controller, when, and who requested it.",
    ),
    "job": ("job:job_group", "Start, watch and stop jobs."),
    "monitoring": (
        "monitoring:monitoring_group",
        "Print files for Prometheus and Grafana: a configuration, alerts, a dashboard (docs/operate/monitoring.md).",
    ),
    "order": (
        "probe:order",
        "Print the hosts in the order in which ranks should be given to them, one in a line, as in a host file.",
    ),
    "probe": (
        "probe:probe",
        "Let the agents measure the paths between each two of them, and keep the matrix for `order`.",
    ),
    "status": ("fabric:status", "Show the fabric: processes, switches, agents, live jobs."),
    "switch": ("switch:switch_group", "Show switches, and let them drop packets on purpose."),
    "synthesize": (
        "synthesize:synthesize_schedule",
        "Find a schedule of a collective for a topology, also through a switch that sums (docs/guides/synthesis.md).",
    ),
    "top": ("top:show_top", "Show live jobs with rates, retransmissions and lagging ranks, until interrupted."),
    "topology": (
        "topology:topology_group",
        "Show topologies, which `up --switch` lays out in network namespaces.",
    ),
    "up": ("fabric:up", "Start switches, controller and agents as processes of this machine."),
    "version": (
        "versions:show_versions",
        "Show the version of this program, and those of the controller, the agents and the switches.",
    ),
}
"""By name: the module of this package with the variable in it, and the first sentence of the help."""


class Deferred(click.Command):
    """A command known by its name and the first sentence of its help; the rest is in its module."""

    def __init__(self, name: str, place: str, sentence: str) -> None:
        super().__init__(name, help=sentence)
        self._place = place

    def load(self) -> click.Command:
        """Import the module and return the command."""
        module, _, variable = self._place.partition(":")
        command = getattr(import_module(f"switchml.commands.{module}"), variable)
        assert isinstance(command, click.Command)
        return command


class Root(click.Group):
    """Show the results of commands, and exceptions as a line on standard error and, with --json, a JSON object."""

    program = "switchml-ctl"
    arguments: Sequence[str] = ()
    """The arguments of the current command line."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the named command, loaded, and the remaining arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, Deferred) else command, rest

    def invoke(self, ctx: click.Context) -> int:
        """Run the command, show its result and return the exit status."""
        result: Result | Rendered | None = super().invoke(ctx)
        if result is None:
            return ExitCode.OK
        _renderer(ctx).show(result)
        return result.exit_status

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> NoReturn:
        """Run a command line and exit with its status."""
        self.arguments = arguments = list(sys.argv[1:] if args is None else args)
        extra |= {"standalone_mode": False, "prog_name": self.program}
        try:
            _require_text(_ours(arguments))
            status = super().main(arguments, **extra)
        except click.ClickException as error:
            error.show()
            status = self._failed("UsageError", error.format_message(), error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            status = self._failed("Interrupted", "interrupted", 128 + signal.SIGINT)
        except _Terminated:
            status = self._failed("Interrupted", "terminated", 128 + signal.SIGTERM)
        except BrokenPipeError:  # the reader has closed the pipe
            status = ExitCode.ERROR
        except Exception as error:
            from switchml.commands.failures import explain

            failure = explain(error)
            if failure is None:
                raise
            click.echo(f"Error: {failure.message}", err=True)
            status = self._failed(failure.error, failure.message, failure.exit_status, failure.figures)
        try:
            sys.stdout.flush()
        except OSError:  # reported above; what is left must not fail once more when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(int(status or 0))

    def _failed(self, error: str, message: str, status: int, figures: Mapping[str, str] | None = None) -> int:
        if "--json" in _ours(self.arguments):
            from switchml.commands.rendering import JsonRenderer

            content = {"error": error, "message": message, "figures": dict(figures or {}), "exit_code": int(status)}
            with contextlib.suppress(OSError):  # the message is on standard error as well
                JsonRenderer().write(content)
        return status


def _renderer(context: click.Context) -> Renderer:
    from switchml.commands.command import wants_json, wants_wide
    from switchml.commands.rendering import JsonRenderer, TextRenderer

    return JsonRenderer() if wants_json(context) else TextRenderer(wide=wants_wide(context))


def _ours(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments without those of a command that a job runs."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _require_text(arguments: Sequence[str]) -> None:
    """Refuse arguments that are not text in the encoding of the terminal, because no message could contain them."""
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):  # bytes that Python could not decode
            raise click.UsageError(f"an argument is not text: {argument!a}")


class _Terminated(BaseException):
    """SIGTERM as an exception, so that what was begun is undone."""


def terminate(_number: int, _frame: FrameType | None) -> None:
    """Signal handler for SIGTERM."""
    raise _Terminated


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="""\b
Exit status:
  0    done
  1    error on this machine, or the job that was watched or waited for failed
  2    wrong usage: a value of an option, variable or file is not allowed
  3    refused by the controller: no room, the name exists, no such job, ...
  4    no fabric here, or the controller cannot be reached
  124  `job wait --timeout`: the job has not ended in time
  126  the command of `job start` is not executable
  127  the command of `job start` does not exist
`job start -- COMMAND`, `job watch` and `job wait` pass on the status of the
rank that failed, 128+n for signal n.

\b
Examples:
  switchml-ctl up --agents 2
  switchml-ctl job start --workers 8 -- python train.py
  switchml-ctl job list --json
  switchml-ctl --controller 10.0.0.1:7600 --tls certs/admin switch show
  switchml-ctl down""",
)
@click.option(
    "--controller",
    metavar="ADDRESS",
    help="Controller's address, HOST:PORT or unix:/PATH; with a standby IPV4:PORT,IPV4:PORT."
    "  [SWITCHML_CONTROLLER; default: the run directory's fabric]",
)
@click.option(
    "--run-dir",
    metavar="DIRECTORY",
    help="Run directory: state, sockets, logs, job directories."
    "  [SWITCHML_RUN_DIR; default: $XDG_RUNTIME_DIR/switchml or /tmp/switchml-UID]",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(),
    metavar="FILE",
    help="Configuration file.  [SWITCHML_CONFIG; default: ~/.config/switchml/config.toml]",
)
@click.option(
    "--tls",
    type=click.Path(),
    metavar="DIRECTORY",
    help="Directory of certificates for the configured controller.  [SWITCHML_TLS]",
)
@click.option(
    "--insecure",
    is_flag=True,
    default=None,
    help="Connect to a controller beyond loopback without TLS.  [SWITCHML_INSECURE]",
)
@click.version_option(VERSION, prog_name="switchml-ctl")
@click.pass_context
def cli(
    context: click.Context,
    controller: str | None,
    run_dir: str | None,
    config_file: str | None,
    tls: str | None,
    insecure: bool | None,
) -> None:
    """All-reduce inside the network: fabrics, jobs, switches and agents of SwitchML.

    Options take precedence over environment variables, and those over the configuration file.
    """
    from switchml.commands.session import CommandSession
    from switchml.commands.standard_streams import note
    from switchml.common.variables import unknown_variables

    unknown = unknown_variables(os.environ)
    if unknown:
        note(unknown)
    assert isinstance(context.command, Root)
    context.obj = CommandSession(
        controller,
        run_dir,
        config_file,
        tls,
        insecure,
        arguments=context.command.arguments,
        rendered=lambda result: _renderer(context).rendered(result),
    )


for _name, (_place, _sentence) in _COMMANDS.items():
    cli.add_command(Deferred(_name, _place, _sentence))
