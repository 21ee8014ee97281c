"""Systems that take turns at the same task, so that the machine's state affects all of them alike."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from switchml.benchmarks import machine_state
from switchml.benchmarks.errors import MissingPeer
from switchml.benchmarks.options import VARIANTS, TransportVariant, size_text
from switchml.benchmarks.ranks import RankGroup
from switchml.benchmarks.record import Record
from switchml.benchmarks.systems import Peer, System, own_fabric
from switchml.common.progress import Progress

__all__ = ["ELEMENT_BYTES", "Task", "Turn", "Turns", "calls_of", "systems", "turn_of"]

ELEMENT_BYTES: Final = {"float32": 4, "bfloat16": 2, "int64": 8}
"""The types of elements that are measured, and the bytes of each."""

_CALLS_BYTES: Final = 320 << 20  # summed in one turn if the number of calls is not given
_CALL_BYTES: Final = 64 << 10  # take as long as the fixed cost of a call
_FEWEST_CALLS: Final = 10
_MOST_CALLS: Final = 200


@dataclasses.dataclass(frozen=True)
class Turn:
    """The measurements of one system in one turn. Times are in seconds per call; `slowest` is that of the last rank.

    `seconds` is the time of rank 0, but of the last rank for a broadcast, whose root need not wait for anything.

    `cpu_seconds`, `wake_ups` and `preemptions` are of all calls and of all processes: ranks, and for SwitchML also the
    agent and the switch. `bytes` is the size of a tensor; a call sums `tensors` of them, with elements of
    `element_type`.
    """

    system: str
    workers: int
    bytes: int
    tensors: int
    repetition: int
    seconds: tuple[float, ...]
    slowest: tuple[float, ...]
    cpu_seconds: float
    wake_ups: int
    preemptions: int
    largest_error: float
    allowed_error: float
    element_type: str = "float32"


def turn_of(answers: Sequence[dict[str, Any]], system: str, task: Task, repetition: int) -> Turn:
    """Return a turn, given the ranks' answers."""

    def total(name: str) -> Any:
        return sum(answer[name] for answer in answers) + answers[0].get(f"daemon_{name}", 0)

    slowest = tuple(max(call) for call in zip(*(answer["seconds"] for answer in answers), strict=True))
    return Turn(
        system=system,
        workers=len(answers),
        bytes=task.bytes,
        tensors=task.tensors,
        repetition=repetition,
        seconds=slowest if task.collective == "broadcast" else tuple(answers[0]["seconds"]),
        slowest=slowest,
        cpu_seconds=total("cpu_seconds"),
        wake_ups=total("wake_ups"),
        preemptions=total("preemptions"),
        largest_error=max(answer["largest_error"] for answer in answers),
        allowed_error=answers[0]["allowed_error"],
        element_type=task.element_type,
    )


