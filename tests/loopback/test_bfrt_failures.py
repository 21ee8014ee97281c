"""The BfRt driver with servers that are absent, die, run another program or return nonsense."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import pytest

from ptf_tests.tofino_emulator.bfrt_device import Device
from ptf_tests.tofino_emulator.bfrt_server import Servicer
from switchml.controller.drivers import bfrt, bfrt_session
from switchml.controller.errors import SwitchRefused, SwitchUnavailable
from switchml.dataplane.bfruntime import bfruntime_pb2 as pb
from tests.loopback.bfrt_harness import make_device, make_driver, make_job, running, serving
from tests.loopback.controlled_switches import free_port


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Let attempts follow each other quickly; none may end with a traceback."""
    monkeypatch.setattr(bfrt, "_RETRY_SECONDS", 0.05)
    yield
    assert not [record for record in caplog.records if record.exc_info], caplog.text


def is_empty(device: Device) -> bool:
    tables = [table for name, table in device.state.match_tables.items() if "$PORT_METADATA" not in name]
    return not (device.state.nodes or device.state.groups or any(table.entries for table in tables))


async def test_an_absent_server(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    address = f"127.0.0.1:{free_port()}"
    async with running(make_driver(address)) as run:
        await run.failed("refused")
        for _ in range(2):
            with pytest.raises(SwitchUnavailable, match=f"switch t1 at {address} is not available: .*refused"):
                await run.driver.install_job(make_job())
        await asyncio.sleep(0.3)
        assert caplog.text.count("refused") == 1  # repeated failures are not logged again
        async with serving(make_device(), address):
            await run.connected()
        await run.until(lambda: not run.driver.connected, "the server is gone")


class Dying(Servicer):
    """Serves some updates and then dies with its connections; the chip keeps its tables."""

    def __init__(self, device: Device, updates: int) -> None:
        super().__init__(device)
        self.left = updates
        self.dead = asyncio.Event()

    def update(self, request: pb.WriteRequest, update: pb.Update) -> None:
        if update.entity.WhichOneof("entity") == "table_entry":
            if self.left == 0:
                raise ConnectionError
            self.left -= 1
        super().update(request, update)

    async def Write(self, request: pb.WriteRequest, context: grpc.aio.ServicerContext) -> pb.WriteResponse:  # noqa: N802
        try:
            return await super().Write(request, context)
        except ConnectionError:
            self.dead.set()
            self.end_streams()
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            raise


UPDATES_OF_A_JOB = 2 + 1 + 1 + 2 + 2  # nodes, group, job, ranks, workers


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_server_that_dies_in_the_middle(goes_on: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Test every place of the failure: the second run leaves the complete job in the switch, or nothing of it."""
    device, job, address = make_device(), make_job(), f"127.0.0.1:{free_port()}"
    for survives in range(UPDATES_OF_A_JOB):
        async with running(make_driver(address)) as run:
            async with serving(device, address, lambda device: Dying(device, 10**6)) as (_, servicer):
                await run.connected()
                assert is_empty(device)
                assert isinstance(servicer, Dying)
                servicer.left = survives
                with pytest.raises(
                    SwitchUnavailable, match=r"switch t1 .*(Socket closed \(UNAVAILABLE\)|connection was closed)"
                ):
                    await run.driver.install_job(job)
                assert servicer.dead.is_set()
                assert is_empty(device) == (survives == 0)
            await run.until(lambda: not run.driver.connected, "the connection is down")
            run.jobs = [job] if goes_on else []
            async with serving(device, address):
                await run.connected()
                assert await run.driver.reconcile(run.jobs) == 0
                assert is_empty(device) == (not goes_on)
                if goes_on:
                    assert device.state.replicas(1) == [(60, 0), (56, 1)]
                    await run.driver.remove_job(job)
                assert is_empty(device)


async def test_a_part_that_is_refused_is_taken_back() -> None:
    """Test a full table that refuses a job's last entry: the caller removes the job, and nothing of it is left."""
    device = make_device()
    async with serving(device) as (address, _), running(make_driver(address)) as run:
        await run.connected()
        device.schema.by_name["pipe.SwitchMLIngress.worker_table"].size = 1
        with pytest.raises(SwitchRefused, match=r"refused the tables of job 1: .*worker_table .*RESOURCE_EXHAUSTED"):
            await run.driver.install_job(make_job())
        assert not is_empty(device)
        await run.driver.remove_job(make_job())
        assert is_empty(device)


async def test_the_wrong_program() -> None:
    device = make_device(name="basic_router")
    async with serving(device) as (address, _), running(make_driver(address)) as run:
        await run.failed("switch t1 runs 'basic_router' and not 'switchml': start bf_switchd with")
        with pytest.raises(SwitchUnavailable, match="runs 'basic_router' and not 'switchml'"):
            await run.driver.reconcile([])
        device.load(make_device().program)
        await run.connected()


def without(name: str, part: str = "", inner: str = "") -> Callable[[dict[str, Any]], None]:
    """Return a function that removes a table, or one of its key fields, data fields or actions, from a document."""

    def change(document: dict[str, Any]) -> None:
        for table in list(document["tables"]):
            if table["name"].endswith(name):
                if not part:
                    document["tables"].remove(table)
                else:
                    table[part] = [one for one in table[part] if inner not in json.dumps(one)]

    return change


def changed_values(document: dict[str, Any]) -> None:
    for table in document["tables"]:
        for one in table.get("annotations", ()):
            if "switchml_values_per_packet" in one["name"]:
                one["name"] = "@switchml_values_per_packet(32)"


def not_streamed(document: dict[str, Any]) -> None:
    for table in document["tables"]:
        if "annotations" in table:
            table["annotations"] = [one for one in table["annotations"] if "switchml_streamed" not in one["name"]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("worker_table"), "there is no table worker_table"),
        (
            without("worker_table", "key", '"eth_src"'),
            "lack|key field eth_src of table pipe.SwitchMLIngress.worker_table",
        ),
        (without("worker_table", "action_specs", "admit"), "action admit"),
        (without("rank_table", "key", '"rank"'), "key field rank of table"),
        (without("worker_table", "data", "SPEC_PKTS"), "data field $COUNTER_SPEC_PKTS"),
        (without("$pre.mgid"), "there is no table $pre.mgid or pre.mgid"),
        (without("$pre.node", "data", "$MULTICAST_RID"), "data field $MULTICAST_RID of table $pre.node"),
        (without("$PORT"), "there is no table $PORT"),
        (without("$PORT", "data", "$FEC"), "data field $FEC of table $PORT"),
        (without("drop_counter"), "there is no table SwitchMLIngress.drop_counter"),
        (changed_values, "with 32 values per packet, 2048 slots, with streamed sparse calls; this controller's has 64"),
        (not_streamed, "2048 slots, without streamed sparse calls; this controller's has 64 values per packet"),
    ],
)
async def test_the_wrong_sde_or_another_version_of_the_program(
    change: Callable[[dict[str, Any]], None], words: str
) -> None:
    device = make_device()
    document = json.loads(device.program.bfrt)
    change(document)
    change(device.fixed)
    device.load(dataclasses.replace(device.program, bfrt=json.dumps(document).encode()))
    async with serving(device) as (address, _), running(make_driver(address)) as run:
        await run.failed(words.partition("|")[2] or words)
        assert "start bf_switchd with it" in run.driver.failure
        assert not run.driver.connected
        assert is_empty(device)


