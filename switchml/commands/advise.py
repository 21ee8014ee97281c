"""`switchml-ctl advise`: whether SwitchML makes a training program faster, and with which options."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from switchml.commands.command import Command, Parsed
from switchml.commands.result import Result
from switchml.commands.session import CommandSession
from switchml.commands.standard_streams import note

if TYPE_CHECKING:
    from switchml.ops.advice import Advice
    from switchml.ops.recorded_steps import Limits

__all__ = ["Advised", "advise"]


@dataclasses.dataclass(frozen=True)
class Advised(Result):
    """Advice on a program, `command`."""

    command: Sequence[str]
    advice: Advice

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dictionary for JSON."""
        return {"command": list(self.command), **self.advice.as_dict()}


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
  switchml-ctl advise --workers 8 --link 1gbit --json -- python train.py --epochs 1
  sudo switchml-ctl advise --link 200mbit --measure -- python train.py""",
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
@click.option(
    "--measure", is_flag=True,
    help="Then run the program over links of this rate, between network namespaces of this machine; as root.",
)  # fmt: skip
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def advise(
    session: CommandSession,
    workers: int,
    link: int | None,
    steps: int,
    seconds: float,
    measure: bool,
    command: tuple[str, ...],
) -> Advised:
    """Run a PyTorch training for some steps, and say whether SwitchML makes it faster, and which options do.

    The command is that of one rank, as for `job start`. It is run three times on this machine, with whatever backend it
    names: over Gloo, over Gloo with its collectives recorded, and through a switch. From these the time of a step over
    links of the given rate is computed, with one rank on each. The program ends after the steps.
    """
    from switchml.ops.recorded_steps import Limits

    if not command:
        raise click.UsageError("name the command of a rank: switchml-ctl advise -- python train.py")
    rate = link or _link_of_this_host()
    if rate is None:
        raise click.UsageError(
            "no network interface of this host reports its rate; name that of the cluster with --link"
        )
    limits = Limits(steps, seconds)
    if measure:
        _require_shaping()
    advice = _predicted(session, command, workers, rate, limits)
    return Advised(command, _measured(session, command, advice, limits) if measure else advice)


def _require_shaping() -> None:
    """Raise NamespaceError before anything is run, if links cannot be made here."""
    from switchml.topologies.namespaces import require_privileges
    from switchml.topologies.shaped_links import require_shaping

    require_privileges()
    require_shaping()


def _predicted(session: CommandSession, command: Sequence[str], workers: int, rate: int, limits: Limits) -> Advice:
    from switchml.ops import recorded_steps
    from switchml.ops.advice import advise as advice_on

    note(f"running {limits.steps} steps over Gloo")
    gloo = recorded_steps.over_gloo(command, workers, limits, traced=False)
    note("running them again, with their collectives recorded")
    traced = recorded_steps.over_gloo(command, workers, limits, traced=True)
    note("running them through a switch on this machine")
    switch = recorded_steps.through_a_switch(session.settings(), command, workers, limits)
    return advice_on(command, rate, traced, gloo, switch)


def _measured(session: CommandSession, command: Sequence[str], advice: Advice, limits: Limits) -> Advice:
    """Run the choices that need no change of the program in turns, twice; return the advice with their medians."""
    from switchml.ops.recorded_steps import shaped_hosts
    from switchml.topologies.shaped_links import rate_text

    possible = [choice for choice in advice.choices if not choice.needs_code]
    seconds: dict[str, list[float]] = {choice.name: [] for choice in possible}
    with shaped_hosts(session.settings(), advice.workers, advice.rate) as hosts:
        for choice in (*possible, *reversed(possible)):
            note(f"running them over links of {rate_text(advice.rate)}: {choice.name}")
            seconds[choice.name] += hosts.steps(command, choice.backend, choice.variables, limits).seconds
    return advice.with_measured({name: statistics.median(found) for name, found in seconds.items()})
