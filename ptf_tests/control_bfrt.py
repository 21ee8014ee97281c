"""The tests' BfRt client: the controller's messages and names, with one call after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TypeVar

import finsy as fy

from ptf_tests.control import Control, Count, Counts, Entity, worker_key
from ptf_tests.targets import HOST_PORTS, MONITOR_PORT, Description
from switchml.common.tls import Security
from switchml.controller.drivers.bfrt_entities import Held, Names
from switchml.controller.drivers.bfrt_ports import PORT_METADATA, RECIRCULATION_PORT, port_metadata_values
from switchml.controller.drivers.bfrt_schema import BfrtSchema, BfrtTable, SchemaMismatch
from switchml.controller.drivers.bfrt_session import BfrtSession
from switchml.dataplane.bfruntime import bfruntime_pb2 as pb
from switchml.dataplane.constants import DropReason

__all__ = ["BfrtControl"]

_EntityT = TypeVar("_EntityT", bound=Entity)
_KeyT = TypeVar("_KeyT")

_PROGRAM_TABLES = ("worker_table", "job_table", "rank_table", "l2_table")
_DROP_COUNTERS = ("SwitchMLIngress.drop_counter", "SwitchMLEgress.drop_counter")
_PORT: dict[str, str | bool] = {"$SPEED": "BF_SPEED_10G", "$FEC": "BF_FEC_TYP_NONE", "$PORT_ENABLE": True}


class BfrtControl(Control):
    """A client that is bound to the program. The tests' ports are device ports, all in pipe 0."""

    def __init__(self, description: Description) -> None:
        super().__init__()
        self._description = description

    async def _connect(self) -> None:
        security = Security(insecure=True)  # a model that listens on every address
        address = self._description.bfrt
        self._session = BfrtSession(lambda options: security.aio_channel(address, "", options), 0, lambda _, __: None)
        await self._session.__aenter__()
        answer = await self._session.programs()
        program = next(config for config in answer.config if config.p4_name == self._description.program)
        self._names = Names(BfrtSchema.parse(answer.non_p4_config.bfruntime_info, program.bfruntime_info))
        if not await self._session.bind(self._description.program):
            raise RuntimeError(f"another client of {self._description.bfrt} is bound to {self._description.program}")

    async def _disconnect(self) -> None:
        await self._session.__aexit__()

    async def _load(self) -> None:
        names, session = self._names, self._session
        groups = await self._groups()
        for group in groups.entities:
            assert isinstance(group, fy.P4MulticastGroupEntry)
            await session.write(names.deletion(group, groups.nodes[group.multicast_group_id]))
        await session.write(names.node_deletions(groups.orphans))
        address = fy.P4TableEntry("switch_address_table", is_default_action=True)
        cells = [*names.schema.of_kind("Register"), *names.schema.of_kind("Counter")]
        tables = [names.tables[name] for name in _PROGRAM_TABLES]
        await session.write([*map(names.clearing, tables), *names.deletion(address), *map(names.clearing, cells)])
        await self._set_up_ports()

    async def _set_up_ports(self) -> None:
        """Add the tests' ports, and configure the recirculation port if the program uses one."""
        port_table = self._names.schema.find("$PORT")
        numbers = (*HOST_PORTS, MONITOR_PORT)
        ports = [
            pb.TableEntry(table_id=port_table.id, key=port_table.key({"$DEV_PORT": n}), data=port_table.values(_PORT))
            for n in numbers
        ]
        await self._put(ports)
        try:
            metadata = self._names.schema.find(PORT_METADATA)
        except SchemaMismatch:
            return
        if RECIRCULATION_PORT not in metadata.data:
            return
        (key,) = metadata.keys
        recirculation = self._description.recirculation
        values = {number: port_metadata_values(metadata, recirculation, returns=False) for number in numbers}
        values[recirculation] = port_metadata_values(metadata, 0, returns=True)
        await self._put(
            pb.TableEntry(table_id=metadata.id, key=metadata.key({key: number}), data=metadata.values(data))
            for number, data in values.items()
        )

    async def _put(self, entries: Iterable[pb.TableEntry]) -> None:
        """Insert entries, and modify those that exist."""
        kind = pb.Update.INSERT_OR_MODIFY
        await self._session.write([pb.Update(type=kind, entity=pb.Entity(table_entry=entry)) for entry in entries])

    async def _insert(self, entities: Iterable[Entity]) -> None:
        known = map(_without_listeners, entities)
        await self._session.write([update for entity in known for update in self._names.insertion(entity)])

    async def _modify(self, entities: Iterable[Entity]) -> None:
        for entity in entities:
            if isinstance(entity, fy.P4MulticastGroupEntry):
                await self._delete([entity])
                await self._session.write(self._names.insertion(entity))
            else:
                await self._session.write(self._names.modification(_without_listeners(entity)))

    async def _delete(self, entities: Iterable[Entity]) -> None:
        for entity in entities:
            nodes = None
            if isinstance(entity, fy.P4MulticastGroupEntry):
                nodes = (await self._groups()).nodes[entity.multicast_group_id]
            await self._session.write(self._names.deletion(entity, nodes))

    async def _groups(self) -> Held:
        asked = map_requests(self._names, self._names.node, self._names.group)
        return self._names.held([entry async for entry in self._session.read(asked)])

    async def _counts(self, jobs: Iterable[int] | None) -> Counts:
        counts = Counts()
        for counter in _DROP_COUNTERS:
            _add(counts.drops, await self._cells(counter, DropReason))
        every = range(self._names.tables["job_counter"].size >> 4) if jobs is None else jobs
        indexes = [job << 4 | n for job in every for n in range(16)]
        _add(counts.verdicts, await self._cells("job_counter", indexes))
        workers = self._names.tables["worker_table"]
        await self._session.write([self._names.synchronisation(workers)])
        async for message in self._session.read([self._names.request(workers)]):
            entry = self._names.entry(message)
            if not entry.is_default_action and entry.counter_data is not None:
                data = entry.counter_data
                _add(counts.workers, {worker_key(entry): (data.packet_count, data.byte_count)})
        return counts

    async def _cells(self, counter: str, indexes: Iterable[int]) -> dict[int, Count]:
        names, table = self._names, self._names.tables[counter]
        await self._session.write([names.synchronisation(table)])
        requests = [names.request(table, {"$COUNTER_INDEX": index}) for index in indexes]
        cells = [names.cell(entry) async for entry in self._session.read(requests)]
        return {index: (packets, size) for _, index, packets, size in cells}

    async def _drops(self, reason: DropReason) -> int:
        return sum([(await self._cells(counter, [reason]))[reason][0] for counter in _DROP_COUNTERS])


def _without_listeners(entity: _EntityT) -> _EntityT:
    """Return an entity without the action parameter `ranks`, which a program without owned results does not have."""
    if not isinstance(entity, fy.P4TableEntry) or not isinstance(entity.action, fy.P4TableAction):
        return entity
    arguments = {name: value for name, value in entity.action.args.items() if name != "ranks"}
    return dataclasses.replace(entity, action=fy.Action(entity.action.name, **arguments))


def map_requests(names: Names, *tables: BfrtTable) -> list[pb.Entity]:
    """Return the requests for all entries of tables."""
    return [names.request(table) for table in tables]


def _add(counts: dict[_KeyT, Count], more: Mapping[_KeyT, Count]) -> None:
    for key, (packets, size) in more.items():
        if packets or size:
            before = counts.get(key, (0, 0))
            counts[key] = (before[0] + packets, before[1] + size)
