"""The network of a group with a fallback, whose ranks leave it together, at the same call.

The ranks do not notice a failure at the same time or at the same call: a rank may have the result of a call that
another rank will never get from the switch. But it is ahead by less than the pool, because a slot is reused only after
all ranks have its result. So each rank keeps the results of that many chunks, and gives them to the ranks behind over
Gloo. Calls whose result no rank has are made over Gloo from the beginning. So every call gives all
ranks the same bits, and no call is lost or made twice.

The ranks agree through the store. Each writes its standing. The first rank that finds that all have done so, or that
one will not, writes the verdict, and all ranks follow it.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from switchml.client.communicator import Communicator
from switchml.client.errors import SwitchLost, SwitchMLError, WorkerLost
from switchml.common.job_numbers import rank_numbers
from switchml.torch.collectives import Collective
from switchml.torch.deadlines import Deadline
from switchml.torch.group import Group
from switchml.torch.paths import Link
from switchml.torch.routes import InNetwork, OverGloo, over_gloo

__all__ = ["InNetworkWithFallback", "RanksMissing", "Standing", "Stall", "agree_to_leave"]

_LOG = logging.getLogger("switchml.torch")
_LOOK_SECONDS: Final = 0.02  # between two checks of the store while waiting for a rank
_RESULT_SECONDS: Final = 1.0  # between two checks whether results come
_STALL_LOOKS: Final = 5  # checks without a result after which this rank reports that it gets none
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


class InNetworkWithFallback(InNetwork):
    """The network of a group that goes over Gloo when it is lost. Tensors are copied, so that calls can start again."""

    finishes_here = False

    def __init__(self, group: Group, comm: Communicator, link: Link) -> None:
        super().__init__(group, comm, link)
        self._finished = 0  # number of collectives that have ended
        self._chunks = 0  # of these, at least
        self._kept: deque[tuple[int, int, Collective]] = deque()  # with its number and the chunks up to its end

    def wait(self, collective: Collective) -> None:
        """Wait for a collective, until its deadline or until all ranks find that the switch sends no results any more.

        Raises:
            SwitchLost: the switch sends none.

        """
        stall, position, looks = Stall(self._group.store, self._group.size), self.comm.statistics().position, 0
        deadline = collective.deadline
        try:
            for handle in collective.handles:
                while not handle.ends_within(min(_RESULT_SECONDS, deadline.seconds_left)) and not deadline.passed:
                    looks += 1
                    if (now := self.comm.statistics().position) != position:
                        position, looks = now, 1
                        stall.moved()
                    if looks >= _STALL_LOOKS and stall.all_stand_still():
                        seconds = looks * _RESULT_SECONDS
                        raise SwitchLost(
                            f"nothing came from the switch for {seconds:g} s although every rank waits for it"
                        )
        finally:
            stall.moved()

    def ended(self, collective: Collective) -> None:
        """Keep the result for ranks that may lack it, which are less than a pool of chunks behind."""
        # A lower bound, because a word in a packet holds at most four float32; so no result is dropped too early.
        self._chunks += max(1, -(-collective.bytes // (4 * 4 * self.comm.values_per_packet)))
        self._kept.append((self._finished, self._chunks, collective))
        self._finished += 1
        while self._kept and self._kept[0][1] <= self._chunks - self.comm.slots:
            self._kept.popleft()

    def leave(
        self,
        error: SwitchMLError,
        unfinished: Sequence[Collective],
        deadline: Deadline,
        complete: Callable[[Collective], None],
    ) -> OverGloo:
        """Agree with all ranks on the route over Gloo, give all of them the same results up to now, and return it.

        Args:
            error: why this rank leaves.
            unfinished: its collectives in flight, and then those that wait.
            deadline: that of the agreement.
            complete: called with each of them whose result another rank had, and this one has now.

        Raises:
            RanksMissing: the ranks have agreed that some are lost.

        """
        group = self._group
        mine = Standing(self._finished, f"{type(error).__name__}: {error}")
        suspects = [rank for rank in getattr(error, "ranks", ()) if rank != group.rank]
        standings = agree_to_leave(group.store, group.rank, group.size, mine, suspects, deadline)
        route = over_gloo(group, _first_cause(standings), self, deadline)
        behind = min(standing.first_unfinished for standing in standings)
        ahead = max(standing.first_unfinished for standing in standings)
        _LOG.info("%s: rank %d shares the results of calls %d to %d", group, group.rank, behind, ahead - 1)
        kept = {number: collective for number, _, collective in self._kept}
        rest = deque(unfinished)
        for number in range(behind, ahead):
            giver = next(rank for rank, standing in enumerate(standings) if standing.first_unfinished > number)
            collective = kept.get(number) or rest.popleft()
            collective.share(route.gloo, giver, route.exact, deadline)
            if number not in kept:
                with torch.inference_mode():
                    collective.deliver()
                complete(collective)
        if route.exact is not None:
            # Collectives whose result no rank has are made over Gloo, in order, before those that wait.
            attempted = rest[0].first_call if rest else None
            route.exact.calls = self.comm.calls if attempted is None else attempted
        return route


def _first_cause(standings: Sequence[Standing]) -> str:
    """Return the reason for leaving the network; prefer others to "ranks were lost", which is mostly a consequence."""
    own = [rank for rank, standing in enumerate(standings) if not standing.reason.startswith(WorkerLost.__name__)]
    rank = own[0] if own else 0
    return f"rank {rank}: {standings[rank].reason}"
