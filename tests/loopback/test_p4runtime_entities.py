"""Multicast groups, counters and registers of the soft switch over P4Runtime, as the specification says."""

from __future__ import annotations

import grpc
import pytest
from finsy.proto import p4d, p4r, rpc_code

from tests.support.p4_messages import (
    DELETE,
    INSERT,
    MODIFY,
    counter_entry,
    entity,
    group_entry,
    info,
    rank_entry,
    register_entry,
    table_entry,
    update,
    worker_entry,
)
from tests.support.soft_switch import Client, read_error, update_errors, write_error

Code = grpc.StatusCode


class TestMulticastGroups:
    def test_insert_modify_delete(self, client: Client) -> None:
        group = group_entry(5, (1, 0), (1, 1), (2, 1), metadata=b"m")
        client.write(update(INSERT, group), update(INSERT, group_entry(9)))
        found = client.read(entity(group_entry(0)))
        assert [e.packet_replication_engine_entry for e in found] == [group, group_entry(9)]
        assert write_error(client, INSERT, group)[0] == rpc_code.ALREADY_EXISTS
        client.write(update(MODIFY, group_entry(5, (2, 7))))
        (modified,) = client.read(entity(group_entry(5)))
        assert modified.packet_replication_engine_entry == group_entry(5, (2, 7))
        client.write(update(DELETE, group_entry(5)))
        assert client.read(entity(group_entry(5))) == []
        assert write_error(client, DELETE, group_entry(5))[0] == rpc_code.NOT_FOUND
        assert write_error(client, MODIFY, group_entry(5))[0] == rpc_code.NOT_FOUND

    def test_old_form_of_port_reads_back_as_written(self, client: Client) -> None:
        group = p4r.MulticastGroupEntry(multicast_group_id=3)
        group.replicas.add(egress_port=2, instance=4)
        group.replicas.add(port=b"\0\x01", instance=4)
        client.write(update(INSERT, p4r.PacketReplicationEngineEntry(multicast_group_entry=group)))
        (found,) = client.read(entity(group_entry(3)))
        group.replicas[1].port = b"\x01"
        assert found.packet_replication_engine_entry.multicast_group_entry == group

    def test_refused(self, client: Client) -> None:
        backup = group_entry(5, (1, 0))
        backup.multicast_group_entry.replicas[0].backup_replicas.add(port=b"\2", instance=1)
        for entry, code, text in (
            (group_entry(0, (1, 0)), rpc_code.INVALID_ARGUMENT, "id is 1 to 65535"),
            (group_entry(65536, (1, 0)), rpc_code.INVALID_ARGUMENT, "id is 1 to 65535"),
            (group_entry(5, (1, 0), (1, 0)), rpc_code.INVALID_ARGUMENT, "port 1, instance 0 twice"),
            (group_entry(5, (1, 65536)), rpc_code.INVALID_ARGUMENT, "at most 65535"),
            (group_entry(5, (7, 0)), rpc_code.INVALID_ARGUMENT, "no port 7; its ports are 1, 2"),
            (group_entry(5, (512, 0)), rpc_code.OUT_OF_RANGE, "9 bits"),
            (group_entry(5, (1, 0), metadata=bytes(5000)), rpc_code.RESOURCE_EXHAUSTED, "metadata"),
            (group_entry(5, *((1, i) for i in range(513))), rpc_code.RESOURCE_EXHAUSTED, "513 replicas"),
            (backup, rpc_code.UNIMPLEMENTED, "no backup replicas"),
        ):
            found_code, found_text = write_error(client, INSERT, entry)
            assert found_code == code
            assert text in found_text
        assert client.read(entity(group_entry(0))) == []


