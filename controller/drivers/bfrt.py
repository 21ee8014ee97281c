"""The driver of a Tofino through BfRt: bf_switchd with SwitchML's TNA program.

It implements the gRPC protocol itself, so that the controller needs no SDE and nothing blocks the event loop.
bf_switchd has loaded the program; the driver only checks and binds it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import finsy as fy
import grpc

from switchml.common.tls import ChannelOptions, Security, TlsError, switch_name
from switchml.controller.drivers import (
    Capabilities,
    Driver,
    JobTables,
    JobTraffic,
    PortLoss,
    SwitchContents,
    SwitchSettings,
)
from switchml.controller.drivers.bfrt_entities import Held, Names
from switchml.controller.drivers.bfrt_ports import BfrtPorts, pipe_of
from switchml.controller.drivers.bfrt_schema import BadAnswer, BfrtSchema, BfrtTable, SchemaMismatch
from switchml.controller.drivers.bfrt_session import BfrtError, BfrtSession
from switchml.controller.drivers.p4tables import (
    JOB_TABLES,
    NONCE,
    Entity,
    compare,
    is_nonce,
    job_entities,
    job_traffic,
    nonce_entry,
    nonce_of,
    printed_entry,
    printed_group,
    switch_address_entry,
    verdict_index,
)
from switchml.controller.errors import ConfigError, ControllerError, NoAgent, SwitchRefused, SwitchUnavailable
from switchml.dataplane.bfruntime import bfruntime_pb2 as bfrt_pb
from switchml.dataplane.constants import DropReason, Verdict
from switchml.dataplane.targets import BUILD

__all__ = ["BfrtDriver"]

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

_RETRY_SECONDS = 0.5
_ADDRESS_TABLE = "switch_address_table"
_DROP_COUNTERS = ("SwitchMLIngress.drop_counter", "SwitchMLEgress.drop_counter")
_MISTAKES = (BfrtError, SchemaMismatch, BadAnswer)


@dataclasses.dataclass(frozen=True)
class _Connection:
    """The state while the switch is connected and bound."""

    session: BfrtSession
    names: Names
    ports: BfrtPorts


class BfrtDriver(Driver):
    """Drives one device of one bf_switchd."""

    def __init__(self, settings: SwitchSettings, security: Security | None = None) -> None:
        """Read the tables of SwitchML's program.

        Raises:
            ConfigError: its bfrt.json is missing or not usable.

        """
        self.settings = settings
        self._security = security or Security()
        self._capabilities = _capabilities(settings)
        self._connection: _Connection | None = None
        self._wake = asyncio.Event()

    @property
    def capabilities(self) -> Capabilities:
        """The limits of the pipeline."""
        return self._capabilities

    def pipe(self, port: int) -> int:
        """Return the pipe of an agent's switch port; raise NoAgent if the port is not configured."""
        device_port = self._connection.ports.device_port(port) if self._connection else None
        if device_port is None:
            raise NoAgent(
                f"an agent is attached to port {port} of switch {self.settings.name}, which has no such port: give it a"
                " [[switches.ports]] table, or the agent another --switch-port",
                port=port,
            )
        return pipe_of(device_port)

    # ---- connection ------------------------------------------------------------------------------------------------

    async def run(self, prepare: Callable[[bool], Awaitable[None]]) -> None:
        """Keep the switch connected until cancelled; see Driver."""
        while True:
            try:
                await self._connect(prepare)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # the next attempt may succeed after any error
                self._note_failure(error)
            finally:
                self._connection, self.connected, self.primary, self.api_version = None, False, False, ""
            await asyncio.sleep(_RETRY_SECONDS)

    def _channel(self, options: ChannelOptions) -> grpc.aio.Channel:
        try:
            return self._security.aio_channel(self.settings.control, switch_name(self.settings.name), options)
        except TlsError as error:
            raise ConfigError(str(error)) from None

    async def _connect(self, prepare: Callable[[bool], Awaitable[None]]) -> None:
        """Connect, prepare the switch, and stay until the connection ends, always with an exception."""
        session = BfrtSession(self._channel, self.settings.device, self._port_changed)
        async with session:
            schema = await self._read_program(session)
            while not await session.bind(self.settings.program):
                if not self.connected:
                    _LOG.warning("switch %s has another primary controller; this one stands by", self.settings.name)
                self.connected, self.failure = True, ""
                await _wait(session.ended, asyncio.sleep(_RETRY_SECONDS))
            self.connected, self.primary = False, True
            self._connection = _Connection(session, Names(schema), BfrtPorts(schema, self.settings.ports))
            while True:
                self._wake.clear()
                await prepare(await self._prepare_ports())
                _LOG.info("switch %s is connected at %s", self.settings.name, self.settings.control)
                self.connected, self.failure = True, ""
                await _wait(session.ended, self._wake.wait())
                self.connected = False

    async def _read_program(self, session: BfrtSession) -> BfrtSchema:
        """Check that the switch runs SwitchML's program, and return the schema of its tables."""
        answer = await session.programs()
        found = {config.p4_name: config.bfruntime_info for config in answer.config}
        wanted = self.settings.program
        if wanted not in found:
            runs = ", ".join(map(repr, found)) or "no P4 program"
            raise SwitchRefused(
                f"switch {self.settings.name} runs {runs} and not {wanted!r}: start bf_switchd with the configuration"
                f" file of our program (docs/operate/tofino.md), or set program for the switch"
            )
        schema = await asyncio.to_thread(BfrtSchema.parse, answer.non_p4_config.bfruntime_info, found[wanted])
        try:
            Names(schema)
            BfrtPorts(schema, self.settings.ports)
            offered = _capabilities_of(schema)
        except SchemaMismatch as error:
            raise SwitchRefused(
                f"switch {self.settings.name} runs a program {wanted!r} that is not SwitchML's, or an SDE that is not"
                f" supported: {error}; compile dataplane/p4/tna of this version and start bf_switchd with it"
                " (docs/operate/tofino.md)"
            ) from None
        if offered != self._capabilities:
            raise SwitchRefused(
                f"switch {self.settings.name} runs program {wanted!r} with {_described(offered)}; this controller's has"
                f" {_described(self._capabilities)}: compile dataplane/p4/tna of this version and start bf_switchd with"
                " it"
            )
        return schema

    async def _prepare_ports(self) -> bool:
        """Set the ports up; return whether the switch was empty, so that no controller has set its address yet."""

        async def prepare(connection: _Connection) -> bool:
            written = await connection.ports.set_up(connection.session)
            if written:
                _LOG.info("switch %s: %d updates written to set its ports up", self.settings.name, written)
            default = await self._read(connection, [connection.names.tables[_ADDRESS_TABLE]], default=True)
            return not any(_is_set(entity) for entity in default.entities)

        return await self._call("to set its ports up", prepare)

    def _port_changed(self, entry: bfrt_pb.TableEntry, up: bool) -> None:
        if self._connection is None:
            return
        try:
            what = self._connection.ports.describe(self._connection.ports.changed(entry))
        except BadAnswer as error:
            _LOG.warning("switch %s: %s", self.settings.name, error)
            return
        _LOG.log(
            logging.INFO if up else logging.WARNING,
            "switch %s: port %s is %s",
            self.settings.name,
            what,
            "up" if up else "down",
        )

    def _note_failure(self, error: Exception) -> None:
        """Store the reason why an attempt failed, and log it if it has changed."""
        before = self.failure
        self.failure = str(error)
        if isinstance(error, BadAnswer):
            self.failure = f"its answers are invalid: {error}"
        elif not isinstance(error, (ControllerError, *_MISTAKES)):
            _LOG.error("the connection to switch %s failed", self.settings.name, exc_info=error)
        if self.failure != before:
            _LOG.warning("switch %s at %s: %s", self.settings.name, self.settings.control, self.failure)

    def prepare_again(self) -> None:
        """Make ``run`` prepare the switch once more."""
        self._wake.set()

    async def reload(self) -> None:
        """Empty tables, groups, registers and counters; the program stays, and so do the ports."""

        async def clear(connection: _Connection) -> None:
            session, names = connection.session, connection.names
            held = await self._read(connection, [names.node, names.group])
            for group in held.entities:
                await session.write(names.deletion(group, held.nodes[_group_id(group)]), absent_is_fine=True)
            await session.write(names.node_deletions(held.orphans), absent_is_fine=True)
            address = fy.P4TableEntry(_ADDRESS_TABLE, is_default_action=True)
            cells = [*names.schema.of_kind("Register"), *names.schema.of_kind("Counter")]
            tables = [names.tables[name] for name in (*JOB_TABLES[::-1], "l2_table")]
            await session.write([*map(names.clearing, tables), *names.deletion(address), *map(names.clearing, cells)])
            await self._check_registers(connection)

        await self._call("to be emptied", clear)
        _LOG.info("switch %s: tables, registers and counters emptied", self.settings.name)

    async def _check_registers(self, connection: _Connection) -> None:
        """Check that the epochs of the first and the last slot are 0; a register has one value for each pipe."""
        names, register = connection.names, connection.names.schema.epoch_register
        await connection.session.write([names.synchronisation(register)])
        indexes = (0, register.size - 1)
        requests = [names.request(register, {"$REGISTER_INDEX": index}) for index in indexes]
        left = {}
        async for entry in connection.session.read(requests):
            index = register.read_key(entry.key)["$REGISTER_INDEX"]
            left[index] = [value for values in register.read_values(entry.data)[1].values() for value in values]
        if set(left) != set(indexes) or any(not values or any(values) for values in left.values()):
            raise BadAnswer(f"register {register.name} was emptied, and then held {left}")

    async def read_nonce(self) -> int:
        """Return the nonce that was written last; 0 if none was since the switch was emptied."""
        return await self._call("to read its nonce", self._nonce)

    async def write_nonce(self, nonce: int) -> None:
        """Write a nonce, which the switch keeps until it is emptied or another one is written."""
        entry = nonce_entry(nonce, owned_results=False)

        async def write(connection: _Connection) -> None:
            names = connection.names
            update = names.modification if await self._nonce(connection) else names.insertion
            await connection.session.write(update(entry))

        await self._call("to keep a nonce", write)

    async def _nonce(self, connection: _Connection) -> int:
        names = connection.names
        request = names.request(names.tables["rank_table"], NONCE)
        entries = connection.session.read([request], absent_is_fine=True)
        return nonce_of([names.entry(entry) async for entry in entries])

    # ---- tables ----------------------------------------------------------------------------------------------------

    async def reconcile(self, jobs: Sequence[JobTables]) -> int:
        """Make the switch hold the tables of these jobs and no others; return the number of updates written."""

        async def write_difference(connection: _Connection) -> int:
            session, names = connection.session, connection.names
            address = switch_address_entry(self.settings.mac, self.settings.address)
            wanted = [entity for job in jobs for entity in self._entities(connection, job)]
            tables = [names.node, names.group, *(names.tables[name] for name in JOB_TABLES)]
            held = await self._read(connection, tables)
            default = await self._read(connection, [names.tables[_ADDRESS_TABLE]], default=True)
            jobs_entities = [entity for entity in held.entities if not is_nonce(entity)]
            difference = compare([*jobs_entities, *default.entities], [*wanted, address])
            # A group is replaced as a whole, with its nodes.
            groups = [entity for entity in difference.modify if isinstance(entity, fy.P4MulticastGroupEntry)]
            await self._delete(connection, [*difference.delete, *groups], held)
            await session.write(names.node_deletions(held.orphans), absent_is_fine=True)
            changed = [*difference.modify, *(one for one in difference.insert if _is_default(one))]
            entries = [entity for entity in changed if isinstance(entity, fy.P4TableEntry)]
            await session.write([update for entry in entries for update in names.modification(entry)])
            await self._insert(connection, [*groups, *(one for one in difference.insert if not _is_default(one))])
            return len(difference) + len(held.orphans)

        written = await self._call("the tables of its jobs", write_difference)
        if written:
            _LOG.info(
                "switch %s: %d updates written to hold the tables of %d jobs", self.settings.name, written, len(jobs)
            )
        return written

    async def install_job(self, job: JobTables) -> None:
        """Write the tables of a new job, and set its counters to 0."""

        async def write(connection: _Connection) -> None:
            counted = await self._verdicts(connection, [job.job])
            resets = [
                connection.names.counter_update("job_counter", index) for index, packets in counted.items() if packets
            ]
            await connection.session.write(resets)
            await self._insert(connection, self._entities(connection, job))

        await self._call(f"the tables of job {job.job}", write)

    async def replace_job(self, old: JobTables, new: JobTables) -> None:
        """Delete all of a job's tables, those that admit packets first, then write its new ones; counters stay."""

        async def write(connection: _Connection) -> None:
            await self._delete(connection, self._entities(connection, old)[::-1])
            await self._insert(connection, self._entities(connection, new))

        await self._call(f"the tables of job {new.job} in epoch {new.epoch}", write)

    async def remove_job(self, job: JobTables) -> None:
        """Delete those tables of a job that exist, in the reverse order."""

        async def delete(connection: _Connection) -> None:
            await self._delete(connection, self._entities(connection, job)[::-1])

        await self._call(f"to delete the tables of job {job.job}", delete)

    def _entities(self, connection: _Connection, job: JobTables) -> list[Entity]:
        """Return a job's entities with device ports, all in one pipe; raises SwitchRefused."""
        attached = {f"rank {rank.rank}": rank.port for rank in job.ranks}
        if job.parent is not None:
            attached["the parent"] = job.parent.port
        ports: dict[int, int] = {}  # the device port of each
        pipes: dict[int, list[str]] = {}
        for what, number in attached.items():
            port = connection.ports.device_port(number)
            if port is None:
                raise SwitchRefused(f"switch {self.settings.name} has no port {number}, to which {what} is attached")
            ports[number] = port
            pipes.setdefault(pipe_of(port), []).append(what)
        if len(pipes) > 1:
            where = "; ".join(f"pipe {pipe} has {', '.join(pipes[pipe])}" for pipe in sorted(pipes))
            raise SwitchRefused(
                f"the ports of job {job.job} lie on several pipes of switch {self.settings.name}, whose registers are"
                f" not shared: {where}; link its hosts and switches to ports of one pipe"
            )
        ranks = tuple(dataclasses.replace(rank, port=ports[rank.port]) for rank in job.ranks)
        parent = dataclasses.replace(job.parent, port=ports[job.parent.port]) if job.parent is not None else None
        return job_entities(dataclasses.replace(job, ranks=ranks, parent=parent), owned_results=False)

    async def _insert(self, connection: _Connection, entities: Iterable[Entity]) -> None:
        """Insert entities in order, with a call for each table: after a failure no later table is written."""
        for updates in _by_table(connection.names.insertion(entity) for entity in entities):
            await connection.session.write(updates)

    async def _delete(self, connection: _Connection, entities: Iterable[Entity], held: Held | None = None) -> None:
        """Delete those of the entities that exist, in order."""
        nodes = held.nodes if held else {}
        deletions = (connection.names.deletion(entity, nodes.get(_group_id(entity))) for entity in entities)
        for updates in _by_table(deletions):
            await connection.session.write(updates, absent_is_fine=True)

    async def _read(self, connection: _Connection, tables: Sequence[BfrtTable], *, default: bool = False) -> Held:
        """Return all entries of tables, or their default entries."""
        requests = [connection.names.request(table, default=default) for table in tables]
        # A read of all entries includes the default entry.
        entries = [entry async for entry in connection.session.read(requests) if entry.is_default_entry == default]
        return connection.names.held(entries)

    # ---- counters --------------------------------------------------------------------------------------------------

    async def read_verdicts(self, job_ids: Sequence[int]) -> dict[Verdict, int]:
        """Return the packets by verdict, summed over the jobs."""

        async def read(connection: _Connection) -> dict[Verdict, int]:
            total = dict.fromkeys(Verdict, 0)
            for index, packets in (await self._verdicts(connection, job_ids)).items():
                total[Verdict(index & 0xF)] += packets
            return total

        return await self._call("to read its job counters", read)

    async def read_traffic(self, job: JobTables, children: Sequence[int]) -> JobTraffic:
        """Return the packets of a job that the switch has received; `children` are the numbers of switches below."""

        async def read(connection: _Connection) -> JobTraffic:
            names = connection.names
            counted = await self._verdicts(connection, [job.job])
            await connection.session.write([names.synchronisation(names.tables["worker_table"])])
            held = await self._read(connection, [names.tables["worker_table"]])
            entries = [entry for entry in held.entities if isinstance(entry, fy.P4TableEntry)]
            verdicts = {Verdict(index & 0xF): packets for index, packets in counted.items()}
            return job_traffic(job, children, verdicts, entries)

        return await self._call("to read its counters of senders", read)

    async def _verdicts(self, connection: _Connection, job_ids: Iterable[int]) -> dict[int, int]:
        indexes = [verdict_index(job, verdict) for job in job_ids for verdict in Verdict]
        cells = await self._cells(connection, "job_counter", indexes)
        if missing := set(indexes) - cells.keys():
            raise BadAnswer(f"job_counter came without {len(missing)} of {len(indexes)} cells")
        return {index: cells[index] for index in indexes}

    async def _cells(self, connection: _Connection, counter: str, indexes: Iterable[int]) -> dict[int, int]:
        """Return the packets of a counter's cells, which are fetched from the hardware first."""
        names, table = connection.names, connection.names.tables[counter]
        await connection.session.write([names.synchronisation(table)])
        requests = [names.request(table, {"$COUNTER_INDEX": index}) for index in indexes]
        found = [names.cell(entry) async for entry in connection.session.read(requests)]
        return {index: packets for _, index, packets, _ in found}

    async def set_loss(self, ports: Sequence[int], shares: Mapping[str, float]) -> list[PortLoss]:
        """Raise SwitchRefused, because the TNA program has no loss tables; do nothing if there is nothing to set."""
        if ports and shares:
            raise SwitchRefused(
                f"switch {self.settings.name} is a {self.settings.target}, and this target cannot lose packets on"
                " purpose"
            )
        return []

    async def read_contents(self) -> SwitchContents:
        """Return tables, groups and drop counters; no port loses packets on purpose."""

        async def read(connection: _Connection) -> SwitchContents:
            names = connection.names
            await connection.session.write([names.synchronisation(names.tables["worker_table"])])
            tables = [names.tables[name] for name in ("l2_table", *JOB_TABLES)]
            held = await self._read(connection, [names.node, names.group, *tables])
            default = await self._read(connection, [names.tables[_ADDRESS_TABLE]], default=True)
            entries = [entity for entity in (*held.entities, *default.entities) if not is_nonce(entity)]
            drops = dict.fromkeys(DropReason, 0)
            for counter in _DROP_COUNTERS:
                for reason, packets in (await self._cells(connection, counter, DropReason)).items():
                    drops[DropReason(reason)] += packets
            return SwitchContents(
                [printed_entry(entry) for entry in entries if isinstance(entry, fy.P4TableEntry)],
                [printed_group(group) for group in entries if isinstance(group, fy.P4MulticastGroupEntry)],
                drops,
                [],
            )

        return await self._call("to read its tables", read)

    # ---- calls -----------------------------------------------------------------------------------------------------

    async def _call(self, what: str, operation: Callable[[_Connection], Coroutine[Any, Any, _T]]) -> _T:
        """Run an operation on the connected switch and turn its errors into ControllerErrors.

        If the caller is cancelled, the operation is finished first, so that a later one cannot reach the switch before
        it; the deadlines of its calls limit this time.
        """
        connection = self._connection
        if connection is None:
            why = "another controller is its primary" if self.connected else self.failure
            raise self._unavailable(why)
        task = asyncio.create_task(operation(connection))
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            await asyncio.wait({task})
            raise
        if task.cancelled():  # a closing connection cancels its calls, which is not a cancellation of the caller
            raise self._unavailable("the connection was closed")
        try:
            return task.result()
        except BfrtError as error:
            if error.lost:
                raise self._unavailable(str(error)) from None
            raise SwitchRefused(f"switch {self.settings.name} refused {what}: {error}") from None
        except SchemaMismatch as error:
            raise SwitchRefused(f"switch {self.settings.name} cannot be asked {what}: {error}") from None
        except BadAnswer as error:
            raise SwitchRefused(
                f"switch {self.settings.name} was asked {what}, and its answer is invalid: {error}"
            ) from None

    def _unavailable(self, why: str) -> SwitchUnavailable:
        return SwitchUnavailable(f"switch {self.settings.name} at {self.settings.control} is not available: {why}")


