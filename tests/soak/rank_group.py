"""Several ranks of one job in one process, which obeys JSON objects on its standard input and answers with others.

`do` in each of them is a method of RankGroup, the other keys are its arguments. The values are whole numbers that are
exact in float32, and so are their sums in the switch (docs/guides/large-jobs.md).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import switchml

__all__ = ["contribution"]

LARGEST = 100
_DEADLINE = 300.0


def contribution(rank: int, elements: int, step: int = 0) -> npt.NDArray[np.float32]:
    """Return the values of a rank in the all-reduce of this number."""
    values = np.random.default_rng(rank).integers(-LARGEST, LARGEST, elements, dtype=np.int8, endpoint=True)
    return np.asarray(values.astype(np.float32) + np.float32(step))


class RankGroup:
    """The ranks of this process; `total` is a file with the sum of all ranks' contributions to all-reduce 0."""

    def __init__(self, elements: int, total: Path) -> None:
        self._elements = elements
        self._total = total
        self._world_size = 0
        self._ranks: dict[int, switchml.Communicator] = {}

    def attach(self, job: str, sockets: dict[str, str]) -> dict[str, Any]:
        """Attach ranks of a job that is ready, each through the agent with this socket."""
        for number, socket in sockets.items():
            comm = switchml.connect(agent=socket, job=job, rank=int(number), timeout=_DEADLINE)
            self._ranks[comm.rank] = comm
            self._world_size = comm.world_size
        return {"ranks": len(self._ranks)}

    def sum(self, step: int) -> dict[str, Any]:
        """Make the all-reduce of this number; return when it began and ended, and the ranks whose result is wrong."""
        arrays = {rank: contribution(rank, self._elements, step) for rank in self._ranks}
        began = time.monotonic()
        works = [self._ranks[rank].all_reduce(x, async_op=True, timeout=_DEADLINE) for rank, x in arrays.items()]
        for work in works:
            work.wait()
        ended = time.monotonic()
        expected = np.load(self._total) + np.float32(self._world_size * step)
        wrong = [rank for rank, x in arrays.items() if not np.array_equal(x, expected)]
        return {"began": began, "ended": ended, "wrong": wrong}

    def fail(self, shorter: int) -> dict[str, Any]:
        """Make an all-reduce that fails, for example because rank `shorter` calls with one element less.

        Return the error of each rank, after saying that all have called.
        """
        works = {
            rank: comm.all_reduce(
                np.ones(self._elements - (rank == shorter), np.float32), async_op=True, timeout=_DEADLINE
            )
            for rank, comm in self._ranks.items()
        }
        say({"called": len(works)})
        errors: dict[int, dict[str, Any]] = {}
        for rank, work in works.items():
            try:
                work.wait()
            except switchml.SwitchMLError as error:  # noqa: PERF203
                lost = list(getattr(error, "ranks", ()))
                errors[rank] = {"error": type(error).__name__, "message": str(error), "ranks": lost}
        return {"errors": errors}

    def close(self) -> dict[str, Any]:
        """Close all ranks."""
        for comm in self._ranks.values():
            comm.close()
        self._ranks.clear()
        return {}


def say(answer: dict[str, Any]) -> None:
    """Write one answer."""
    print(json.dumps(answer), flush=True)


def main() -> None:
    """Obey until the end of the standard input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, required=True)
    parser.add_argument("--total", type=Path, required=True)
    options = parser.parse_args()
    group = RankGroup(options.elements, options.total)
    say({})
    for line in sys.stdin:
        asked = json.loads(line)
        say(getattr(group, asked.pop("do"))(**asked))


if __name__ == "__main__":
    main()