@dataclasses.dataclass(frozen=True)
class Task:
    """A task: `calls` all-reduces of `tensors` tensors of `bytes` each; more than one are queued together.

    A single tensor may be of bfloat16, or of int64 with magnitudes below 2^`magnitude_bits`, SwitchML may send its
    elements in lanes of `wire_bits`, and the operation may be another `collective`.
    """

    bytes: int
    tensors: int
    calls: int
    element_type: str = "float32"
    wire_bits: int = 32
    magnitude_bits: int = 0
    collective: str = "all_reduce"

    @property
    def warm_up(self) -> int:
        """The number of calls before the timed ones, which allocate memory and measure round trips."""
        return max(1, self.calls // 10)

    @property
    def command(self) -> str:
        """The command for the ranks."""
        if self.tensors == 1:
            kind = (
                ""
                if (self.element_type, self.wire_bits) == ("float32", 32)
                else f" {self.element_type} {self.wire_bits}"
            )
            if self.element_type == "int64":
                kind += f" {self.magnitude_bits}"
            elements = self.bytes // ELEMENT_BYTES[self.element_type]
            return f"{self.collective} {self.calls} {self.warm_up} {elements}{kind}"
        return f"queue {self.calls} {self.warm_up} {self.bytes // 4} {self.tensors}"

    @property
    def text(self) -> str:
        """The description for people."""
        return size_text(self.bytes) if self.tensors == 1 else f"{self.tensors} x {size_text(self.bytes)}"


def calls_of(size: int, wanted: int) -> int:
    """Return the number of calls of a turn: `wanted`, or for 0 as many as move 320 MiB, from 10 to 200."""
    return wanted or max(_FEWEST_CALLS, min(_MOST_CALLS, _CALLS_BYTES // size))


@contextlib.contextmanager
def systems(
    transports: Sequence[str], peers: Sequence[str], torch_python: str, directory: Path, record: Record
) -> Iterator[list[System]]:
    """Yield the systems that can be measured here. Raises as a fabric's start."""
    found: list[System] = []
    with contextlib.ExitStack() as stack:
        for name in peers:
            peer = _find(name, torch_python)
            if isinstance(peer, MissingPeer):
                record.leave_out(name, peer)
            else:
                found.append(peer)
        variants = {name: VARIANTS.get(name, TransportVariant(name)) for name in transports}
        fabrics = {
            transport: stack.enter_context(own_fabric(transport, directory))
            for transport in dict.fromkeys(variant.transport for variant in variants.values())
        }
        ours: list[System] = [
            dataclasses.replace(fabrics[variant.transport], name=name, wire=variant.wire, direct=variant.direct)
            for name, variant in variants.items()
        ]
        record.systems |= {system.name: system.description for system in ours + found}
        yield ours + found


def _find(name: str, torch_python: str) -> Peer | MissingPeer:
    try:
        return Peer.find(name, torch_python)
    except MissingPeer as error:
        return error


class Turns:
    """Repetitions of tasks: in each, every system takes its turn at each task, starting with another system each time.

    A peer that fails takes no further turns. A failure of SwitchML ends the benchmark.
    """

    def __init__(
        self, measured: Sequence[System], directory: Path, record: Record, progress: Progress | None = None
    ) -> None:
        self._systems = {system.name: system for system in measured}
        self._directory = directory
        self._record = record
        self._progress = progress or Progress()

    @staticmethod
    def work(workers: int, task: Task) -> float:
        """Return the approximate work of one repetition of a task, for a progress bar: bytes, plus some per call."""
        return workers * (task.calls + task.warm_up) * task.tensors * (task.bytes + _CALL_BYTES)

    def run(self, workers: int, tasks: Sequence[Task], repetitions: int) -> None:
        """Measure `tasks` with groups of `workers` ranks. Raises RankFailed."""
        names = [name for name in self._systems if name not in self._record.missing]
        self._record.report(f"{workers} workers: starting {', '.join(names)}")
        with contextlib.ExitStack() as stack:
            groups: dict[str, RankGroup] = {}
            for name in names:
                with self._failing(name):
                    groups[name] = stack.enter_context(self._systems[name].group(workers, self._directory))
            for repetition in range(repetitions):
                for number, task in enumerate(tasks):
                    left = [(name, group) for name, group in groups.items() if name not in self._record.missing]
                    first = (repetition + number) % len(left)
                    self._take_turns(left[first:] + left[:first], task, repetition)
                    self._progress.did(self.work(workers, task))

    def _take_turns(self, groups: Sequence[tuple[str, RankGroup]], task: Task, repetition: int) -> None:
        self._record.states.append(machine_state.now())
        said = []
        for name, group in groups:
            with self._failing(name):
                turn = turn_of(group.command(task.command), name, task, repetition)
                self._record.samples.append(turn)
                said.append(f"{name} {1e3 * statistics.median(turn.seconds):.3g} ms")
        self._record.report(f"  {task.text}, repetition {repetition + 1}: {', '.join(said)}")

    def _failing(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Return the context of a system's work, which ends the benchmark if no other system would be left."""
        left = len(self._systems.keys() - self._record.missing.keys())
        required = not isinstance(self._systems[name], Peer) or left == 1
        return contextlib.nullcontext() if required else self._record.optional(name)
