"""A switch driven through P4Runtime: the soft switch and BMv2."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import finsy as fy
from finsy.proto import U128, p4i, p4r
from google.protobuf import text_format

from switchml.common.deadline import within
from switchml.common.grpc_address import nothing_listens
from switchml.common.tls import Security, TlsError, switch_name
from switchml.controller.drivers import (
    Capabilities,
    Driver,
    JobTables,
    JobTraffic,
    PortLoss,
    SwitchContents,
    SwitchSettings,
)
from switchml.controller.drivers.p4tables import (
    JOB_TABLES,
    NONCE,
    Entity,
    compare,
    is_nonce,
    job_entities,
    job_traffic,
    link_entries,
    loss_entry,
    loss_port,
    loss_threshold,
    nonce_entry,
    nonce_of,
    port_losses,
    printed_entry,
    printed_group,
    switch_address_entry,
    verdict_index,
)
from switchml.controller.errors import ConfigError, ControllerError, SwitchRefused, SwitchUnavailable
from switchml.controller.version import require_same_release
from switchml.dataplane.constants import DropReason, Format, Verdict
from switchml.dataplane.table_names import LOSS_TABLES
from switchml.dataplane.targets import BMV2

__all__ = ["P4RuntimeDriver"]

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_E = TypeVar("_E", bound=fy.p4entity.P4Entity)

_CONNECT_SECONDS = 10.0
_RETRY_SECONDS = 0.5
_P4INFO = ".p4info.txtpb"
_VALUES_ANNOTATION = "switchml_values_per_packet"
_STREAMED_ANNOTATION = "switchml_streamed"
_OWNED_ANNOTATION = "switchml_owned_results"
_ROCEV2_ANNOTATION = "switchml_rocev2"
_LEAF_ANNOTATION = "switchml_leaf"
_FORMATS_ANNOTATION = "switchml_formats"
_LOST_CODES = (fy.GRPCStatusCode.UNAVAILABLE, fy.GRPCStatusCode.DEADLINE_EXCEEDED, fy.GRPCStatusCode.CANCELLED)


class P4RuntimeDriver(Driver):
    """Drives one P4Runtime target with finsy.

    In both targets the process that listens for P4Runtime also holds the registers: if nothing listens any more, they
    are lost.

    finsy connects and arbitrates. The pipeline is loaded here and not by finsy, because only then is a refusal an
    exception that can be reported to the user.
    """

    def __init__(self, settings: SwitchSettings, election_id: int = 10, security: Security | None = None) -> None:
        """Read the pipeline's files.

        If two controllers are connected to a switch, the one with the higher `election_id` is primary (P4Runtime,
        "Client Arbitration").

        Raises:
            ConfigError: a file is missing or not usable.
            VersionMismatch: the P4 program is of another version.

        """
        self.settings = settings
        self._election_id = election_id
        self._security = security or Security()
        self._credentials: fy.GRPCCredentialsTLS | None = None
        self._p4info, self._schema = _load_pipeline(settings)
        require_same_release(f"the P4 program of switch {settings.name}", self._p4info.pkg_info.version)
        self._capabilities = _capabilities(settings, self._p4info)
        self._switch: fy.Switch | None = None
        self._events: asyncio.Queue[fy.SwitchEvent | None] = asyncio.Queue()
        self._down: asyncio.Future[None] | None = None

    @property
    def capabilities(self) -> Capabilities:
        """The limits of the pipeline."""
        return self._capabilities

    # ---- connection ------------------------------------------------------------------------------------------------

    async def run(self, prepare: Callable[[bool], Awaitable[None]]) -> None:
        """Keep the switch connected until cancelled; see Driver."""
        while True:
            # If its set-up fails, finsy cancels the task that waits for it, so this must be a separate task.
            attempt = asyncio.create_task(self._connection(prepare), name=f"connection to {self.settings.name}")
            try:
                await asyncio.wait({attempt})
                self._note_failure(attempt)
            finally:
                attempt.cancel()
                await asyncio.wait({attempt})
                self._disconnected()
            self.ended = await nothing_listens(self.settings.control)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _connection(self, prepare: Callable[[bool], Awaitable[None]]) -> None:
        """Connect, prepare the switch, and stay until the connection ends, always with an exception."""
        self._events = asyncio.Queue()
        self._down = asyncio.get_running_loop().create_future()
        self._credentials = self._read_credentials()
        options = fy.SwitchOptions(
            p4info=_program(self.settings).with_suffix(_P4INFO),
            device_id=self.settings.device,
            initial_election_id=self._election_id,
            channel_credentials=self._credentials,
        )
        switch = fy.Switch(self.settings.name, self.settings.control, options)
        for event in (fy.SwitchEvent.CHANNEL_DOWN, fy.SwitchEvent.BECOME_PRIMARY, fy.SwitchEvent.BECOME_BACKUP):
            switch.ee.on(event, lambda *_, event=event: self._events.put_nowait(event))
        async with contextlib.AsyncExitStack() as stack:
            await within(_CONNECT_SECONDS, stack.enter_async_context(switch))
            self._switch, self.ended = switch, False
            # finsy has read the version, and writes the replicas of multicast groups in the form that it requires.
            self.api_version = ".".join(map(str, switch.p4runtime_version[:3]))
            while True:
                self.primary = switch.is_primary
                if self.primary:
                    await prepare(await self._ensure_pipeline())
                    _LOG.info("switch %s is connected at %s", self.settings.name, self.settings.control)
                else:
                    _LOG.warning("switch %s has another primary controller; this one stands by", self.settings.name)
                self.connected, self.failure = True, ""
                if await self._events.get() is fy.SwitchEvent.CHANNEL_DOWN:
                    raise self._unavailable("the connection was closed")
                self.connected = False

    def _read_credentials(self) -> fy.GRPCCredentialsTLS | None:
        """Return the current contents of the certificates' files; None without TLS."""
        try:
            certificates = self._security.certificates_for(self.settings.control)
            pem = certificates.read() if certificates is not None else None
        except TlsError as error:
            raise ConfigError(str(error)) from None
        if pem is None:
            return None
        name = switch_name(self.settings.name)
        return fy.GRPCCredentialsTLS(
            cacert=pem.ca, cert=pem.certificate, private_key=pem.key, target_name_override=name
        )

    def _disconnected(self) -> None:
        self._switch, self.connected, self.primary, self.api_version = None, False, False, ""
        if self._down is not None and not self._down.done():
            self._down.set_result(None)

    def _note_failure(self, attempt: asyncio.Task[None]) -> None:
        """Store the reason why an attempt failed, and log it if it has changed."""
        error = None if attempt.cancelled() else attempt.exception()
        before = self.failure
        if error is None:
            self.failure = "the P4Runtime session ended during its set-up"
        elif isinstance(error, fy.P4ClientError):
            self.failure = error.message
        elif isinstance(error, asyncio.TimeoutError):
            self.failure = f"no answer within {_CONNECT_SECONDS:g} s"
        else:
            self.failure = str(error)
            if not isinstance(error, ControllerError):
                _LOG.error("the connection to switch %s failed", self.settings.name, exc_info=error)
        if self.failure != before:
            _LOG.warning("switch %s at %s: %s", self.settings.name, self.settings.control, self.failure)

    def prepare_again(self) -> None:
        """Make ``run`` prepare the switch once more."""
        self._events.put_nowait(None)

    async def reload(self) -> None:
        """Load the pipeline again: registers, tables and counters are empty afterwards."""
        await self._call("to delete its multicast groups", self._delete_groups)
        await self._call("the pipeline", self._load)

    async def _ensure_pipeline(self) -> bool:
        """Load the pipeline if the switch has none or another one; return whether it was loaded."""

        async def held(_: fy.Switch) -> p4r.ForwardingPipelineConfig:
            request = p4r.GetForwardingPipelineConfigRequest(
                device_id=self.settings.device,
                response_type=p4r.GetForwardingPipelineConfigRequest.P4INFO_AND_COOKIE,
            )
            async with fy.P4Client(self.settings.control, self._credentials) as client:
                try:
                    return (await client.request(request)).config
                except fy.P4ClientError as error:
                    if error.is_pipeline_missing:
                        return p4r.ForwardingPipelineConfig()
                    raise

        present = await self._call("to say its pipeline", held)
        if present.HasField("cookie") and present.cookie.cookie == self._schema.p4cookie:
            require_same_release(f"the P4 program in switch {self.settings.name}", present.p4info.pkg_info.version)
            return False
        if present.HasField("p4info"):
            await self._call("to delete its multicast groups", self._delete_groups)
        await self._call("the pipeline", self._load)
        return True

    async def _delete_groups(self, switch: fy.Switch) -> None:
        # BMv2 keeps groups when a pipeline is loaded, but P4Runtime does not list them any more: a group that is then
        # written again has every replica twice.
        await _write(switch.delete, [group async for group in _read(switch, [fy.P4MulticastGroupEntry()])])

    async def _load(self, switch: fy.Switch) -> None:
        # BMv2 does not support RECONCILE.
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self.settings.device,
            election_id=U128.encode(switch.election_id),
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=self._schema.get_pipeline_config(),
        )
        async with fy.P4Client(self.settings.control, self._credentials) as client:
            await client.request(request)
        _LOG.info("switch %s: pipeline loaded", self.settings.name)

    async def read_nonce(self) -> int:
        """Return the nonce that was written last; 0 if none was since the pipeline was loaded."""
        return await self._call("to read its nonce", _nonce)

    async def write_nonce(self, nonce: int) -> None:
        """Write a nonce, which the switch keeps until the pipeline is loaded or another is written."""
        entry = nonce_entry(nonce, owned_results=self.capabilities.owned_results)

        async def write(switch: fy.Switch) -> None:
            await (switch.modify if await _nonce(switch) else switch.insert)([entry])

        await self._call("to keep a nonce", write)

    # ---- tables ----------------------------------------------------------------------------------------------------

    def _entities(self, job: JobTables) -> list[Entity]:
        return job_entities(job, owned_results=self.capabilities.owned_results)

    async def reconcile(self, jobs: Sequence[JobTables]) -> int:
        """Make the switch hold the tables of these jobs and no others; return the number of updates written."""
        wanted: list[Entity] = [entity for job in jobs for entity in self._entities(job)]
        address = switch_address_entry(self.settings.mac, self.settings.address)

        async def write_difference(switch: fy.Switch) -> int:
            requests: list[Entity] = [fy.P4MulticastGroupEntry(), *(fy.P4TableEntry(name) for name in JOB_TABLES)]
            held = [entity async for entity in _read(switch, requests)]
            default = fy.P4TableEntry("switch_address_table", is_default_action=True)
            held += [entity async for entity in _read(switch, [default])]
            difference = compare([entity for entity in held if not is_nonce(entity)], [*wanted, address])
            await _write(switch.delete, difference.delete)
            # A default entry always exists, so a target that does not report an unset one must not get an INSERT.
            defaults: list[Entity] = [entity for entity in difference.insert if entity == address]
            await _write(switch.modify, difference.modify + defaults)
            await _write(switch.insert, [entity for entity in difference.insert if entity != address])
            return len(difference)

        written = await self._call("the tables of its jobs", write_difference)
        if written:
            _LOG.info(
                "switch %s: %d updates written to hold the tables of %d jobs", self.settings.name, written, len(jobs)
            )
        return written

    async def install_job(self, job: JobTables) -> None:
        """Write the tables of a new job, and set its counters to 0."""

        async def write(switch: fy.Switch) -> None:
            counters = [entry async for entry in _read_verdicts(switch, [job.job]) if entry.packet_count]
            if counters:
                zero = fy.P4CounterData()
                await switch.modify([fy.P4CounterEntry("job_counter", index=c.index, data=zero) for c in counters])
            await _write(switch.insert, self._entities(job))

        await self._call(f"the tables of job {job.job}", write)

    async def replace_job(self, old: JobTables, new: JobTables) -> None:
        """Delete all of a job's tables, those that admit packets first, then write its new ones; counters stay."""

        async def write(switch: fy.Switch) -> None:
            await _write(lambda entities: switch.delete(entities, strict=False), self._entities(old)[::-1])
            await _write(switch.insert, self._entities(new))

        await self._call(f"the tables of job {new.job} in epoch {new.epoch}", write)

    async def remove_job(self, job: JobTables) -> None:
        """Delete those tables of a job that exist, in the reverse order."""

        async def delete(switch: fy.Switch) -> None:
            await _write(lambda entities: switch.delete(entities, strict=False), self._entities(job)[::-1])

        await self._call(f"to delete the tables of job {job.job}", delete)

    async def read_verdicts(self, job_ids: Sequence[int]) -> dict[Verdict, int]:
        """Return the packets by verdict, summed over the jobs."""

        async def read(switch: fy.Switch) -> dict[Verdict, int]:
            return await _sum_verdicts(switch, job_ids)

        return await self._call("to read its job counters", read)

    async def read_traffic(self, job: JobTables, children: Sequence[int]) -> JobTraffic:
        """Return the packets of a job that the switch has received; `children` are the numbers of switches below."""

        async def read(switch: fy.Switch) -> JobTraffic:
            verdicts = await _sum_verdicts(switch, [job.job])
            entries = [entry async for entry in _read(switch, link_entries(job, children))]
            return job_traffic(job, children, verdicts, entries)

        return await self._call("to read its counters of senders", read)

    async def set_loss(self, ports: Sequence[int], shares: Mapping[str, float]) -> list[PortLoss]:
        """Make ports lose packets on purpose; return all ports that lose packets now."""
        tables = [fy.P4TableEntry(table) for table in LOSS_TABLES.values()]

        async def write(switch: fy.Switch) -> list[PortLoss]:
            held = {(entry.table_id, loss_port(entry)) async for entry in _read(switch, tables)}
            for direction, share in shares.items():
                table, threshold = LOSS_TABLES[direction], loss_threshold(share)
                present = [loss_entry(direction, port, threshold) for port in ports if (table, port) in held]
                absent = [loss_entry(direction, port, threshold) for port in ports if (table, port) not in held]
                if threshold:
                    await _write(switch.modify, present)
                    await _write(switch.insert, absent)
                else:
                    await _write(switch.delete, present)
            return port_losses([entry async for entry in _read(switch, tables)])

        return await self._call("to lose packets on purpose", write)

    async def read_contents(self) -> SwitchContents:
        """Return tables, groups, drop counters and the ports that lose packets on purpose."""

        async def read(switch: fy.Switch) -> SwitchContents:
            requests = [
                fy.P4TableEntry(table.alias, counter_data=fy.P4CounterData() if table.direct_counter else None)
                for table in self._schema.tables
            ]
            held = [entry async for entry in _read(switch, requests)]
            entries = [printed_entry(entry) for entry in held if not is_nonce(entry)]
            defaults = [
                fy.P4TableEntry(table.alias, is_default_action=True)
                for table in self._schema.tables
                if table.alias == "switch_address_table"
            ]
            entries += [printed_entry(entry) async for entry in _read(switch, defaults)]
            groups = [printed_group(group) async for group in _read(switch, [fy.P4MulticastGroupEntry()])]
            drops = dict.fromkeys(DropReason, 0)
            async for counter in _read(switch, [fy.P4CounterEntry("drop_counter")]):
                if counter.index in drops:
                    drops[DropReason(counter.index)] = counter.packet_count
            return SwitchContents(entries, groups, drops, port_losses(held))

        return await self._call("to read its tables", read)

    async def _call(self, what: str, operation: Callable[[fy.Switch], Coroutine[Any, Any, _T]]) -> _T:
        """Run an operation on the connected switch and turn its errors into ControllerErrors.

        It runs in a separate task, because a closing connection cancels its calls, which must not look like a
        cancellation of the caller. If the caller is cancelled, the operation is finished first, so that a later one
        cannot reach the switch before it; gRPC deadlines limit this time.
        """
        switch, down = self._switch, self._down
        if switch is None or down is None:
            raise self._unavailable(self.failure)
        if not switch.is_primary:
            raise self._unavailable("another controller is its primary")
        task = asyncio.create_task(operation(switch))
        ends: set[asyncio.Future[Any]] = {task, down}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await asyncio.wait({task})
            raise
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if task.cancelled():
            raise self._unavailable("the connection was closed")
        error = task.exception()
        if isinstance(error, fy.P4ClientError):
            if error.code in _LOST_CODES:
                raise self._unavailable(error.message)
            words = "; ".join(detail.message for detail in error.details.values()) or error.message
            raise SwitchRefused(f"switch {self.settings.name} refused {what}: {words} ({error.code.name})")
        return task.result()

    def _unavailable(self, why: str) -> SwitchUnavailable:
        return SwitchUnavailable(f"switch {self.settings.name} at {self.settings.control} is not available: {why}")


