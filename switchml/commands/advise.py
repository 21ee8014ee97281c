"""`switchml-ctl advise`: whether SwitchML makes a training program faster, and with which options."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from switchml.commands.command import Command, Parsed
from switchml.commands.result import Result
from switchml.commands.session import Session
from switchml.commands.standard_streams import note

if TYPE_CHECKING:
    from switchml.ops.advice import Advice

__all__ = ["Advised", "advise"]


@dataclasses.dataclass(frozen=True)
class Advised(Result):
    """Advice on a program, `command`."""

    command: Sequence[str]
    advice: Advice

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {
            "command": list(self.command),
            **dataclasses.asdict(self.advice),
            "communicating": self.advice.communicating,
        }


def _rate(text: str) -> int:
    from switchml.benchmarks.options import rates

    [rate] = rates(text)
    return rate


def _link_of_this_host() -> int | None:
    """Return the rate of the fastest network interface of this host that reports one."""
    rates = []
    for file in Path("/sys/class/net").glob("*/speed"):
        with contextlib.suppress(OSError, ValueError):  # an interface without a link, or without a rate
            rates.append(int(file.read_text()))
    fastest = max(rates, default=-1)
    return fastest * 1_000_000 if fastest > 0 else None


@click.command(
    "advise",
    cls=Command,
    epilog="""\b
Examples:
  switchml-ctl advise --link 10gbit -- python train.py
  switchml-ctl advise --workers 8 --link 1gbit --json -- python train.py --epochs 1""",
)
@click.option(
    "--workers", type=click.IntRange(2, 64), default=4, show_default=True, metavar="N", help="Number of ranks, 2..64."
)
@click.option(
    "--link", type=Parsed("rate", _rate), metavar="RATE",
    help="The rate of each rank's link in the cluster: 10gbit.  [default: that of this host's fastest interface]",
)  # fmt: skip
@click.option(
    "--steps", type=click.IntRange(3, 1000), default=20, show_default=True, metavar="N", help="Steps of each run."
)
@click.option(
    "--seconds", type=click.FloatRange(1, 600), default=15.0, show_default=True, metavar="S",
    help="End a run after this many seconds, if it has made five steps.",
)  # fmt: skip
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def advise(
    session: Session, workers: int, link: int | None, steps: int, seconds: float, command: tuple[str, ...]
) -> Advised:
    """Run a PyTorch training for some steps, and say whether SwitchML makes it faster, and which options do.

    The command is that of one rank, as for `job start`. It is run three times on this machine, with whatever backend it
    names: over Gloo, over Gloo with its collectives recorded, and through a switch. From these the time of a step over
    links of the given rate is computed, with one rank on each. The program ends after the steps.
    """
    from switchml.ops import recorded_steps
    from switchml.ops.advice import advise as advice_on

    if not command:
        raise click.UsageError("name the command of a rank: switchml-ctl advise -- python train.py")
    rate = link or _link_of_this_host()
    if rate is None:
        raise click.UsageError(
            "no network interface of this host reports its rate; name that of the cluster with --link"
        )
    limits = recorded_steps.Limits(steps, seconds)
    note(f"running {steps} steps over Gloo")
    gloo = recorded_steps.over_gloo(command, workers, limits, traced=False)
    note("running them again, with their collectives recorded")
    traced = recorded_steps.over_gloo(command, workers, limits, traced=True)
    note("running them through a switch on this machine")
    switch = recorded_steps.through_a_switch(session.settings(), command, workers, limits)
    return Advised(command, advice_on(command, rate, traced, gloo, switch))
