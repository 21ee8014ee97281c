"""Play random sequences on two switches until they differ: ``python -m ptf_tests.differential.run``."""

from __future__ import annotations

import logging
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import hypothesis

from ptf_tests import namespace
from ptf_tests.differential.pair import OTHERS, Difference, NoAnswer, Pair
from ptf_tests.differential.sequence import Burst, Sequence, save
from ptf_tests.differential.strategies import Abilities, sequences
from ptf_tests.targets import Target, TargetUnavailable, veth_names


@click.command(context_settings={"show_default": True})
@click.option("--sequences", "count", type=click.IntRange(1), default=2000, help="Number of sequences to play.")
@click.option(
    "--seed", type=click.IntRange(0), help="Seed of the random sequences; by default a new one is chosen and printed."
)
@click.option(
    "--target", "name", type=click.Choice([*OTHERS]), default="bmv2", help="Target to compare the soft switch with."
)
@click.option(
    "--values", type=click.IntRange(1), help="Values per packet, one of those of the target; default: its first."
)
def main(count: int, seed: int | None, name: str, values: int | None) -> None:
    """Play random sequences of table writes and packets on the soft switch and on another, and compare the outcomes.

    The exit status is 0 if there is no difference, or if the other switch is not installed. The shortest sequence that
    shows a difference is saved, and can be played again with python -m ptf_tests.differential.replay.
    """
    other = OTHERS[name]
    values = other.values[0] if values is None else values
    if values not in other.values:
        raise click.BadParameter(f"{name} has {' or '.join(map(str, other.values))} values per packet, not {values}")
    try:
        other.check_available()
    except TargetUnavailable as reason:
        click.echo(f"skipped: {reason}")
        return
    seed = secrets.randbelow(2**32) if seed is None else seed
    if other.needs_namespace:
        arguments = ["--sequences", str(count), "--seed", str(seed), "--target", name, "--values", str(values)]
        namespace.enter("ptf_tests.differential.run", arguments)
        namespace.make_veth_pairs(veth_names())
    logging.getLogger("dataplane").setLevel(logging.ERROR)  # ptf warns about every frame of 14 bytes
    directory = Path(tempfile.mkdtemp(prefix="switchml-differential-"))
    start = time.monotonic()
    with Pair(directory, values, other) as pair:
        run = _Run(pair, name)
        try:
            run.play(count, seed, values, other)
        except NoAnswer as error:
            _report(error, run, directory, seed)
            sys.exit(1)
        except Difference as error:
            _report(run.reduce() or error, run, directory, seed)
            sys.exit(1)
    shutil.rmtree(directory)
    seconds = time.monotonic() - start
    what = f"{run.played} sequences with {values} values on {name} and soft"
    click.echo(f"{what}, no difference; seed {seed}; {seconds:.1f} s")


class _Run:
    """Play the sequences that hypothesis draws; ``failing`` is the sequence for which the switches differed."""

    def __init__(self, pair: Pair, other: str) -> None:
        self._pair = pair
        self.other = other
        self.played = 0
        self.failing: Sequence | None = None

    def play(self, count: int, seed: int, values: int, other: type[Target]) -> None:
        """Draw and play. Raises Difference or NoAnswer."""

        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=count,
            phases=[hypothesis.Phase.generate],
            database=None,
            deadline=None,
            print_blob=False,
            verbosity=hypothesis.Verbosity.quiet,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(
            sequences(
                values,
                other.max_workers,
                Abilities(
                    lose=other.loses_on_purpose,
                    grow=values <= other.most_growing_values,
                    own=other.owned_results,
                    floats=bool(other.floats),
                    expand=values <= other.most_codes,
                    rocev2=other.rocev2,
                    contradict=other.ignores_repeated_results,
                ),
            )
        )
        def play_one(sequence: Sequence) -> None:
            self.played += 1
            try:
                self._pair.compare(sequence)
            except (Difference, NoAnswer):
                self.failing = sequence
                raise

        play_one()

    def reduce(self) -> Difference | None:
        """Remove every step and every frame from the failing sequence that does not matter.

        Return the difference that the rest shows, or None if everything matters. hypothesis would also reduce the
        numbers in the frames, but takes minutes to do so.
        """
        assert self.failing is not None
        found = None
        smaller = True
        while smaller:
            smaller = False
            for shorter in _shorter(self.failing):
                try:
                    difference = self._difference(shorter)
                except NoAnswer:  # what was found so far shows the difference all the same
                    return found
                if difference is not None:
                    found, self.failing, smaller = difference, shorter, True
                    break
        return found

    def _difference(self, sequence: Sequence) -> Difference | None:
        try:
            self._pair.compare(sequence)
        except Difference as difference:
            return difference
        return None


def _shorter(sequence: Sequence) -> Iterator[Sequence]:
    """Yield the sequence without some consecutive steps, many before few, or without one frame."""
    steps = sequence.steps
    length = len(steps) // 2
    while length:
        for end in range(len(steps), 0, -length):
            yield replace(sequence, steps=steps[: max(0, end - length)] + steps[end:])
        length //= 2
    for place, step in enumerate(steps):
        if isinstance(step, Burst) and len(step.frames) > 1:
            for left_out in range(len(step.frames)):
                frames = step.frames[:left_out] + step.frames[left_out + 1 :]
                yield replace(sequence, steps=(*steps[:place], replace(step, frames=frames), *steps[place + 1 :]))


def _report(error: BaseException, run: _Run, directory: Path, seed: int) -> None:
    assert run.failing is not None
    path = directory / "sequence.json"
    save(run.failing, path)
    if isinstance(error, NoAnswer):
        what, sequence = "a switch has not answered in time, so they were not compared", "the sequence"
    else:
        what, sequence = "the switches differ", "the shortest sequence that shows it"
    click.echo(f"{what} (seed {seed}, after {run.played} sequences); {sequence}:", err=True)
    click.echo(str(error), err=True)
    click.echo(f"play it again: python -m ptf_tests.differential.replay {path} --other {run.other}", err=True)


if __name__ == "__main__":
    main()
