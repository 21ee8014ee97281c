"""How the ranks of a group agree to leave the network together, and from which call on.

A failure is not seen by all ranks at once, nor at the same call: a rank may have the result of a call that another one
will never get from the switch. It is ahead by less than the pool, though, because a slot is used again only when all
ranks have had its result; so who is ahead keeps the results of that many chunks (`results_to_keep`), and gives them
to the others over Gloo. Calls that nobody has the result of are done over Gloo from the start. So every call gives
all ranks the same bits, and none is lost or done twice.

The store carries the agreement: each rank writes where it stands; whoever first knows that all have, or that one will
not, writes the verdict, and all obey what is written.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

__all__ = ["RanksMissing", "Standing", "Stall", "agree_to_leave"]

_LOOK_SECONDS: Final = 0.1  # between two looks at the verdict while a rank is awaited
_LOST_SECONDS: Final = 0.8  # for a rank that the controller calls lost to say that its process lives
_SILENT_SECONDS: Final = 20.0  # for the others, who may hear of it from their agents a little later


@dataclass(frozen=True)
class Standing:
    """Where a rank stands: the number of the first call whose result it lacks, and why it leaves."""

    first_unfinished: int
    reason: str


class RanksMissing(Exception):
    """Ranks do not answer, so there is nothing to go on with. `ranks` are those, as ranks of the group."""

    def __init__(self, ranks: tuple[int, ...]) -> None:
        super().__init__(f"rank {', '.join(map(str, ranks))} of the group does not answer")
        self.ranks = ranks


def agree_to_leave(store: Any, rank: int, size: int, standing: Standing, suspects: Sequence[int]) -> list[Standing]:
    """Tell the others where this rank stands, and return where all stand, once all have agreed.

    Args:
        store: of the group.
        rank: of this process in the group.
        size: of the group.
        standing: of this rank.
        suspects: ranks that the controller calls lost.

    Raises:
        RanksMissing: the ranks have agreed that some are gone.

    """
    keys = [f"leave/{number}" for number in range(size)]
    store.set(keys[rank], json.dumps([standing.first_unfinished, standing.reason]))
    begin = time.monotonic()
    patience = dict.fromkeys(range(size), _SILENT_SECONDS) | dict.fromkeys(suspects, _LOST_SECONDS)
    while not store.check(["verdict"]):
        # What a store raises when the time is over depends on its kind; its keys tell as much.
        with contextlib.suppress(Exception):
            store.wait(keys, timedelta(seconds=_LOOK_SECONDS))
        missing = [number for number in range(size) if not store.check([keys[number]])]
        passed = time.monotonic() - begin
        if not missing or any(passed > patience[number] for number in missing):
            store.compare_set("verdict", "", json.dumps(missing))
    missing = json.loads(store.get("verdict"))
    if missing:
        raise RanksMissing(tuple(missing))
    return [Standing(*json.loads(value)) for value in store.multi_get(keys)]


class Stall:
    """Finds out that the switch is gone although nobody says so.

    A rank that has calls in flight and gets nothing for a while says so in the store. When all say it at the same time,
    each of them has contributed to the first unfinished call, so it is not a rank that keeps the others waiting.
    """

    def __init__(self, store: Any, size: int) -> None:
        self._store = store
        self._size = size
        self._counted = False

    def all_stand_still(self) -> bool:
        """Say that this rank gets nothing, and tell whether all have said so."""
        if not self._counted:
            self._counted = True
            if self._store.add("stalled", 1) == self._size:
                self._store.set("unreachable", "1")
        return bool(self._store.check(["unreachable"]))

    def moved(self) -> None:
        """Take it back: something came."""
        if self._counted:
            self._counted = False
            self._store.add("stalled", -1)
