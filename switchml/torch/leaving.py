"""The agreement of a group's ranks to leave the network together, at the same call.

The ranks do not notice a failure at the same time or at the same call: a rank may have the result of a call that
another rank will never get from the switch. But it is ahead by less than the pool, because a slot is reused only after
all ranks have its result. So each rank keeps the results of that many chunks (`results_to_keep`), and gives them to the
ranks behind over Gloo. Calls whose result no rank has are made over Gloo from the beginning. So every call gives all
ranks the same bits, and no call is lost or made twice.

The ranks agree through the store. Each writes its standing. The first rank that finds that all have done so, or that
one will not, writes the verdict, and all ranks follow it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from switchml.common.job_numbers import rank_numbers
from switchml.torch.deadlines import Deadline

__all__ = ["RanksMissing", "Standing", "Stall", "agree_to_leave"]

_LOOK_SECONDS: Final = 0.02  # between two checks of the store while waiting for a rank
_LOST_SECONDS: Final = 0.8  # for a rank that the controller reports as lost to show that its process is alive
_SILENT_SECONDS: Final = 20.0  # for the other ranks, whose agents may report the failure a little later


@dataclass(frozen=True)
class Standing:
    """The progress of a rank: the number of the first call whose result it lacks, and its reason to leave."""

    first_unfinished: int
    reason: str


class RanksMissing(Exception):
    """Some ranks do not answer, so the group cannot continue. `ranks` are these, as ranks of the group."""

    def __init__(self, ranks: tuple[int, ...]) -> None:
        super().__init__(f"rank {rank_numbers(ranks)} of the group does not answer")
        self.ranks = ranks


def agree_to_leave(
    store: Any, rank: int, size: int, standing: Standing, suspects: Sequence[int], deadline: Deadline
) -> list[Standing]:
    """Publish the standing of this rank, wait until all ranks have agreed, and return the standings of all.

    Args:
        store: the group's store.
        rank: the rank of this process in the group.
        size: the number of ranks.
        standing: the standing of this rank.
        suspects: ranks that the controller reports as lost.
        deadline: that of the call that waits for the agreement.

    Raises:
        RanksMissing: the ranks have agreed that some are lost.

    """
    keys = [f"leave/{number}" for number in range(size)]
    store.set(keys[rank], json.dumps([standing.first_unfinished, standing.reason]))
    begin = time.monotonic()
    patience = dict.fromkeys(range(size), _SILENT_SECONDS) | dict.fromkeys(suspects, _LOST_SECONDS)
    while not store.check(["verdict"]):
        missing = [number for number in range(size) if not store.check([keys[number]])]
        passed = time.monotonic() - begin
        if not missing or deadline.passed or any(passed > patience[number] for number in missing):
            store.compare_set("verdict", "", json.dumps(missing))
        else:
            # store.wait() would log a warning at each timeout, with the host's name. Looking that up takes seconds if
            # the name server does not answer.
            time.sleep(_LOOK_SECONDS)
    missing = json.loads(store.get("verdict"))
    if missing:
        raise RanksMissing(tuple(missing))
    return [Standing(*json.loads(value)) for value in store.multi_get(keys)]


class Stall:
    """Detects that the switch is lost if neither agent nor controller reports it.

    A rank that has calls in flight and gets no results for a while reports this in the store. If all ranks report it at
    the same time, each has contributed to the first unfinished call, so the ranks do not wait for one of themselves.
    """

    def __init__(self, store: Any, size: int) -> None:
        self._store = store
        self._size = size
        self._counted = False

    def all_stand_still(self) -> bool:
        """Report that this rank gets no results, and return whether all ranks have reported this."""
        if not self._counted:
            self._counted = True
            if self._store.add("stalled", 1) == self._size:
                self._store.set("unreachable", "1")
        return bool(self._store.check(["unreachable"]))

    def moved(self) -> None:
        """Withdraw the report, because a result came."""
        if self._counted:
            self._counted = False
            self._store.add("stalled", -1)
