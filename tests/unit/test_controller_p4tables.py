from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import finsy as fy
import pytest
from finsy.p4entity import decode_entity, encode_entities
from finsy.p4schema import P4RuntimeVersion

from switchml.controller.config import SwitchConfig
from switchml.controller.drivers import Capabilities, JobTables, JobTraffic, ParentPort, RankPort
from switchml.controller.drivers.p4runtime import P4RuntimeDriver
from switchml.controller.drivers.p4tables import (
    MULTICAST_RANK,
    Entity,
    compare,
    job_entities,
    job_traffic,
    link_entries,
    loss_entry,
    loss_threshold,
    port_losses,
    printed_entry,
    printed_group,
    switch_address_entry,
)
from switchml.dataplane.constants import TREE_NO_RANK, Format, Kind, Verdict
from switchml.dataplane.targets import BMV2, SOFT

entities_of = partial(job_entities, owned_results=True)
CONFIG: dict[str, Any] = {"name": "s1", "p4runtime": "127.0.0.1:1", "address": "10.0.0.254", "mac": "02:00:00:00:00:fe"}
JOB = JobTables(
    3, 7, 512, 512, 3, (RankPort(0, 1, 0x0200_0000_0001, 0x0A000001, 1000), RankPort(1, 2, 2, 0x0A000002, 1001))
)


@pytest.fixture
def schema() -> fy.P4Schema:
    return P4RuntimeDriver(SwitchConfig(target=SOFT, **CONFIG))._schema


def as_read(entities: Sequence[Entity], schema: fy.P4Schema) -> list[Any]:
    """Return the entities in the form in which a switch returns them."""
    return [decode_entity(message, schema) for message in encode_entities(entities, schema)]


def jobs(*numbers: int, epoch: int = 7) -> list[Entity]:
    return [e for n in numbers for e in entities_of(JobTables(n, epoch, n * 512, 512, n, JOB.ranks))]


def test_what_was_written_needs_no_update(schema: fy.P4Schema) -> None:
    whole_pool = JobTables(9, 7, 0, 32768, 9, JOB.ranks)  # its ternary key matches everything and is omitted
    wanted = [*entities_of(JOB), *entities_of(whole_pool), switch_address_entry("00:00:00:00:00:05", "10.0.0.1")]
    assert len(compare(as_read(wanted, schema), wanted)) == 0


def test_missing_superfluous_and_different_entries(schema: fy.P4Schema) -> None:
    difference = compare(as_read(jobs(1, 2), schema), jobs(2, 3))
    assert not difference.modify
    assert difference.insert == jobs(3)
    assert difference.delete == as_read(jobs(1), schema)[::-1]
    difference = compare(as_read(jobs(1), schema), jobs(1, epoch=8))
    assert [getattr(entity, "table_id", "group") for entity in difference.modify] == ["worker_table", "worker_table"]
    assert not difference.delete
    assert not difference.insert


def test_a_group_that_lacks_a_rank_is_modified(schema: fy.P4Schema) -> None:
    short = fy.P4MulticastGroupEntry(3, replicas=[(1, 0)])
    difference = compare([short, *as_read(entities_of(JOB)[1:], schema)], entities_of(JOB))
    assert difference.modify == [entities_of(JOB)[0]]


def test_ranks_that_listen_at_one_place_get_one_copy(schema: fy.P4Schema) -> None:
    places = ((1, 40000), (1, 40000), (1, 40001), (2, 40000), (1, 40001))
    ranks = tuple(RankPort(rank, port, 0, 0x0A000001, udp) for rank, (port, udp) in enumerate(places))
    group, _, *addresses = as_read(entities_of(JobTables(3, 7, 0, 512, 3, ranks)), schema)
    assert printed_group(group).replicas == [(1, 0), (1, 2), (2, 3)]
    listeners = [printed_entry(address).parameters["ranks"] for address in addresses[:5]]
    assert listeners == ["0x3", "0x3", "0x14", "0x8", "0x14"]


def test_only_a_pipeline_that_removes_values_is_told_who_listens() -> None:
    for owned_results, expected in ((True, [1, 2]), (False, [None, None])):
        addresses: list[Any] = job_entities(JOB, owned_results=owned_results)[2:4]
        assert [address.action.args.get("ranks") for address in addresses] == expected


