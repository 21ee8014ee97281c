"""The BfRt driver with a BfRt server: the entries that it writes and reads."""

from __future__ import annotations

import dataclasses
import json
import logging

import pytest

from ptf_tests.tofino_emulator.bfrt_device import Device
from ptf_tests.tofino_emulator.bfrt_tables import RegisterHandler
from ptf_tests.tofino_emulator.chassis import ALL_PIPES
from switchml.controller.drivers import JobTraffic, ParentPort, bfrt
from switchml.controller.errors import NoAgent, SwitchRefused
from switchml.dataplane.bfruntime import bfruntime_pb2 as pb
from switchml.dataplane.constants import TREE_FIRST_PARENT_INSTANCE, TREE_PARENT_GROUP, DropReason, Verdict
from switchml.dataplane.tofino_port import TofinoPort
from tests.loopback.bfrt_harness import PORTS, make_device, make_driver, make_job, running, serving


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bfrt, "_RETRY_SECONDS", 0.05)


def entries(device: Device) -> dict[str, int]:
    return {
        name.rpartition(".")[2]: len(table.entries)
        for name, table in device.state.match_tables.items()
        if table.entries and "$PORT_METADATA" not in name
    }


async def test_a_job_in_the_switch() -> None:
    device = make_device()
    async with serving(device) as (address, _), running(make_driver(address)) as run:
        await run.connected()
        assert run.prepared == [True]
        job = make_job()
        await run.driver.install_job(job)
        state = device.state
        assert entries(device) == {"worker_table": 2, "job_table": 1, "rank_table": 2}
        # The front panel is numbered backwards: 1/0 and 2/0 are these device ports.
        assert state.replicas(1) == [(60, 0), (56, 1)]
        assert [node >> 8 for node in state.nodes] == [1, 1]
        workers = state.match_tables["pipe.SwitchMLIngress.worker_table"].entries.values()
        assert {entry.key["ingress_port"]: entry.data["worker_bit"] for entry in workers} == {60: 1, 56: 2}
        assert {entry.key["slot"] for entry in workers} == {(0, 0xFF80)}
        default = state.match_tables["pipe.SwitchMLIngress.switch_address_table"].default
        assert default is not None
        assert default.data == {"mac": 0, "ip": 0x0A0000FE}
        await run.driver.remove_job(job)
        assert entries(device) == {}
        assert not state.nodes
        assert not state.groups
        await run.driver.remove_job(job)  # entries that do not exist need no deletion


async def test_ports_are_set_up() -> None:
    device = make_device()
    async with serving(device) as (address, _), running(make_driver(address)) as run:
        await run.connected()
        ports = device.state.ports
        assert {number: port.data["$SPEED"] for number, port in ports.items()} == {
            60: "BF_SPEED_100G", 56: "BF_SPEED_100G", 128 + 49: "BF_SPEED_25G", 4: "BF_SPEED_100G",
        }  # fmt: skip
        assert ports[60].data["$FEC"] == "BF_FEC_TYP_REED_SOLOMON"
        assert ports[60].data["$AUTO_NEGOTIATION"] == "PM_AN_FORCE_DISABLE"
        assert ports[4].data["$LOOPBACK_MODE"] == "BF_LPBK_MAC_NEAR"
        assert all(port.up for port in ports.values())
        metadata = next(table for name, table in device.state.match_tables.items() if "$PORT_METADATA" in name)
        (key,) = metadata.match_types
        known = {
            entry.key[key]: (entry.data["recirculation_port"], entry.data["is_recirculated"])
            for entry in metadata.entries.values()
        }
        assert known == {60: (4, 0), 56: (4, 0), 177: (196, 0), 4: (0, 1), 196: (0, 1)}
        # The second time, only differences are written.
        ports[60].data["$FEC"] = "BF_FEC_TYP_NONE"
        run.driver.prepare_again()
        await run.until(lambda: ports[60].data["$FEC"] == "BF_FEC_TYP_REED_SOLOMON", "the port is repaired")


async def test_counters() -> None:
    device = make_device()
    async with serving(device) as (address, _), running(make_driver(address)) as run:
        await run.connected()
        job = make_job(3)
        cells = device.state.counters["pipe.SwitchMLIngress.job_counter"]
        cells[3 << 4 | Verdict.AGGREGATED] = [7, 700]
        await run.driver.install_job(job)
        assert cells[3 << 4 | Verdict.AGGREGATED] == [0, 0]
        cells[3 << 4 | Verdict.COMPLETED] = [5, 500]
        cells[4 << 4 | Verdict.COMPLETED] = [6, 600]
        verdicts = await run.driver.read_verdicts([3, 4])
        assert {verdict: packets for verdict, packets in verdicts.items() if packets} == {Verdict.COMPLETED: 11}
        for gress, packets in (("Ingress", 2), ("Egress", 3)):
            device.state.counters[f"pipe.SwitchML{gress}.drop_counter"][DropReason.NO_ROUTE] = [packets, 0]
        table = device.state.match_tables["pipe.SwitchMLIngress.worker_table"]
        next(iter(table.entries.values())).packets = 9
        contents = await run.driver.read_contents()
        assert {reason for reason, packets in contents.drop_reasons.items() if packets} == {DropReason.NO_ROUTE}
        assert contents.drop_reasons[DropReason.NO_ROUTE] == 5
        packets_of = [entry.packets for entry in contents.entries if entry.table == "worker_table"]
        assert packets_of in ([0, 9], [9, 0])
        assert contents.losses == []


