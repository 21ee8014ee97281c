"""Two switches side by side: play a sequence on both and report the differences."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

import finsy as fy

from ptf_tests.control import Count, Counts
from ptf_tests.differential.player import Outcome, Player
from ptf_tests.differential.sequence import Burst, Sequence
from ptf_tests.frames import describe
from ptf_tests.targets import Bmv2, Bmv2Floats, Soft, Target, TofinoEmulator
from ptf_tests.wire import Packet
from switchml.dataplane.constants import PROTOCOL_HEADER_BYTES, ROCEV2_UDP_PORT, DropReason, Verdict

__all__ = ["Difference", "NoAnswer", "OTHERS", "Pair", "other_of"]

# The switches that the soft switch can be compared with.
OTHERS: dict[str, type[Target]] = {target.name: target for target in (Bmv2, Bmv2Floats, TofinoEmulator)}

# Losses at egress are counted by a separate thread, after no marker.
_COUNT_SECONDS = 30.0

# Ethernet, IPv4 without options and UDP: the headers in which the copies of a result may differ.
_HEADER_BYTES = 42
_RDMA_HEADER_BYTES = 20  # those of a UD SEND, which further copies have
_ICRC_BYTES = 4


class Difference(AssertionError):
    """The switches behaved differently; the text says how."""


class NoAnswer(BaseException):
    """A switch has ended or does not answer. Not an Exception, so that hypothesis does not continue without it."""


class Pair:
    """A switch of a class of OTHERS and the soft switch, each with its own directory; a context manager."""

    def __init__(self, directory: Path, values: int, other: type[Target]) -> None:
        self._targets: list[Target] = []
        for target in (other, Soft):
            own = directory / target.name
            own.mkdir()
            self._targets.append(target(own))
        self._values = values
        self._stack = ExitStack()
        self._players: list[Player] = []

    def __enter__(self) -> Pair:
        with ExitStack() as stack:
            for target in self._targets:
                stack.enter_context(target)
                self._players.append(stack.enter_context(Player(target.describe(self._values))))
            self._threads = stack.enter_context(ThreadPoolExecutor(len(self._targets)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def compare(self, sequence: Sequence) -> None:
        """Play a sequence on both. Raises Difference or NoAnswer."""
        try:
            other, soft = self._threads.map(lambda player: player.play(sequence), self._players)
        except (TimeoutError, fy.P4ClientError) as error:
            try:
                for target in self._targets:
                    target.check_alive()
            except RuntimeError as ended:
                raise NoAnswer(str(ended)) from error
            raise NoAnswer(f"a switch does not answer: {error}") from error
        end = time.monotonic() + _COUNT_SECONDS
        while other.counts != soft.counts and time.monotonic() < end:
            other.counts, soft.counts = (player.counts() for player in self._players)
        differences = _differences(sequence, self._targets[0].name, other, soft)
        if differences:
            raise Difference("\n".join(differences))


def other_of(values: int) -> type[Target]:
    """Return the switch to compare the soft switch with when a packet has this many values."""
    return next(target for target in OTHERS.values() if values in target.values)


def _differences(sequence: Sequence, name: str, other: Outcome, soft: Outcome) -> list[str]:
    lines = []
    for number, step in enumerate(sequence.steps):
        refused = [outcome.refused.get(number, "OK") for outcome in (other, soft)]
        if refused[0] != refused[1]:
            lines.append(f"step {number}, {step}: {name} {refused[0]}, soft {refused[1]}")
        if _without_order(other.frames[number]) == _without_order(soft.frames[number]):
            continue
        what = f"Burst({step.port})" if isinstance(step, Burst) else str(step)
        lines.append(f"step {number}, {what}: other frames came out")
        for port in sorted(other.frames[number].keys() | soft.frames[number].keys()):
            each = {who: outcome.frames[number].get(port, []) for who, outcome in ((name, other), ("soft", soft))}
            if _copies_sorted(each[name]) != _copies_sorted(each["soft"]):
                for who, frames in each.items():
                    lines += [f"  port {port}, {who}: {describe(frame)}" for frame in frames] or [
                        f"  port {port}, {who}: nothing"
                    ]
    return lines + _count_differences(name, other.counts, soft.counts)


def _without_order(frames: dict[int, list[bytes]]) -> dict[int, list[bytes]]:
    return {port: _copies_sorted(out) for port, out in frames.items()}


def _copies_sorted(frames: list[bytes]) -> list[bytes]:
    """Sort consecutive frames with the same payload: the order of a group's copies through one port is not defined."""
    return [frame for _, copies in groupby(frames, key=_payload_of_all_copies) for frame in sorted(copies)]


def _payload_of_all_copies(frame: bytes) -> bytes:
    """Return what the copies of a packet have in common.

    Those of RESULTs with owners differ, and within a burst the soft switch sends the copies with values first.
    """
    payload = frame[_HEADER_BYTES:]
    if int.from_bytes(frame[36:38], "big") == ROCEV2_UDP_PORT:
        end = int.from_bytes(frame[38:40], "big") - 8 - _ICRC_BYTES  # of the packet, in front of the ICRC
        payload = payload[_RDMA_HEADER_BYTES:end] + payload[end + _ICRC_BYTES :]
    owned = len(payload) >= PROTOCOL_HEADER_BYTES and Packet.unpack(payload[:PROTOCOL_HEADER_BYTES]).owner
    return b"" if owned else payload


def _count_differences(name: str, other: Counts, soft: Counts) -> list[str]:
    lines = []

    def compare(what: str, one: Mapping[Any, Count], two: Mapping[Any, Count], label: Callable[[Any], str]) -> None:
        for key in sorted(one.keys() | two.keys()):
            left, right = one.get(key, (0, 0)), two.get(key, (0, 0))
            if left != right:
                lines.append(f"{what} {label(key)}: {name} {left}, soft {right} (packets, bytes)")

    drops = (other.drops, soft.drops)
    if name == TofinoEmulator.name:
        drops = (_without_copies_bytes(other.drops), _without_copies_bytes(soft.drops))
    compare("drop_counter", *drops, lambda index: DropReason(index).name)
    compare(
        *("job_counter", other.verdicts, soft.verdicts),
        lambda index: f"of job {index >> 4} {Verdict(index & 0xF).name}",
    )
    compare("worker_counter of", other.workers, soft.workers, str)
    return lines


def _without_copies_bytes(drops: Mapping[int, Count]) -> dict[int, Count]:
    """Return the counters of drops without the bytes of copies that egress drops.

    Tofino counts a copy's own bytes, other targets count those of the packet that it answers, which may be shorter.
    """
    return {
        reason: (packets, 0 if reason == DropReason.NO_RANK_ADDRESS else byte_count)
        for reason, (packets, byte_count) in drops.items()
    }
