"""Play a sequence on one target and return the outcome."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field

import finsy as fy

from ptf_tests.barrier import Barrier, marker_entities
from ptf_tests.control import Counts
from ptf_tests.differential.sequence import Burst, Put, Remove, Sequence, SetDefault
from ptf_tests.open_control import open_control
from ptf_tests.open_ports import open_ports
from ptf_tests.targets import HOST_PORTS, Description
from switchml.controller.drivers.bfrt_session import BfrtError
from switchml.dataplane.constants import DropReason

__all__ = ["JOB_IDS", "Outcome", "Player"]

# The jobs that sequences use, whose verdicts are compared.
JOB_IDS = (0, 1, 2, 3)
_SECONDS = 30.0
_LOSES_ALL = 0xFFFFFFFF


@dataclass
class Outcome:
    """The frames that left after each step, by port, in order, and the counters at the end.

    ``refused`` are the steps that the switch refused, with the error's code.
    """

    frames: list[dict[int, list[bytes]]] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)


class Player:
    """A session with a running switch; a context manager."""

    def __init__(self, description: Description) -> None:
        self._description = description
        self.control = open_control(description)
        self._stack = ExitStack()
        self._losing: dict[str, set[int]] = {}
        self._present: set[tuple[object, ...]] = set()

    def __enter__(self) -> Player:
        with ExitStack() as stack:
            self._barrier = Barrier(stack.enter_context(open_ports(self._description)))
            stack.enter_context(self.control)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def play(self, sequence: Sequence) -> Outcome:
        """Load the pipeline and execute the steps, with a barrier between a write and packets."""
        self.control.load()
        self.control.insert(*marker_entities())
        # BMv2 switches to the new pipeline when the next packet arrives, and accepts no other pipeline before that.
        self._barrier.emitted()
        self._losing = {"loss_ingress_table": set(), "loss_egress_table": set()}
        self._present = set()
        outcome = Outcome()
        for number, step in enumerate(sequence.steps):
            if isinstance(step, Burst):
                self._send(step)
                outcome.frames.append(self._received())
            else:
                self._write(number, step, outcome)
                outcome.frames.append({})
        outcome.counts = self.counts()
        return outcome

    def counts(self) -> Counts:
        """Return the counters."""
        return self.control.counts(JOB_IDS)

    def _send(self, burst: Burst) -> None:
        if burst.port not in self._losing["loss_ingress_table"]:
            for frame in burst.frames:
                self._barrier.send(burst.port, frame)
            return
        # No marker would arrive.
        wanted = self.control.drops(DropReason.INJECTED_LOSS) + len(burst.frames)
        for frame in burst.frames:
            self._barrier.send(burst.port, frame)
        self._barrier.forget()
        end = time.monotonic() + _SECONDS
        while self.control.drops(DropReason.INJECTED_LOSS) < wanted:
            if time.monotonic() > end:
                raise TimeoutError(f"{self._description.name}: port {burst.port} does not lose packets as it should")

    def _received(self) -> dict[int, list[bytes]]:
        """Return all frames that have left; losses at egress may not be counted yet."""
        return self._barrier.emitted(tuple(p for p in HOST_PORTS if p not in self._losing["loss_egress_table"]))

    def _refuse(self, number: int, code: str, outcome: Outcome) -> None:
        """Record that the switch has refused a step. Raises TimeoutError if it has not answered."""
        if code in ("DEADLINE_EXCEEDED", "UNAVAILABLE"):
            raise TimeoutError(f"{self._description.name}: step {number} was not answered: {code}")
        outcome.refused[number] = code

    def _write(self, number: int, step: Put | Remove | SetDefault, outcome: Outcome) -> None:
        entity = step.entity()
        try:
            if isinstance(step, SetDefault):
                self.control.modify(entity)
                return
            present = step.key in self._present
            if isinstance(step, Put):
                (self.control.modify if present else self.control.insert)(entity)
                self._present.add(step.key)
            elif present:
                self.control.delete(entity)
                self._present.remove(step.key)
        except fy.P4ClientError as error:
            details = error.details
            self._refuse(number, (details[0].canonical_code if details else error.code).name, outcome)
        except BfrtError as error:
            self._refuse(number, error.code.name, outcome)
        else:
            self._note_loss(step)

    def _note_loss(self, step: Put | Remove) -> None:
        if step.table in self._losing:
            port = dict(step.match)["port"]
            assert isinstance(port, int)
            losing = self._losing[step.table]
            losing.discard(port)
            if isinstance(step, Put) and dict(step.parameters)["threshold"] == _LOSES_ALL:
                losing.add(port)
