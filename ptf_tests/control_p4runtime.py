"""The tests' P4Runtime client, based on finsy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, cast

import finsy as fy
import grpc
from finsy.proto import U128, p4r

from ptf_tests.control import Control, Count, Counts, Entity, worker_key
from ptf_tests.targets import Description
from switchml.dataplane.constants import DropReason

__all__ = ["P4RuntimeControl"]

_CONNECT_SECONDS = 40.0


class P4RuntimeControl(Control):
    """A P4Runtime session of a primary client."""

    def __init__(self, description: Description) -> None:
        super().__init__()
        self._description = description
        self._schema = fy.P4Schema(description.p4info, _Bytes(description.device_config))
        options = fy.SwitchOptions(p4info=description.p4info)
        self._switch = fy.Switch(description.name, description.p4runtime, options)

    async def _connect(self) -> None:
        # It warns of entries that exist before the pipeline is loaded.
        logging.getLogger("finsy").setLevel(logging.ERROR)
        async with grpc.aio.insecure_channel(self._description.p4runtime) as channel:
            await asyncio.wait_for(channel.channel_ready(), _CONNECT_SECONDS)
        await self._switch.__aenter__()

    async def _disconnect(self) -> None:
        await self._switch.__aexit__(None, None, None)

    async def _load(self) -> None:
        # BMv2 keeps the multicast groups of the old pipeline but no longer lists them: a group that is inserted again
        # would have every replica twice (behavioral-model issue 891).
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

    async def _insert(self, entities: Iterable[Entity]) -> None:
        await self._switch.insert(entities)

    async def _modify(self, entities: Iterable[Entity]) -> None:
        await self._switch.modify(entities)

    async def _delete(self, entities: Iterable[Entity]) -> None:
        await self._switch.delete(entities)

    async def _read(self, entities: Sequence[Any]) -> list[Any]:
        # finsy declares the overloads of its generator so that type checkers consider them coroutines.
        found = cast("AsyncIterator[Any]", self._switch.read(entities))
        return [entity async for entity in found]

    async def _counts(self, jobs: Iterable[int] | None) -> Counts:
        requests: list[Any] = [
            fy.P4CounterEntry("drop_counter"),
            fy.P4TableEntry("worker_table", counter_data=fy.P4CounterData()),
        ]
        if jobs is None:
            requests.append(fy.P4CounterEntry("job_counter"))
        else:
            requests += [fy.P4CounterEntry("job_counter", index=job << 4 | n) for job in jobs for n in range(16)]
        counts = Counts()
        for entity in await self._read(requests):
            if isinstance(entity, fy.P4TableEntry):
                data = entity.counter_data
                assert data is not None
                _put(counts.workers, worker_key(entity), data)
            elif entity.counter_id == "drop_counter":
                _put(counts.drops, entity.index, entity.data)
            else:
                _put(counts.verdicts, entity.index, entity.data)
        return counts

    async def _drops(self, reason: DropReason) -> int:
        (entry,) = await self._read([fy.P4CounterEntry("drop_counter", index=reason)])
        return int(entry.packet_count)


def _put(counts: dict[Any, Count], key: Any, data: fy.P4CounterData | None) -> None:
    assert data is not None
    if data.packet_count or data.byte_count:
        counts[key] = (data.packet_count, data.byte_count)


class _Bytes:
    """A program that is in memory already, in the form that finsy accepts."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __bytes__(self) -> bytes:
        return self._data
