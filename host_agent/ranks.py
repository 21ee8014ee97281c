"""The ranks of the agent's engine.

They are opened, stopped and closed on a separate thread: each of these takes milliseconds to seconds, because it
allocates memory and asks the switch. On the event loop it would delay heartbeats.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import Format
from switchml.host_agent._engine import Engine, RankAssignment
from switchml.host_agent.local_job import LocalRank
from switchml.host_agent.switch_watch import SwitchWatch

if TYPE_CHECKING:
    from switchml.host_agent._engine import RankProfile, RankStatus

__all__ = ["EngineRanks"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class EngineRanks:
    """The ranks of one engine, which are opened, stopped and closed one at a time, in the order of the requests.

    It belongs to one event loop. `address` is that of the host's data interface. With a `switch_socket`, a shm port of
    the switch, ranks share memory with the switch, except those of jobs over aggregators; otherwise packets use UDP,
    with DSCP `dscp[priority]`, by default 0.
    """

    def __init__(self, engine: Engine, address: str, switch_socket: Path | None, dscp: Mapping[int, int]) -> None:
        self.address = address
        self._dscp = dscp
        self._engine = engine
        self._switch_socket = switch_socket
        self._switches = SwitchWatch(engine)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="switchml-ranks")

    async def open(self, assignment: pb.Assignment, rank: int) -> LocalRank:
        """Open a rank and create its process's memory.

        Raises:
            OSError, ValueError: it cannot be opened; nothing remains open.

        """
        return await self._run(lambda: self._open(assignment, rank))

    def close(self, ranks: Iterable[LocalRank]) -> None:
        """Read the last status of open ranks and request that they are closed, before all that is requested later."""
        for rank in ranks:
            if rank.handle is None:
                continue
            self.read_status(rank)
            self._switches.end(rank.handle)
            handle, rank.handle = rank.handle, None
            self._thread.submit(self._engine.close_rank, handle)
            for descriptor in rank.take_descriptors():
                os.close(descriptor)

    def watch_switch(self, ranks: Iterable[LocalRank], gone: Callable[[], None]) -> None:
        """Call `gone`, at most once for each open rank, when the switch that shares memory with it has ended."""
        for rank in ranks:
            if rank.handle is not None:
                self._switches.begin(rank.handle, gone)

    def read_status(self, rank: LocalRank) -> RankStatus:
        """Return the status of a rank, which is its last one if it is not open."""
        if rank.handle is not None:
            rank.status = self._engine.status(rank.handle)
        return rank.status

    def profile(self, handle: int, calls: int) -> RankProfile:
        """Return how an open rank spends its time, with up to `calls` of its latest calls."""
        return self._engine.profile(handle, calls)

    def pause(self, ranks: Iterable[LocalRank], paused: bool) -> None:
        """Stop the packets of open ranks to and from their switches, or let them flow again."""
        for rank in ranks:
            if rank.handle is not None:
                self._engine.pause(rank.handle, paused)

    async def freeze(self, ranks: Iterable[LocalRank]) -> dict[int, list[int]]:
        """Stop ranks, and return the phases held in each slot by each rank, except by ranks that cannot be stopped."""
        return await self._of_each(ranks, self._engine.freeze)

    async def fetch(self, ranks: Iterable[LocalRank], targets: list[int]) -> dict[int, list[int]]:
        """Let stopped ranks fetch up to `targets`, and return the phases that they hold then, as `freeze` does."""
        return await self._of_each(ranks, lambda handle: self._engine.fetch(handle, targets))

    async def shut_down(self) -> None:
        """Wait for all requests; no more may follow."""
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    async def _run(self, operation: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, operation)

    async def _of_each(self, ranks: Iterable[LocalRank], act: Callable[[int], list[int]]) -> dict[int, list[int]]:
        handles = {rank.rank: rank.handle for rank in ranks if rank.handle is not None}
        return await self._run(lambda: _phases(handles, act))

    def _open(self, assignment: pb.Assignment, rank: int) -> LocalRank:
        given = self._native_assignment(assignment, rank)
        if self._switch_socket is not None and not assignment.aggregators:
            handle = self._engine.open_shm_rank(str(self._switch_socket), given)
        else:
            handle = self._engine.open_rank(given)
        try:
            descriptors = self._engine.open_channel(handle)
        except BaseException:
            self._engine.close_rank(handle)
            raise
        return LocalRank(rank, self._engine.sender(handle), handle, self._engine.status(handle), descriptors)

    def _native_assignment(self, assignment: pb.Assignment, rank: int) -> RankAssignment:
        numbers = dict(zip(assignment.ranks, assignment.wire_workers or assignment.ranks, strict=True))
        return RankAssignment(
            address=self.address,
            job=assignment.job,
            rank=rank,
            worker=numbers[rank],
            epoch=assignment.epoch,
            world_size=assignment.world_size,
            slot_base=assignment.slot_base,
            slots=assignment.slots,
            values=assignment.values_per_packet,
            secret=assignment.secret,
            optional_values=assignment.optional_values,
            owned_results=assignment.owned_results,
            switch_ranks=assignment.switch_ranks,
            one_port=assignment.one_port,
            formats=sum(1 << number for number in {*assignment.formats, Format.INT32}),
            workers=max(assignment.wire_workers) + 1 if assignment.wire_workers else 0,
            priority=assignment.priority,
            tenant=_tenant_number(assignment.tenant),
            switch_address=assignment.switch_address,
            switch_udp_port=assignment.switch_udp_port,
            multicast_address=assignment.multicast_address,
            aggregators=[(one.address, one.udp_port) for one in assignment.aggregators],
            dscp=self._dscp.get(assignment.priority, 0),
        )


def _tenant_number(tenant: str) -> int:
    """Return the tenant's number; priorities order the jobs of one tenant only."""
    return int.from_bytes(hashlib.sha256(tenant.encode()).digest()[:8], "big") if tenant else 0


def _phases(handles: Mapping[int, int], act: Callable[[int], list[int]]) -> dict[int, list[int]]:
    found = {}
    for rank, handle in handles.items():
        try:
            found[rank] = act(handle)
        except KeyError:  # noqa: PERF203
            _log.info("rank %d was closed before it could be stopped", rank)
        except (OSError, ValueError) as error:
            _log.error("rank %d cannot be stopped: %s", rank, error)
    return found