class TestCounters:
    def test_indirect(self, client: Client) -> None:
        client.write(update(MODIFY, counter_entry("drop_counter", 31, 5, 600)))
        (found,) = client.read(entity(counter_entry("drop_counter", 31)))
        assert found.counter_entry == counter_entry("drop_counter", 31, 5, 600)
        client.write(update(MODIFY, counter_entry("drop_counter", 31)))  # without data: nothing changes
        cells = client.read(entity(counter_entry("drop_counter")))
        assert [c.counter_entry.index.index for c in cells] == list(range(32))
        assert [c.counter_entry.data.packet_count for c in cells] == [0] * 31 + [5]
        everything = client.read(entity(counter_entry()))
        assert len(everything) == sum(c.size for c in info().counters)
        client.write(update(MODIFY, counter_entry("drop_counter", None, 2, 3)))  # without an index: all entries
        cells = client.read(entity(counter_entry("drop_counter")))
        assert {(c.counter_entry.data.packet_count, c.counter_entry.data.byte_count) for c in cells} == {(2, 3)}

    def test_indirect_refused(self, client: Client) -> None:
        good = counter_entry("job_counter", 16383, 1, 1)
        client.write(update(MODIFY, good))
        for kind in (INSERT, DELETE):
            assert write_error(client, kind, good)[0] == rpc_code.INVALID_ARGUMENT
        for entry, code in (
            (counter_entry("job_counter", 16384, 1), rpc_code.OUT_OF_RANGE),
            (counter_entry("job_counter", -1, 1), rpc_code.INVALID_ARGUMENT),
            (counter_entry("job_counter", 1, -1), rpc_code.INVALID_ARGUMENT),
            (p4r.CounterEntry(counter_id=3), rpc_code.INVALID_ARGUMENT),
        ):
            assert write_error(client, MODIFY, entry)[0] == code
        assert write_error(client, MODIFY, p4r.CounterEntry())[0] == rpc_code.INVALID_ARGUMENT
        assert read_error(client, counter_entry("job_counter", 16384)) == rpc_code.OUT_OF_RANGE
        assert read_error(client, counter_entry("job_counter", -1)) == rpc_code.INVALID_ARGUMENT
        assert read_error(client, p4r.CounterEntry(counter_id=3)) == rpc_code.INVALID_ARGUMENT

    def test_direct(self, client: Client) -> None:
        data = p4r.CounterData(packet_count=4, byte_count=500)
        client.write(update(INSERT, worker_entry(counter_data=data)), update(INSERT, worker_entry(priority=2)))
        (found,) = client.read(entity(worker_entry(None)))
        assert not found.table_entry.HasField("counter_data")
        (found,) = client.read(entity(worker_entry(None, counter_data=p4r.CounterData())))
        assert found.table_entry.counter_data == data
        client.write(update(MODIFY, worker_entry(("admit", 8, 8, 8, 8))))  # a new action keeps the counter
        key = worker_entry(None)
        (found,) = client.read(entity(p4r.DirectCounterEntry(table_entry=key)))
        assert found.direct_counter_entry == p4r.DirectCounterEntry(table_entry=key, data=data)
        more = p4r.CounterData(packet_count=9, byte_count=9)
        client.write(update(MODIFY, p4r.DirectCounterEntry(table_entry=worker_entry(None, priority=2), data=more)))
        client.write(update(MODIFY, worker_entry(None, counter_data=p4r.CounterData(packet_count=1))))
        for request in (p4r.TableEntry(), table_entry("worker_table")):
            counters = client.read(entity(p4r.DirectCounterEntry(table_entry=request)))
            assert [e.direct_counter_entry.data.packet_count for e in counters] == [1, 9]
        everything = client.read(entity(p4r.TableEntry(counter_data=p4r.CounterData())))
        assert [e.table_entry.counter_data.packet_count for e in everything] == [1, 9]

    def test_direct_refused(self, client: Client) -> None:
        missing = p4r.DirectCounterEntry(table_entry=worker_entry(None), data=p4r.CounterData(packet_count=1))
        assert write_error(client, MODIFY, missing)[0] == rpc_code.NOT_FOUND
        assert read_error(client, missing) == rpc_code.NOT_FOUND
        for kind in (INSERT, DELETE):
            assert write_error(client, kind, missing)[0] == rpc_code.INVALID_ARGUMENT
        without = p4r.DirectCounterEntry(table_entry=rank_entry(action=None), data=p4r.CounterData(packet_count=1))
        assert write_error(client, MODIFY, without)[0] == rpc_code.INVALID_ARGUMENT
        assert read_error(client, without) == rpc_code.INVALID_ARGUMENT
        default = p4r.DirectCounterEntry(table_entry=table_entry("worker_table", is_default_action=True))
        assert read_error(client, default) == rpc_code.UNIMPLEMENTED
        assert write_error(client, MODIFY, p4r.DirectCounterEntry())[0] == rpc_code.INVALID_ARGUMENT


