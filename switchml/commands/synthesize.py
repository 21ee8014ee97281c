"""`switchml-ctl synthesize`: schedules of collectives for a topology."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from switchml.commands.command import Command
from switchml.commands.result import Result
from switchml.commands.standard_streams import note
from switchml.common.schedules import COLLECTIVES

if TYPE_CHECKING:
    from switchml.topologies.synthesis.synthesize import Synthesis

__all__ = ["Synthesized", "synthesize_schedule"]


F = TypeVar("F", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True)
class Synthesized(Result):
    """The schedules found."""

    synthesis: Synthesis

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON: the shortest schedule, and figures of all."""
        return self.synthesis.as_dict()


def _file(name: str, metavar: str, text: str) -> Callable[[F], F]:
    return click.option(name, type=click.Path(path_type=Path, dir_okay=False), metavar=metavar, help=text)


@click.command(
    "synthesize",
    cls=Command,
    epilog="""\b
Examples:
  switchml-ctl synthesize --topology ndv2-1mb --sketch ndv2-x2
  switchml-ctl synthesize --topology ndv2-switchml-1mb --sketch ndv2-x4 --collective all-reduce
  switchml-ctl synthesize --topology ndv2-1mb --sketch ndv2-x1 --output schedule.json --picture schedule.svg""",
)
@click.option(
    "--topology", required=True, metavar="NAME|FILE.json", help="The topology, in TACCL's form, or a packaged one."
)
@click.option(
    "--sketch", required=True, metavar="NAME|FILE.json", help="The sketch, in TACCL's form, or a packaged one."
)
@click.option(
    "--collective", type=click.Choice(COLLECTIVES), default="all-gather", show_default=True, help="The collective."
)
@click.option(
    "--seconds", type=click.FloatRange(1, 86_400), default=120.0, show_default=True, metavar="S",
    help="The longest search for the routes of a half of the collective.",
)  # fmt: skip
@_file("--output", "FILE.json", "Write the shortest schedule, for `switchml.torch.schedules`.")
@_file("--xml", "FILE.xml", "Write it as an algorithm for MSCCL.")
@_file("--picture", "FILE.png|svg", "Draw its timeline.")
def synthesize_schedule(
    topology: str,
    sketch: str,
    collective: str,
    seconds: float,
    output: Path | None,
    xml: Path | None,
    picture: Path | None,
) -> Synthesized:
    """Find a schedule of a collective for a topology, also through a switch that sums (docs/guides/synthesis.md).

    HiGHS searches routes that keep every link as little busy as possible; sends are then put in order. A simulator
    checks the schedule.
    """
    from switchml.topologies.synthesis import msccl, timeline
    from switchml.topologies.synthesis.sketch import load
    from switchml.topologies.synthesis.synthesize import synthesize

    found = synthesize(load(topology, sketch), collective, seconds)
    if output is not None:
        _write(output, json.dumps(found.as_dict()) + "\n")
    if xml is not None:
        _write(xml, msccl.algorithm(found.best.schedule, found.network.name))
    if picture is not None:
        timeline.picture(found.best.schedule, found.network, picture)
        note(f"wrote {picture}")
    return Synthesized(found)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    note(f"wrote {path}")