def _read(switch: fy.Switch, requests: Sequence[_E]) -> AsyncIterator[_E]:
    # finsy declares the overloads of its generator in a way that type checkers treat them as coroutines.
    return cast("AsyncIterator[_E]", switch.read(requests))


async def _nonce(switch: fy.Switch) -> int:
    request = fy.P4TableEntry("rank_table", match=fy.Match(**NONCE))
    return nonce_of([entry async for entry in _read(switch, [request])])


async def _read_verdicts(switch: fy.Switch, job_ids: Iterable[int]) -> AsyncIterator[fy.P4CounterEntry]:
    entries = [fy.P4CounterEntry("job_counter", index=verdict_index(job, v)) for job in job_ids for v in Verdict]
    async for entry in _read(switch, entries):
        yield entry


async def _sum_verdicts(switch: fy.Switch, job_ids: Iterable[int]) -> dict[Verdict, int]:
    total = dict.fromkeys(Verdict, 0)
    async for entry in _read_verdicts(switch, job_ids):
        assert entry.index is not None
        total[Verdict(entry.index & 0xF)] += entry.packet_count
    return total


async def _write(write: Callable[[Iterable[Entity]], Awaitable[None]], entities: Sequence[Entity]) -> None:
    """Write entities in order, with a batch for each table, because the switch chooses the order within a batch."""
    batch: list[Entity] = []
    for entity in entities:
        if batch and _table(entity) != _table(batch[-1]):
            await write(batch)
            batch = []
        batch.append(entity)
    if batch:
        await write(batch)


