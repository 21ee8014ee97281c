"""`python -m studies`: list the studies, or run one."""

import signal
from importlib import import_module
from pathlib import Path

import click

from studies import claims
from studies.all_studies import run_all
from switchml.benchmarks.plots import require_matplotlib
from switchml.commands.bench import bench_show
from switchml.commands.root import Root, terminate
from switchml.commands.session import CommandSession
from switchml.commands.standard_streams import note


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


@click.command("claims", epilog="\b\nExample:\n  python -m studies claims --plots docs/results/claims")
@click.option(
    "--plots",
    "pictures",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Draw the published points with those found here, as SVG. Needs matplotlib.",
)
def show_claims(pictures: Path | None) -> None:
    """Show the claims of papers and the findings of the studies, as stored in the claims.toml of each study."""
    if pictures is not None:
        require_matplotlib()
        for file in claims.draw(pictures):
            note(f"wrote {file}")
    click.echo(claims.summary(claims.load(), Path.cwd()))


for _file in sorted(Path(__file__).parent.glob("*/study.py")):
    studies.add_command(import_module(f"studies.{_file.parent.name}.study").command)
studies.add_command(run_all)
studies.add_command(show_claims)
studies.add_command(bench_show)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, terminate)
    studies.main()