async def test_a_field_that_is_too_narrow() -> None:
    device = make_device()
    document = json.loads(device.program.bfrt)
    for table in document["tables"]:
        for key in table["key"]:
            if key["name"] == "udp_src":
                key["type"]["width"] = 8
    device.load(dataclasses.replace(device.program, bfrt=json.dumps(document).encode()))
    async with serving(device) as (address, _), running(make_driver(address)) as run:
        await run.connected()
        with pytest.raises(SwitchRefused, match="field udp_src has 8 bits, which is too few for 0x9c40"):
            await run.driver.install_job(make_job())
        await run.driver.reconcile([])
        assert is_empty(device)


class Hostile(Servicer):
    """Returns the results of reads after `change` has modified them."""

    def __init__(self, device: Device, change: Callable[[pb.Entity], Any]) -> None:
        super().__init__(device)
        self._change = change
        self.on = False

    async def Read(  # noqa: N802
        self, request: pb.ReadRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.ReadResponse]:
        async for response in super().Read(request, context):
            for entity in response.entities if self.on else ():
                self._change(entity)
            yield response


def empty(message: Any) -> Any:
    message.Clear()
    return message


def put(message: Any, field: str, value: object) -> Any:
    setattr(message, field, value)
    return message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (empty, "id 0 is not in bfrt.json"),
        (lambda e: put(e.table_entry, "table_id", 4711), "id 4711 is not in bfrt.json"),
        (lambda e: empty(e.table_entry.key), "came without"),
        (lambda e: [put(f, "field_id", 99) for f in e.table_entry.key.fields], "key field 99 of table"),
        (
            lambda e: [put(f.exact, "value", b"\0" * 99) for f in e.table_entry.key.fields],
            "99 bytes|is not matched",
        ),
        (lambda e: [put(f.exact, "value", b"") for f in e.table_entry.key.fields], "0 bytes|is not matched"),
        (lambda e: put(e.table_entry.data, "action_id", 7), "action 7 of table"),
        (lambda e: [put(f, "field_id", 9999) for f in e.table_entry.data.fields], "data field 9999 of table"),
        (lambda e: [put(f, "str_val", "x" * 9) for f in e.table_entry.data.fields], "came as str_val"),
        (lambda e: [empty(f.int_arr_val) for f in e.table_entry.data.fields], "came with nodes|came as int_arr_val"),
        (lambda e: [f.int_arr_val.val.extend([5, 6]) for f in e.table_entry.data.fields], "came with nodes|came as"),
        (lambda e: empty(e.table_entry.data), "without its replication id|without its index|came without"),
    ],
)
async def test_entries_that_make_no_sense(change: Callable[[pb.Entity], Any], words: str) -> None:
    device = make_device()
    async with (
        serving(device, make=lambda device: Hostile(device, change)) as (address, servicer),
        running(make_driver(address)) as run,
    ):
        await run.connected()
        await run.driver.install_job(make_job())
        assert isinstance(servicer, Hostile)
        servicer.on = True
        for ask in (lambda: run.driver.reconcile([make_job()]), run.driver.read_contents):
            with pytest.raises(SwitchRefused, match=f"its answer is invalid: .*({words})"):
                await ask()
        with pytest.raises(SwitchRefused, match="its answer is invalid"):
            await run.driver.read_verdicts([1])
        servicer.on = False
        assert await run.driver.reconcile([make_job()]) == 0


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b"\xff", b'{"tables": 3}', b'{"tables": [3]}', b'{"tables": [{"name": "x"}]}', b"[" * 10**5],
)
async def test_a_damaged_bfrt_json(text: bytes) -> None:
    device = make_device()
    device.program = dataclasses.replace(device.program, bfrt=text)
    async with serving(device) as (address, _), running(make_driver(address)) as run:
        await run.failed("its answers are invalid: bfrt.json is damaged")