def _table(entity: Entity) -> str:
    return entity.table_id if isinstance(entity, fy.P4TableEntry) else ""


def _program(settings: SwitchSettings) -> Path:
    """Return the path of the compiled program's files without their suffixes; soft accepts any p4info of it."""
    target = settings.target
    return target.compiled(settings.program, settings.values) if target.programs else BMV2.compiled()


def _load_pipeline(settings: SwitchSettings) -> tuple[p4i.P4Info, fy.P4Schema]:
    program = _program(settings)
    try:
        p4info = text_format.Parse(program.with_suffix(_P4INFO).read_text(), p4i.P4Info())
        if not settings.target.programs:
            dimensions = {"values_per_packet": settings.values, "slots": settings.slots}
            device_config = json.dumps(dimensions).encode()
        else:
            device_config = program.with_suffix(".json").read_bytes()
    except OSError as error:
        raise ConfigError(
            f"switch {settings.name}: {error.filename} cannot be read: {error.strerror}; the P4 program is not compiled"
        ) from None
    except text_format.ParseError as error:
        raise ConfigError(f"switch {settings.name}: the P4 program's p4info is damaged: {error}") from None
    return p4info, fy.P4Schema(p4info, device_config)


def _capabilities(settings: SwitchSettings, p4info: p4i.P4Info) -> Capabilities:
    schema = fy.P4Schema(p4info)
    annotations = {annotation.name: annotation.body for annotation in schema.tables["worker_table"].annotations}
    streamed, owned = _STREAMED_ANNOTATION in annotations, _OWNED_ANNOTATION in annotations
    leaf, rocev2 = _LEAF_ANNOTATION in annotations, _ROCEV2_ANNOTATION in annotations
    formats = _formats(settings, annotations.get(_FORMATS_ANNOTATION))
    if not settings.target.programs:
        values, slots = settings.values, settings.slots
        # A soft switch takes all formats. The P4 program only describes its tables.
        return Capabilities(
            *(values, slots),
            streamed=streamed,
            owned_results=owned,
            leaf=leaf,
            formats=frozenset(Format),
            rocev2=rocev2,
        )
    if _VALUES_ANNOTATION not in annotations:
        raise ConfigError(f"switch {settings.name}: worker_table of the P4 program has no @{_VALUES_ANNOTATION}")
    body = annotations[_VALUES_ANNOTATION]
    values = int(str(body[0] if isinstance(body, list) else body))
    slots = schema.registers["slot_epoch"].size // 2
    return Capabilities(
        values, slots, streamed=streamed, owned_results=owned, leaf=leaf, formats=formats, rocev2=rocev2
    )


def _formats(settings: SwitchSettings, body: object) -> frozenset[Format]:
    """Return the formats that a pipeline takes: INT32, and those that the body of its annotation names, if any."""
    names = re.findall(r"\w+", " ".join(map(str, body)) if isinstance(body, list | tuple) else str(body or ""))
    unknown = sorted(set(names) - {known.name.lower() for known in Format})
    if unknown:
        raise ConfigError(
            f"switch {settings.name}: @{_FORMATS_ANNOTATION} of the P4 program names {unknown[0]!r}, which is not a "
            "format of this release"
        )
    return frozenset({Format.INT32, *(Format[name.upper()] for name in names)})