def test_agents_that_joined_a_multicast_group_get_one_copy(schema: fy.P4Schema) -> None:
    ranks = tuple(RankPort(rank, 1, 0, 0x0A000001 + rank, 40000) for rank in range(3))
    group, _, together, *rest = as_read(entities_of(JobTables(3, 7, 0, 512, 3, ranks, 0xEFC00003)), schema)
    assert printed_group(group).replicas == [(1, MULTICAST_RANK)]
    assert printed_entry(together).parameters == {
        "eth_dst": "01:00:5e:40:00:03",
        "ipv4_dst": "239.192.0.3",
        "udp_dst": "48864",
        "ranks": "0x7",
    }
    assert len(rest) == 6, "each rank can still be addressed and admitted by itself"
    behind_two_ports = tuple(RankPort(rank, rank + 1, 0, 0x0A000001, 40000) for rank in range(2))
    group, *rest = as_read(entities_of(JobTables(3, 7, 0, 512, 3, behind_two_ports, 0xEFC00003)), schema)
    assert printed_group(group).replicas == [(1, 0), (2, 1)]
    assert len(rest) == 5


def test_workers_are_admitted_last() -> None:
    kinds = [getattr(entity, "table_id", "group") for entity in entities_of(JOB)]
    assert kinds == ["group", "job_table", "rank_table", "rank_table", "worker_table", "worker_table"]


def test_a_job_below_a_parent_has_a_way_up_and_admits_its_results(schema: fy.P4Schema) -> None:
    ranks = tuple(RankPort(rank, 1, 0, 0x0A000001 + rank, 40000) for rank in range(2))
    parent = ParentPort(9, 0x0200000000FD, 0x0A0000FD, number=2, named=(0, 2, TREE_NO_RANK))
    tables = JobTables(3, 7, 0, 512, 3, ranks, parent=parent, secret=5)
    entities = as_read(entities_of(tables), schema)
    results, up, *entries = entities
    assert (printed_group(results).id, printed_group(results).replicas) == (3, [(1, 0), (1, 1)])
    assert (printed_group(up).id, printed_group(up).replicas) == (3 + 1024, [(9, 256 + 2)])
    printed = [printed_entry(entry) for entry in entries]
    (address,) = (one for one in printed if one.match.get("rank") == "258")
    assert address.parameters == {
        "eth_dst": "02:00:00:00:00:fd",
        "ipv4_dst": "10.0.0.253",
        "udp_dst": "48864",
        "ranks": "0xffffffffffffffff",
    }
    below = [one for one in printed if one.action == "admit_below"]
    assert [(one.match["kind"], one.match["worker"], one.parameters["worker_bit"]) for one in below] == [
        ("1", "0", "0x1"),
        ("1", "1", "0x2"),
    ]
    above = printed[-3:]
    assert [(one.match["worker"], one.parameters["completed_here"]) for one in above] == [
        ("0", "0"),
        ("2", "1"),
        ("255", "0"),
    ]
    for one in above:
        assert one.action == "admit_parent"
        source = (one.match[name] for name in ("kind", "ingress_port", "eth_src", "ipv4_src", "udp_src"))
        assert tuple(source) == ("2", "9", "02:00:00:00:00:fd", "10.0.0.253", "48864")
    assert {one.parameters["job_mask"] for one in below + above} == {"0x3"}


def test_values_are_printed_as_people_write_them(schema: fy.P4Schema) -> None:
    group, described, address, _, worker, _ = as_read(entities_of(JOB), schema)
    assert printed_group(group).replicas == [(1, 0), (2, 1)]
    assert printed_entry(described).parameters == {"slots": "512-1023"}
    assert printed_entry(address).parameters == {
        "eth_dst": "02:00:00:00:00:01",
        "ipv4_dst": "10.0.0.1",
        "udp_dst": "1000",
        "ranks": "0x1",
    }
    admitted = printed_entry(worker)
    assert admitted.match == {
        "ingress_port": "1",
        "eth_src": "02:00:00:00:00:01",
        "ipv4_src": "10.0.0.1",
        "udp_src": "1000",
        "kind": "1",
        "job": "3",
        "worker": "0",
        "slot": "512-1023",
    }
    assert admitted.parameters == {"worker_bit": "0x1", "job_mask": "0x3", "epoch": "7", "group": "3"}
    assert admitted.packets is None


def test_sixty_four_ranks_fill_the_bitmap() -> None:
    job = JobTables(1, 1, 0, 2, 1, tuple(RankPort(r, 1, 0, 1, 1) for r in range(64)))
    last = entities_of(job)[-1]
    assert isinstance(last, fy.P4TableEntry)
    assert isinstance(last.action, fy.P4TableAction)
    assert (last.action.args["worker_bit"], last.action.args["job_mask"]) == (1 << 63, 2**64 - 1)