class Mute(Servicer):
    """Accepts the stream and sends nothing."""

    async def StreamChannel(  # noqa: N802
        self, requests: AsyncIterator[pb.StreamMessageRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.StreamMessageResponse]:
        await asyncio.sleep(60)
        yield pb.StreamMessageResponse()


class Strange(Servicer):
    """Ends streams, or sends another answer than a subscription."""

    answer: pb.StreamMessageResponse | None = None

    async def StreamChannel(  # noqa: N802
        self, requests: AsyncIterator[pb.StreamMessageRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.StreamMessageResponse]:
        if self.answer is not None:
            yield self.answer


async def test_a_server_that_does_not_subscribe_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bfrt_session, "_CALL_SECONDS", 0.3)
    refused = pb.StreamMessageResponse(subscribe=pb.Subscribe(status=pb.RpcStatus(code=13, message="no more clients")))
    for make, answer, words in (
        (Mute, None, "no answer"),
        (Strange, None, "ended the stream"),
        (Strange, pb.StreamMessageResponse(), "ended the stream"),
        (Strange, refused, "does not subscribe us: no more clients"),
    ):
        Strange.answer = answer
        async with serving(make_device(), make=make) as (address, _), running(make_driver(address)) as run:
            await run.failed(words)


async def test_a_call_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bfrt_session, "_CALL_SECONDS", 1.0)

    class Slow(Servicer):
        slow = False

        async def Write(self, request: pb.WriteRequest, context: grpc.aio.ServicerContext) -> pb.WriteResponse:  # noqa: N802
            if self.slow:
                await asyncio.sleep(60)
            return await super().Write(request, context)

    async with serving(make_device(), make=Slow) as (address, servicer), running(make_driver(address)) as run:
        await run.connected()
        assert isinstance(servicer, Slow)
        servicer.slow = True
        with pytest.raises(SwitchUnavailable, match="DEADLINE_EXCEEDED"):
            await run.driver.install_job(make_job())


async def test_errors_without_details() -> None:
    class Wordless(Servicer):
        on = False

        async def Write(self, request: pb.WriteRequest, context: grpc.aio.ServicerContext) -> pb.WriteResponse:  # noqa: N802
            if self.on:
                context.set_trailing_metadata((("grpc-status-details-bin", b"\xff\xff nonsense"),))
                await context.abort(grpc.StatusCode.UNKNOWN, "Unable to get bound_program")
            return await super().Write(request, context)

    async with serving(make_device(), make=Wordless) as (address, servicer), running(make_driver(address)) as run:
        await run.connected()
        assert isinstance(servicer, Wordless)
        servicer.on = True
        with pytest.raises(SwitchRefused, match=r"Unable to get bound_program \(UNKNOWN\)"):
            await run.driver.install_job(make_job())
