"""`python -m studies`: list the studies, or run one."""

import signal
from importlib import import_module
from pathlib import Path

import click

from switchml.commands.bench import bench_show
from switchml.commands.root import Root, terminate
from switchml.commands.session import CommandSession


class _Studies(Root):
    """The group of all studies."""

    program = "python -m studies"


@click.group(
    cls=_Studies,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.pass_context
def studies(context: click.Context) -> None:
    """Repeat the measurements of the papers around SwitchML, and explore its parts.

    studies/README.md compares the results with the published ones. Settings are those of switchml-ctl, such as the
    variable SWITCHML_RUN_DIR.
    """
    context.obj = CommandSession(None, None, None)
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _file in sorted(Path(__file__).parent.glob("*/study.py")):
    studies.add_command(import_module(f"studies.{_file.parent.name}.study").command)
studies.add_command(bench_show)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, terminate)
    studies.main()