def test_capabilities_come_from_the_configuration_or_the_program() -> None:
    soft = SwitchConfig(target=SOFT, values_per_packet=1024, slots=100, **CONFIG)
    expected = Capabilities(
        1024, 100, streamed=True, owned_results=True, leaf=True, formats=frozenset(Format), rocev2=True
    )
    assert P4RuntimeDriver(soft).capabilities == expected


def test_bmv2_has_one_program_for_each_number_of_values() -> None:
    for values, expected in ((0, 64), (64, 64), (256, 256)):
        bmv2 = SwitchConfig(target=BMV2, values_per_packet=values, **CONFIG)
        # A packet of 256 values would grow by more than BMv2 survives, from codes as well as from none.
        streamed = expected == 64
        formats = frozenset(Format) - {Format.FLOAT32} if streamed else frozenset((Format.INT32,))
        capabilities = P4RuntimeDriver(bmv2).capabilities
        assert capabilities == Capabilities(
            expected, 2048, streamed=streamed, owned_results=True, rocev2=True, leaf=True, formats=formats
        )


def test_bmv2_has_a_program_that_adds_floats() -> None:
    bmv2 = SwitchConfig(target=BMV2, program="switchml_floats", **CONFIG)
    assert P4RuntimeDriver(bmv2).capabilities == Capabilities(
        64,
        2048,
        streamed=True,
        owned_results=True,
        rocev2=True,
        leaf=True,
        formats=frozenset((Format.INT32, Format.FLOAT32)),
    )


@pytest.mark.parametrize(("version", "field"), [("1.3.0", "egress_port"), ("1.4.1", "egress_port"), ("1.5.0", "port")])
def test_replicas_are_written_as_the_switch_s_api_version_wants_them(version: str, field: str) -> None:
    schema = fy.P4Schema()
    schema.set_p4runtime_version(P4RuntimeVersion.parse(version))
    group = entities_of(JobTables(3, 1, 0, 2, 3, (RankPort(0, 258, 0, 1, 1), RankPort(1, 7, 0, 1, 1))))[0]
    replicas = group.encode(schema).packet_replication_engine_entry.multicast_group_entry.replicas
    assert [replica.WhichOneof("port_kind") for replica in replicas] == [field, field]
    expected = [258, 7] if field == "egress_port" else [b"\x01\x02", b"\x07"]
    assert [getattr(replica, field) for replica in replicas] == expected
    assert [replica.instance for replica in replicas] == [0, 1]


def test_losses_are_shares_of_packets() -> None:
    assert [loss_threshold(share) for share in (0, 1e-12, 0.5, 1)] == [0, 1, 0x80000000, 0xFFFFFFFF]
    entries: list[Any] = [loss_entry("egress", 7, 0xFFFFFFFF), loss_entry("ingress", 7, loss_threshold(0.02))]
    entries += [loss_entry("ingress", 2, 0xFFFFFFFF), *entities_of(JOB)[1:]]
    first, second = port_losses(entries)
    assert (first.port, first.ingress, first.egress) == (2, 1, 0)
    assert (second.port, second.egress) == (7, 1)
    assert second.ingress == pytest.approx(0.02)


def test_packets_of_other_switches_are_read_from_their_entries_alone(schema: fy.P4Schema) -> None:
    parent = ParentPort(9, 0x0200000000FD, 0x0A0000FD, number=2, named=(0, 2, TREE_NO_RANK))
    job = replace(JOB, parent=parent)
    reads = link_entries(job, [1])
    assert [(read.match["kind"], read.match["worker"]) for read in reads if read.match is not None] == [
        (Kind.CONTRIBUTION, 1),
        (Kind.RESULT, 0),
        (Kind.RESULT, 2),
        (Kind.RESULT, TREE_NO_RANK),
    ]
    keys = [(entity.match, entity.priority) for entity in entities_of(job) if isinstance(entity, fy.P4TableEntry)]
    assert all((read.match, read.priority) in keys for read in reads)
    for packets, read in enumerate(reads, start=10):
        read.counter_data = fy.P4CounterData(byte_count=0, packet_count=packets)
    others = link_entries(replace(job, job=4), [0, 1])
    traffic = job_traffic(job, [1], {Verdict.FORWARDED: 5}, [*as_read(reads, schema), *others])
    assert traffic == JobTraffic({Verdict.FORWARDED: 5}, {1: 10}, 11 + 12 + 13)