async def test_reload_empties_the_switch() -> None:
    device = make_device()
    async with serving(device) as (address, _), running(make_driver(address)) as run:
        await run.connected()
        await run.driver.install_job(make_job())
        registers = device.state.registers
        name = next(name for name, cells in registers.items() if isinstance(cells[0], int))
        registers[name][5] = 5
        device.state.counters["pipe.SwitchMLIngress.job_counter"][17] = [1, 1]
        ports = dict(device.state.ports)
        await run.driver.reload()
        assert registers[name][5] == 0
        assert device.state.counters["pipe.SwitchMLIngress.job_counter"][17] == [0, 0]
        assert entries(device) == {}
        assert not device.state.nodes
        assert device.state.ports == ports


async def test_registers_that_are_not_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    device = make_device()
    async with serving(device) as (address, _), running(make_driver(address)) as run:
        await run.connected()
        name = next(name for name in device.state.registers if name.endswith("slot_tag"))
        last = device.state.registers[name][-1]
        assert isinstance(last, dict)
        last["SwitchMLIngress.slot_tag.epoch"] = 7
        monkeypatch.setattr(RegisterHandler, "clear", lambda _: None)
        with pytest.raises(SwitchRefused, match=r"slot_tag was emptied, and then held .*4095: \[.*7"):
            await run.driver.reload()


async def test_what_differs_is_repaired_and_no_more() -> None:
    device = make_device()
    async with serving(device) as (address, servicer), running(make_driver(address)) as run:
        await run.connected()
        jobs = [make_job(1), make_job(2, (2, 2, 1))]
        for job in jobs:
            await run.driver.install_job(job)
        assert await run.driver.reconcile(jobs) == 0
        state = device.state
        ranks = state.match_tables["pipe.SwitchMLEgress.rank_table"]
        ranks.remove(next(iter(ranks.entries)))
        state.groups[1].node_ids.pop()
        state.groups[1].xid.pop()
        state.groups[1].xid_valid.pop()
        workers = state.match_tables["pipe.SwitchMLIngress.worker_table"]
        next(iter(workers.entries.values())).data["epoch"] = 99
        update = pb.Update(type=pb.Update.INSERT)  # a node of another program, in no group
        node = device.schema.by_name["$pre.node"]
        update.entity.table_entry.CopyFrom(
            pb.TableEntry(
                table_id=node.id,
                key=node.encode_key({"$MULTICAST_NODE_ID": 77}),
                data=node.encode_data({"$MULTICAST_RID": 1, "$MULTICAST_LAG_ID": [], "$DEV_PORT": [1]}),
            )
        )
        device.write(update, pb.TargetDevice(pipe_id=ALL_PIPES))
        assert await run.driver.reconcile(jobs) == 5  # rank, group, worker, and two nodes without a group
        assert await run.driver.reconcile(jobs) == 0
        assert state.replicas(1) == [(60, 0), (56, 1)]
        assert await run.driver.reconcile(jobs[:1]) > 0
        assert entries(device) == {"worker_table": 2, "job_table": 1, "rank_table": 2}
        assert list(state.groups) == [1]
        assert len(state.nodes) == 2
        assert servicer.clients


async def test_a_job_over_two_pipes_is_refused() -> None:
    device = make_device()
    async with serving(device) as (address, _), running(make_driver(address)) as run:
        await run.connected()
        assert [run.driver.pipe(port) for port in (1, 2, 3)] == [0, 0, 1]
        with pytest.raises(SwitchRefused, match="pipe 0 has rank 0, rank 2; pipe 1 has rank 1"):
            await run.driver.install_job(make_job(1, (1, 3, 2)))
        assert entries(device) == {}
        with pytest.raises(NoAgent, match="is attached to port 9 of switch t1, which has no such port"):
            run.driver.pipe(9)
        with pytest.raises(SwitchRefused, match="has no port 9, to which rank 0 is attached"):
            await run.driver.install_job(make_job(1, (9,)))