async def _wait(ended: asyncio.Future[None], other: Coroutine[Any, Any, Any]) -> None:
    """Wait for `other`; raise BfrtError if the connection ends before it."""
    task = asyncio.ensure_future(other)
    try:
        await asyncio.wait({ended, task}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            raise BfrtError(grpc.StatusCode.UNAVAILABLE, "the connection was closed")
    finally:
        task.cancel()
        await asyncio.wait({task})  # `await task` could not distinguish its cancellation from the caller's


def _by_table(parts: Iterable[list[bfrt_pb.Update]]) -> Iterable[list[bfrt_pb.Update]]:
    """Yield updates in order, with successive ones for the same table together."""
    batch: list[bfrt_pb.Update] = []
    for update in (update for part in parts for update in part):
        if batch and update.entity.table_entry.table_id != batch[-1].entity.table_entry.table_id:
            yield batch
            batch = []
        batch.append(update)
    if batch:
        yield batch


def _is_default(entity: Entity) -> bool:
    return isinstance(entity, fy.P4TableEntry) and entity.is_default_action


def _is_set(entity: Entity) -> bool:
    """Return whether a controller has written the default entry of the address table."""
    return (
        isinstance(entity, fy.P4TableEntry)
        and isinstance(entity.action, fy.P4TableAction)
        and (any(entity.action.args.values()))
    )


def _group_id(entity: Entity) -> int:
    """Return the group id; 0 for a table entry."""
    return entity.multicast_group_id if isinstance(entity, fy.P4MulticastGroupEntry) else 0


def _capabilities_of(schema: BfrtSchema) -> Capabilities:
    """Return the properties of a pipeline; raise SchemaMismatch if it is not SwitchML's."""
    return Capabilities(
        schema.values_per_packet, schema.slots, schema.max_workers, streamed=schema.streamed, leaf=schema.leaf
    )


def _described(capabilities: Capabilities) -> str:
    """Return the properties that differ between versions of the program, for a message."""
    sparse = "with" if capabilities.streamed else "without"
    sizes = f"{capabilities.values_per_packet} values per packet, {capabilities.slots} slots"
    return f"{sizes}, {sparse} streamed sparse calls"


def _capabilities(settings: SwitchSettings) -> Capabilities:
    try:
        schema = BfrtSchema.parse((BUILD / settings.target.name / "bfrt.json").read_bytes())
        capabilities = _capabilities_of(schema)
    except OSError as error:
        raise ConfigError(
            f"switch {settings.name}: {error.filename} cannot be read: {error.strerror}; the P4 program is not compiled"
            f" for {settings.target} (python -m switchml.dataplane.compiler --target {settings.target})"
        ) from None
    except (BadAnswer, SchemaMismatch) as error:
        raise ConfigError(f"switch {settings.name}: the P4 program's bfrt.json is damaged: {error}") from None
    if settings.values_per_packet not in (0, capabilities.values_per_packet):
        raise ConfigError(
            f"switch {settings.name}: values_per_packet is {settings.values_per_packet}; the P4 program for"
            f" {settings.target} is compiled for {capabilities.values_per_packet}"
        )
    return capabilities
