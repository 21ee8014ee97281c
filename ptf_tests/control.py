"""P4Runtime as the tests speak it: finsy, one call after the other."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar, cast

import finsy as fy
import grpc
from finsy.proto import U128, p4r

from dataplane.constants import DropReason
from ptf_tests.targets import Description

__all__ = ["Control", "Count", "Counts", "Entity"]

Entity = fy.P4TableEntry | fy.P4MulticastGroupEntry
Count = tuple[int, int]  # packets, bytes
_T = TypeVar("_T")
_SECONDS = 20.0


@dataclass
class Counts:
    """The counters that are not zero: drops by reason, verdicts by index (job << 4 | verdict), workers by match."""

    drops: dict[int, Count] = field(default_factory=dict)
    verdicts: dict[int, Count] = field(default_factory=dict)
    workers: dict[str, Count] = field(default_factory=dict)


class Control:
    """A P4Runtime session of a primary client; finsy runs in a thread of its own. A context manager."""

    def __init__(self, description: Description) -> None:
        self._description = description
        self._schema = fy.P4Schema(description.p4info, _Bytes(description.device_config))
        options = fy.SwitchOptions(p4info=description.p4info)
        self._switch = fy.Switch(description.name, description.p4runtime, options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="P4Runtime", daemon=True)

    def __enter__(self) -> Control:
        logging.getLogger("finsy").setLevel(logging.ERROR)  # it warns of what it finds before the pipeline is loaded
        self._thread.start()
        self._call(self._connect())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._call(self._switch.__aexit__(kind, error, traceback))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_SECONDS)

    def _call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_SECONDS)

    async def _connect(self) -> None:
        async with grpc.aio.insecure_channel(self._description.p4runtime) as channel:
            await asyncio.wait_for(channel.channel_ready(), _SECONDS)
        await self._switch.__aenter__()

    def load(self) -> None:
        """Load the pipeline anew: registers, tables, groups and counters are empty afterwards."""
        self._call(self._load())

    async def _load(self) -> None:
        # BMv2 keeps the multicast groups of the old pipeline but no longer lists them: one that is inserted again would
        # have every replica twice (behavioral-model issue 891).
        try:
            await self._switch.delete(await self._read([fy.P4MulticastGroupEntry()]))
        except fy.P4ClientError as error:
            if not error.is_pipeline_missing:
                raise
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self._switch.device_id,
            election_id=U128.encode(self._switch.election_id),
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=self._schema.get_pipeline_config(),
        )
        async with fy.P4Client(self._description.p4runtime) as client:
            await client.request(request)

    def insert(self, *entities: Entity) -> None:
        """Insert entries and groups. This and the following raise finsy.P4ClientError when the switch refuses."""
        self._call(self._switch.insert(entities))

    def modify(self, *entities: Entity) -> None:
        """Replace the actions and replicas of entries and groups that exist."""
        self._call(self._switch.modify(entities))

    def delete(self, *entities: Entity) -> None:
        """Delete entries and groups."""
        self._call(self._switch.delete(entities))

    def read(self, *entities: Any) -> list[Any]:
        """Return what the requests ask for."""
        return self._call(self._read(entities))

    async def _read(self, entities: Sequence[Any]) -> list[Any]:
        # finsy declares the overloads of its generator so that type checkers take them for coroutines.
        found = cast("AsyncIterator[Any]", self._switch.read(entities))
        return [entity async for entity in found]

    def counts(self, jobs: Iterable[int] | None = None) -> Counts:
        """Return every counter, or those of the verdicts of these jobs only."""
        requests: list[Any] = [
            fy.P4CounterEntry("drop_counter"),
            fy.P4TableEntry("worker_table", counter_data=fy.P4CounterData()),
        ]
        if jobs is None:
            requests.append(fy.P4CounterEntry("job_counter"))
        else:
            requests += [fy.P4CounterEntry("job_counter", index=job << 4 | n) for job in jobs for n in range(16)]
        counts = Counts()
        for entity in self.read(*requests):
            if isinstance(entity, fy.P4TableEntry):
                data = entity.counter_data
                assert data is not None
                _put(counts.workers, worker_key(entity), data)
            elif entity.counter_id == "drop_counter":
                _put(counts.drops, entity.index, entity.data)
            else:
                _put(counts.verdicts, entity.index, entity.data)
        return counts

    def drops(self, reason: DropReason) -> int:
        """Return how many packets were dropped for a reason."""
        (entry,) = self.read(fy.P4CounterEntry("drop_counter", index=reason))
        return int(entry.packet_count)


def worker_key(entry: fy.P4TableEntry) -> str:
    """Return a name for an entry of the worker table that is the same on every target."""
    match: Mapping[str, Any] = entry.match or {}
    return " ".join(f"{name}={match[name]}" for name in sorted(match)) + f" priority={entry.priority}"


def _put(counts: dict[Any, Count], key: Any, data: fy.P4CounterData | None) -> None:
    assert data is not None
    if data.packet_count or data.byte_count:
        counts[key] = (data.packet_count, data.byte_count)


class _Bytes:
    """What finsy takes for a program that is in memory already."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __bytes__(self) -> bytes:
        return self._data