async def test_a_job_below_another_switch() -> None:
    device = make_device()
    parent = ParentPort(port=2, mac=0x0200000000FE, address=0x0A0000FE, number=1, named=(0, 1))
    job = dataclasses.replace(make_job(1, (1,)), parent=parent)
    async with serving(device) as (address, _), running(make_driver(address)) as run:
        await run.connected()
        await run.driver.install_job(job)
        assert entries(device) == {"worker_table": 3, "job_table": 1, "rank_table": 2}
        assert device.state.replicas(job.group | TREE_PARENT_GROUP) == [(56, TREE_FIRST_PARENT_INSTANCE + 1)]
        assert await run.driver.reconcile([job]) == 0
        assert await run.driver.read_traffic(job, [0]) == JobTraffic(dict.fromkeys(Verdict, 0), {0: 0}, 0)
        for port, words in ((3, "pipe 0 has rank 0; pipe 1 has the parent"), (9, "no port 9, to which the parent is")):
            with pytest.raises(SwitchRefused, match=words):
                await run.driver.install_job(dataclasses.replace(job, parent=dataclasses.replace(parent, port=port)))


async def test_losses_are_refused() -> None:
    device = make_device()
    async with serving(device) as (address, _), running(make_driver(address)) as run:
        await run.connected()
        assert await run.driver.set_loss([], {}) == []
        with pytest.raises(SwitchRefused, match="cannot lose packets on purpose"):
            await run.driver.set_loss([1], {"ingress": 1})


async def test_a_port_that_goes_down_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    device = make_device()
    async with serving(device) as (address, _), running(make_driver(address)) as run:
        await run.connected()
        port = device.schema.by_name["$PORT"]
        entry = pb.TableEntry(
            table_id=port.id,
            key=port.encode_key({"$DEV_PORT": 60}),
            data=port.encode_data({"$PORT_ENABLE": False}),
        )
        update = pb.Update(type=pb.Update.MODIFY, entity=pb.Entity(table_entry=entry))
        device.write(update, pb.TargetDevice(pipe_id=ALL_PIPES))
        await run.until(lambda: "port 1/0 (device port 60) is down" in caplog.text, "the log says so")


async def test_a_second_controller_stands_by() -> None:
    device = make_device()
    async with serving(device) as (address, _), running(make_driver(address)) as first:
        await first.connected()
        async with running(make_driver(address)) as second:
            await second.until(lambda: second.driver.connected, "it stands by")
            assert not second.driver.primary
            with pytest.raises(Exception, match="another controller is its primary"):
                await second.driver.install_job(make_job())
            device.state.ports.clear()
            assert first.driver._connection is not None
            await first.driver._connection.session.__aexit__()  # the first server is gone
            await second.connected()
            assert second.prepared == [False]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"pipe.SwitchML', '"pipeline_0.SwitchML'),
        ('"$pre.', '"pre.'),
        ('"BF_FEC_TYP_REED_SOLOMON", ', ""),
        ('"$PORT_STR_INFO"', '"$PORT_NAMES"'),
        ('"supported_operations": ["SyncCounters"]', '"supported_operations": ["Sync", "SyncCounters"]'),
    ],
)
async def test_names_of_other_releases(old: str, new: str) -> None:
    """Check that the driver finds out the names of the tables."""
    device = make_device()
    documents = [json.dumps(device.fixed), json.dumps(json.loads(device.program.bfrt))]
    assert any(old in document for document in documents)
    fixed, own = (document.replace(old, new) for document in documents)
    device.fixed = json.loads(fixed)
    device.load(dataclasses.replace(device.program, bfrt=own.encode()))
    async with serving(device) as (address, _), running(make_driver(address)) as run:
        await run.connected()
        await run.driver.install_job(make_job())
        assert entries(device) == {"worker_table": 2, "job_table": 1, "rank_table": 2}
        assert device.state.replicas(1) == [(60, 0), (56, 1)]
        await run.driver.read_contents()
        await run.driver.remove_job(make_job())


@pytest.mark.parametrize(
    ("ports", "words"),
    [
        ((TofinoPort("99/0", 1, "100G"), *PORTS[3:]), "knows no port 99/0 on its front panel"),
        ((TofinoPort("20/1", 1, "25G"), PORTS[3]), "lies in pipe 1, for which no recirculation port is configured"),
        ((*PORTS, TofinoPort("60", role="recirculation")), "are the same device port 60"),
        (
            (PORTS[0], TofinoPort("16/0", speed="100G", role="recirculation")),
            "is device port 0, which the program takes",
        ),
        ((dataclasses.replace(PORTS[0], speed="1G"), PORTS[3]), ""),
    ],
)
async def test_ports_that_cannot_be(ports: tuple[TofinoPort, ...], words: str) -> None:
    device = make_device()
    if not words:
        words = "knows no $SPEED BF_SPEED_1G, only BF_SPEED_100G"
        speed = next(table for table in device.fixed["tables"] if table["name"] == "$PORT")["data"][0]
        speed["singleton"]["type"]["choices"] = ["BF_SPEED_100G"]
        device.load(device.program)
    async with serving(device) as (address, _), running(make_driver(address, ports)) as run:
        await run.failed(words)
        assert not run.driver.connected
