"""Lesson 3: an all-reduce client, and the slot of a switch.

switchml-ctl job start --workers 2 -- python docs/tutorial/3_the_slot/exercise.py    runs the client
python docs/tutorial/check.py 3                                                      checks client and slot
"""

import json
from dataclasses import replace
from typing import Any

import numpy as np

import switchml
from switchml.dataplane.constants import Flag, Kind, Verdict

WORD = 0xFFFFFFFF  # sums are modulo 2^32, as in the registers of a switch


def average_all(comm: switchml.Communicator, gradients: list[np.ndarray]) -> None:
    """Replace every gradient by its average over all ranks. All calls are under way before the first is waited for."""
    # ---- hole 1: comm.all_reduce(array, op=..., async_op=True) returns a work; work.wait() returns when it is done
    raise NotImplementedError("hole 1: start an average of each gradient, then wait for all of them")
    # ---- end of hole 1


class Slot:
    """The state that a switch keeps for the packets of one phase: half of a slot.

    Attributes:
        epoch, phase: those of the packets that it has; epoch 0 is that of no packet.
        workers: a bitmap; bit r is set if the packet of rank r has been added.
        values: the sum of the packets' values; empty until one with values has come.
        exponent: the largest of the packets.
        check: their sum.
        chunk: the smallest.

    """

    def __init__(self) -> None:
        self.epoch = self.phase = self.workers = 0
        self.exponent = self.check = self.chunk = 0
        self.values: tuple[int, ...] = ()

    def take(self, packet: Any, everyone: int) -> Verdict:
        """Take a packet of the job's epoch, and return what happened to it; `everyone` is the bitmap of all ranks.

        AGGREGATED: added, and ranks are missing. COMPLETED: added, and it was the last one; the switch now sends the
        result to all. RESENT: the sum was complete with it already; the switch sends the result to its sender alone.
        DUPLICATE: it is added already, and ranks are missing. STALE: this half is in a later phase.
        """
        bit = 1 << packet.worker
        # ---- hole 2: the five cases, in about fifteen lines; begin() and add() are written
        raise NotImplementedError("hole 2: return the right verdict in each of the five cases")
        # ---- end of hole 2

    def begin(self, packet: Any) -> None:
        """Overwrite everything by the first packet of a phase."""
        self.epoch, self.phase, self.workers = packet.epoch, packet.phase, 1 << packet.worker
        self.exponent, self.check, self.chunk = packet.exponent, packet.check, packet.chunk
        self.values = packet.values

    def add(self, packet: Any) -> None:
        """Add a packet to those of its phase."""
        self.workers |= 1 << packet.worker
        self.exponent = max(self.exponent, packet.exponent)
        self.check = self.check + packet.check & WORD
        self.chunk = min(self.chunk, packet.chunk)
        if self.values and packet.values:
            self.values = tuple(a + b & WORD for a, b in zip(self.values, packet.values, strict=True))
        else:
            self.values = self.values or packet.values

    def result(self, packet: Any) -> Any:
        """Return the result, as the answer to a packet."""
        flags = packet.flags & ~Flag.WITHOUT_VALUES if self.values else packet.flags | Flag.WITHOUT_VALUES
        sums = {"count": len(self.values), "values": self.values, "exponent": self.exponent, "check": self.check}
        return replace(packet, kind=Kind.RESULT, flags=Flag(flags), chunk=self.chunk, **sums)


def main() -> None:
    """Average three gradients with the other ranks, and print how many elements are wrong."""
    with switchml.connect() as comm:
        mean = (comm.world_size + 1) / 2  # of 1, 2, ..., the number of ranks
        pattern = np.arange(20_000, dtype=np.float32)
        gradients = [(comm.rank + 1) * (pattern + tensor) for tensor in range(3)]
        average_all(comm, gradients)
        wrong = sum(int((got != mean * (pattern + tensor)).sum()) for tensor, got in enumerate(gradients))
        print(json.dumps({"rank": comm.rank, "tensors": len(gradients), "wrong": wrong}))


if __name__ == "__main__":
    main()
