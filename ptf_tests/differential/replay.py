"""Play a saved sequence again: ``python -m ptf_tests.differential.replay FILE``."""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import click

from ptf_tests import namespace
from ptf_tests.differential.pair import OTHERS, Difference, NoAnswer, Pair, other_of
from ptf_tests.differential.player import Outcome, Player
from ptf_tests.differential.sequence import Burst, Sequence, load
from ptf_tests.frames import describe
from ptf_tests.targets import TARGETS, Soft, Target, TargetUnavailable, veth_names
from switchml.dataplane.constants import DropReason, Verdict


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--target", type=click.Choice([*TARGETS, "both"]), default="both", show_default=True)
@click.option(
    "--other",
    type=click.Choice([*OTHERS]),
    help="Target to compare the soft switch with; default: the first that has this many values per packet.",
)
def main(file: Path, target: str, other: str | None) -> None:
    """Play a sequence and print, step by step, the frames that leave, and the counters; or two targets' differences."""
    try:
        sequence = load(file)
    except (ValueError, KeyError, TypeError) as error:
        raise click.ClickException(f"{file} is not a saved sequence: {error}") from None
    compared = other_of(sequence.values) if other is None else OTHERS[other]
    classes: list[type[Target]] = [compared, Soft] if target == "both" else [TARGETS[target]]
    try:
        for one in classes:
            one.check_available()
    except TargetUnavailable as reason:
        raise click.ClickException(str(reason)) from None
    if any(one.needs_namespace for one in classes):
        arguments = [str(file), "--target", target, "--other", compared.name]
        namespace.enter("ptf_tests.differential.replay", arguments)
        namespace.make_veth_pairs(veth_names())
    logging.getLogger("dataplane").setLevel(logging.ERROR)  # ptf warns about every frame of 14 bytes
    with tempfile.TemporaryDirectory(prefix="switchml-replay-") as directory:
        if target == "both":
            sys.exit(_compare(sequence, Path(directory), compared))
        with TARGETS[target](Path(directory)) as switch, Player(switch.describe(sequence.values)) as player:
            _show(sequence, player.play(sequence))


def _compare(sequence: Sequence, directory: Path, other: type[Target]) -> int:
    with Pair(directory, sequence.values, other) as pair:
        try:
            pair.compare(sequence)
        except (Difference, NoAnswer) as difference:
            click.echo(str(difference))
            return 1
    click.echo("no difference")
    return 0


def _show(sequence: Sequence, outcome: Outcome) -> None:
    for number, step in enumerate(sequence.steps):
        if isinstance(step, Burst):
            click.echo(f"{number}: through port {step.port}")
            for frame in step.frames:
                click.echo(f"  in: {describe(frame)}")
        else:
            click.echo(f"{number}: {step} {outcome.refused.get(number, '')}")
        for port, frames in sorted(outcome.frames[number].items()):
            for frame in frames:
                click.echo(f"  out of port {port}: {describe(frame)}")
    for reason, count in sorted(outcome.counts.drops.items()):
        click.echo(f"drop_counter {DropReason(reason).name}: {count}")
    for index, count in sorted(outcome.counts.verdicts.items()):
        click.echo(f"job_counter job {index >> 4} {Verdict(index & 0xF).name}: {count}")
    for key, count in sorted(outcome.counts.workers.items()):
        click.echo(f"worker_counter {key}: {count}")


if __name__ == "__main__":
    main()