class TestRegisters:
    @pytest.mark.parametrize(
        ("name", "bits"),
        [("slot_epoch", 16), ("slot_phase", 32), ("slot_bitmap", 64), ("slot_exponent", 16), ("slot_check", 32),
         ("lane_0", 32), ("lane_63", 32)],
    )  # fmt: skip
    def test_widest_value(self, client: Client, name: str, bits: int) -> None:
        widest = register_entry(name, 127, (1 << bits) - 1)
        client.write(update(MODIFY, widest))
        (found,) = client.read(entity(register_entry(name, 127)))
        assert found.register_entry == widest
        assert write_error(client, MODIFY, register_entry(name, 127, 1 << bits))[0] == rpc_code.OUT_OF_RANGE
        assert write_error(client, MODIFY, register_entry(name, 128, 1))[0] == rpc_code.OUT_OF_RANGE
        assert write_error(client, MODIFY, register_entry(name, -1, 1))[0] == rpc_code.INVALID_ARGUMENT

    def test_wildcards(self, client: Client) -> None:
        client.write(update(MODIFY, register_entry("lane_7", None, 0xABCDEF)))
        found = client.read(entity(register_entry("lane_7")))
        assert [e.register_entry for e in found] == [register_entry("lane_7", i, 0xABCDEF) for i in range(128)]
        found = client.read(entity(p4r.RegisterEntry()))
        assert len(found) == 128 * len(info().registers)
        assert sum(e.register_entry.data.bitstring != b"\0" for e in found) == 128

    def test_refused(self, client: Client) -> None:
        good = register_entry("lane_0", 0, 1)
        for kind in (INSERT, DELETE):
            assert write_error(client, kind, good)[0] == rpc_code.INVALID_ARGUMENT
        other_type = p4r.RegisterEntry(register_id=good.register_id, index=good.index, data=p4d.P4Data(bool=True))
        for entry in (register_entry("lane_0", 0), other_type, p4r.RegisterEntry(), p4r.RegisterEntry(register_id=3)):
            assert write_error(client, MODIFY, entry)[0] == rpc_code.INVALID_ARGUMENT
        assert read_error(client, p4r.RegisterEntry(register_id=3)) == rpc_code.INVALID_ARGUMENT

    def test_lanes_follow_the_device_config(self, client: Client) -> None:
        client.set_config(device_config=b'{"values_per_packet": 8, "slots": 2}')
        assert len(client.read(entity(p4r.RegisterEntry()))) == 4 * (len(info().registers) - 56)
        client.write(update(MODIFY, register_entry("lane_7", 3, 1)))
        assert write_error(client, MODIFY, register_entry("lane_8", 3, 1))[0] == rpc_code.OUT_OF_RANGE
        assert read_error(client, register_entry("lane_8")) == rpc_code.OUT_OF_RANGE

    def test_a_write_does_not_hide_in_a_read_under_way(self, client: Client) -> None:
        client.set_config(device_config=b'{"slots": 32768}')
        responses = client.stub.Read(p4r.ReadRequest(device_id=1, entities=[entity(p4r.RegisterEntry())]))
        next(responses)  # of millions of entries; the rest waits for this client
        client.write(update(MODIFY, register_entry("lane_0", 0, 1)))
        with pytest.raises(grpc.RpcError) as raised:
            for _ in responses:
                pass
        assert [e.canonical_code for e in update_errors(raised.value)] == [rpc_code.ABORTED]

    def test_a_write_that_sets_too_many_arrays(self, client: Client) -> None:
        updates = [update(MODIFY, register_entry("lane_0", None, 1))] * 130
        with pytest.raises(grpc.RpcError) as raised:
            client.write(*updates)
        codes = [e.canonical_code for e in update_errors(raised.value)]
        assert codes == [rpc_code.OK] * 128 + [rpc_code.RESOURCE_EXHAUSTED] * 2
