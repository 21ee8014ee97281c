"""The two switches side by side: plays a sequence on both and says where they differ."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import finsy as fy

from dataplane.constants import DropReason, Verdict
from ptf_tests.control import Counts
from ptf_tests.differential.player import Outcome, Player
from ptf_tests.differential.sequence import Burst, Sequence
from ptf_tests.frames import describe
from ptf_tests.targets import Bmv2, Description, Soft, Target

__all__ = ["Difference", "NoAnswer", "Pair"]

# What a port loses at egress is counted by a thread of its own, behind no marker.
_COUNT_SECONDS = 2.0


class Difference(AssertionError):
    """The switches did different things; the text says which."""


class NoAnswer(BaseException):
    """A switch has ended or does not answer. No Exception: hypothesis must not go on with what cannot be compared."""


class Pair:
    """Both switches, started in ``directory``; a context manager."""

    def __init__(self, directory: Path, values: int) -> None:
        self._targets: list[Target] = [Bmv2(directory), Soft(directory)]
        self._values = values
        self._stack = ExitStack()
        self._players: list[Player] = []

    def __enter__(self) -> Pair:
        with ExitStack() as stack:
            for target in self._targets:
                stack.enter_context(target)
                self._players.append(stack.enter_context(Player(self._describe(target))))
            self._threads = stack.enter_context(ThreadPoolExecutor(len(self._targets)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _describe(self, target: Target) -> Description:
        return target.describe(self._values)

    def compare(self, sequence: Sequence) -> None:
        """Play a sequence on both. Raises Difference or NoAnswer."""
        try:
            bmv2, soft = self._threads.map(lambda player: player.play(sequence), self._players)
        except (TimeoutError, fy.P4ClientError) as error:
            try:
                for target in self._targets:
                    target.check_alive()
            except RuntimeError as ended:
                raise NoAnswer(str(ended)) from error
            raise NoAnswer(f"a switch does not answer: {error}") from error
        end = time.monotonic() + _COUNT_SECONDS
        while bmv2.counts != soft.counts and time.monotonic() < end:
            bmv2.counts, soft.counts = (player.counts() for player in self._players)
        differences = _differences(sequence, bmv2, soft)
        if differences:
            raise Difference("\n".join(differences))


def _differences(sequence: Sequence, bmv2: Outcome, soft: Outcome) -> list[str]:
    lines = []
    for number, step in enumerate(sequence.steps):
        if bmv2.refused.get(number) != soft.refused.get(number):
            lines.append(
                f"step {number}, {step}: bmv2 {bmv2.refused.get(number, 'OK')}, soft {soft.refused.get(number, 'OK')}"
            )
        if bmv2.frames[number] == soft.frames[number]:
            continue
        name = f"Burst({step.port})" if isinstance(step, Burst) else str(step)
        lines.append(f"step {number}, {name}: other frames came out")
        for port in sorted(bmv2.frames[number].keys() | soft.frames[number].keys()):
            one, other = bmv2.frames[number].get(port, []), soft.frames[number].get(port, [])
            if one != other:
                for who, frames in (("bmv2", one), ("soft", other)):
                    lines += [f"  port {port}, {who}: {describe(frame)}" for frame in frames] or [
                        f"  port {port}, {who}: nothing"
                    ]
    return lines + _count_differences(bmv2.counts, soft.counts)


def _count_differences(bmv2: Counts, soft: Counts) -> list[str]:
    lines = []
    for index in sorted(bmv2.drops.keys() | soft.drops.keys()):
        one, other = bmv2.drops.get(index, (0, 0)), soft.drops.get(index, (0, 0))
        if one != other:
            lines.append(f"drop_counter {DropReason(index).name}: bmv2 {one}, soft {other} (packets, bytes)")
    for index in sorted(bmv2.verdicts.keys() | soft.verdicts.keys()):
        one, other = bmv2.verdicts.get(index, (0, 0)), soft.verdicts.get(index, (0, 0))
        if one != other:
            name = Verdict(index & 0xF).name
            lines.append(f"job_counter of job {index >> 4} {name}: bmv2 {one}, soft {other} (packets, bytes)")
    for key in sorted(bmv2.workers.keys() | soft.workers.keys()):
        one, other = bmv2.workers.get(key, (0, 0)), soft.workers.get(key, (0, 0))
        if one != other:
            lines.append(f"worker_counter of {key}: bmv2 {one}, soft {other} (packets, bytes)")
    return lines
