"""Tables of the soft switch over P4Runtime: writing and reading entries, as the specification says."""

from __future__ import annotations

import collections

import grpc
import pytest
from finsy.proto import p4r, rpc_code

from tests.support.p4_messages import (
    ADDRESS,
    DELETE,
    INSERT,
    MODIFY,
    counter_entry,
    entity,
    group_entry,
    info,
    object_id,
    rank_entry,
    register_entry,
    table_action,
    table_entry,
    update,
    worker_entry,
)
from tests.support.soft_switch import Client, read_error, rpc_error, uint128, update_errors, write_error

Code = grpc.StatusCode


class TestWrite:
    def test_who_may_write(self, client: Client) -> None:
        assert rpc_error(client.write, device_id=2)[0] == Code.NOT_FOUND
        assert rpc_error(client.write, role="unheard of")[0] == Code.NOT_FOUND
        assert rpc_error(client.write, role_id=3)[0] == Code.NOT_FOUND
        request = p4r.WriteRequest(device_id=1)
        assert rpc_error(client.stub.Write, request)[0] == Code.PERMISSION_DENIED
        assert client.election_id is not None
        request.election_id.CopyFrom(uint128(client.election_id + 1000))
        assert rpc_error(client.stub.Write, request)[0] == Code.PERMISSION_DENIED
        for atomicity in (p4r.WriteRequest.ROLLBACK_ON_ERROR, p4r.WriteRequest.DATAPLANE_ATOMIC):
            assert rpc_error(client.write, atomicity=atomicity)[0] == Code.UNIMPLEMENTED

    def test_insert_modify_delete(self, client: Client) -> None:
        entry = worker_entry(controller_metadata=11, metadata=b"cookie")
        client.write(update(INSERT, entry))
        (found,) = client.read(entity(p4r.TableEntry()))
        assert found.table_entry == entry
        code, message = write_error(client, INSERT, entry)
        assert code == rpc_code.ALREADY_EXISTS
        assert message.startswith("worker_table")
        modified = worker_entry(("admit", 2, 3, 8, 5))
        client.write(update(MODIFY, modified))
        (found,) = client.read(entity(worker_entry(None)))
        assert found.table_entry == modified
        client.write(update(MODIFY, worker_entry(None, metadata=b"new")))  # without an action: unchanged
        (found,) = client.read(entity(worker_entry(None)))
        assert found.table_entry == worker_entry(("admit", 2, 3, 8, 5), metadata=b"new")
        nonsense = worker_entry(None, idle_timeout_ns=-5, is_const=True)  # only the key counts in a DELETE
        client.write(update(DELETE, nonsense))
        assert client.read(entity(p4r.TableEntry())) == []
        assert write_error(client, DELETE, entry)[0] == rpc_code.NOT_FOUND
        assert write_error(client, MODIFY, entry)[0] == rpc_code.NOT_FOUND

    def test_priority_and_mask_are_part_of_the_key(self, client: Client) -> None:
        entries = [worker_entry(), worker_entry(priority=2), worker_entry(match={"slot": (0x80, 0xFFC0)})]
        entries.append(worker_entry(match={"slot": None}, priority=9))
        client.write(*(update(INSERT, e) for e in entries))
        found = client.read(entity(table_entry("worker_table")))
        assert [f.table_entry for f in found] == entries
        found = client.read(entity(table_entry("worker_table", priority=1)))
        assert [f.table_entry for f in found] == [entries[0], entries[2]]
        found = client.read(entity(worker_entry(None, priority=0)))  # that match, with any priority
        assert [f.table_entry for f in found] == entries[:2]
        client.write(update(DELETE, worker_entry(priority=2)))
        assert len(client.read(entity(p4r.TableEntry()))) == 3

    def test_leading_zeros_are_accepted_and_not_kept(self, client: Client) -> None:
        padded = worker_entry(
            ("admit", bytes(8) + b"\x01", 3, b"\0\x07", 5), match={"job": b"\0\x05", "eth_src": bytes(6)}
        )
        client.write(update(INSERT, padded))
        (found,) = client.read(entity(p4r.TableEntry()))
        assert found.table_entry == worker_entry()

    @pytest.mark.parametrize(
        ("message", "code", "text"),
        [
            (worker_entry(match={"ingress_port": 512}), rpc_code.OUT_OF_RANGE, "ingress_port does not fit into 9 bits"),
            (worker_entry(match={"worker": b"\0\x01\0"}), rpc_code.OUT_OF_RANGE, "worker"),
            (worker_entry(match={"job": b""}), rpc_code.OUT_OF_RANGE, "job is an empty byte string"),
            (worker_entry(match={"job": bytes(5000) + b"\x01" * 5000}), rpc_code.OUT_OF_RANGE, "job does not fit"),
            (worker_entry(match={"slot": (0x1, 0x10000)}), rpc_code.OUT_OF_RANGE, "(mask)"),
            (worker_entry(match={"slot": (0, 0)}), rpc_code.INVALID_ARGUMENT, "mask 0"),
            (worker_entry(match={"slot": (0x41, 0xFFC0)}), rpc_code.INVALID_ARGUMENT, "outside its mask"),
            (worker_entry(match={"slot": 5}), rpc_code.INVALID_ARGUMENT, "slot is ternary, but the match is exact"),
            (worker_entry(match={"job": (5, 7)}), rpc_code.INVALID_ARGUMENT, "job is exact, but the match is ternary"),
            (worker_entry(match={"job": None}), rpc_code.INVALID_ARGUMENT, "job is missing"),
            (worker_entry(priority=0), rpc_code.INVALID_ARGUMENT, "priority must be greater than 0"),
            (worker_entry(priority=-1), rpc_code.INVALID_ARGUMENT, "priority must be greater than 0"),
            (worker_entry(None), rpc_code.INVALID_ARGUMENT, "needs an action"),
            (worker_entry(("admit", 1, 3, 7)), rpc_code.INVALID_ARGUMENT, "lacks group"),
            (worker_entry(("admit", 1, 3, 7, 5, 6)), rpc_code.INVALID_ARGUMENT, "no parameter with id 5"),
            (worker_entry(("admit", 1, 3, 0x10000, 5)), rpc_code.OUT_OF_RANGE, "epoch"),
            (worker_entry(("flood", 1)), rpc_code.INVALID_ARGUMENT, "no action with id"),
            (worker_entry(("NoAction",)), rpc_code.PERMISSION_DENIED, "scope"),
            (worker_entry(is_const=True), rpc_code.INVALID_ARGUMENT, "is_const"),
            (worker_entry(idle_timeout_ns=1), rpc_code.INVALID_ARGUMENT, "idle"),
            (worker_entry(meter_config=p4r.MeterConfig(cir=1)), rpc_code.INVALID_ARGUMENT, "meter"),
            (worker_entry(is_default_action=True), rpc_code.INVALID_ARGUMENT, "default entry always exists"),
            (worker_entry(metadata=bytes(5000)), rpc_code.RESOURCE_EXHAUSTED, "metadata"),
            (worker_entry(counter_data=p4r.CounterData(packet_count=-1)), rpc_code.INVALID_ARGUMENT, "negative"),
            (table_entry("rank_table", {"job": 1, "rank": 1}, ADDRESS, priority=4),
             rpc_code.INVALID_ARGUMENT, "priority must be 0"),
            (table_entry("rank_table", {"job": 1, "rank": 1}, ADDRESS, counter_data=p4r.CounterData()),
             rpc_code.INVALID_ARGUMENT, "no direct counter"),
            (table_entry("switch_address_table", None, ("set_switch_address", 1, 2)), rpc_code.INVALID_ARGUMENT,
             "no key"),
            (table_entry("loss_ingress_table", {"port": 1}, ("lose", 1 << 32)), rpc_code.OUT_OF_RANGE, "threshold"),
            (table_entry("l2_table", {"eth_dst": 1}, ("forward", 512)), rpc_code.OUT_OF_RANGE, "port"),
            (p4r.TableEntry(table_id=5), rpc_code.INVALID_ARGUMENT, "no table with id 0x5"),
            (p4r.TableEntry(), rpc_code.INVALID_ARGUMENT, "table_id is 0"),
        ],
    )  # fmt: skip
    def test_insert_refused(self, client: Client, message: p4r.TableEntry, code: int, text: str) -> None:
        found_code, found_text = write_error(client, INSERT, message)
        assert found_code == code
        assert text in found_text
        assert client.read(entity(p4r.TableEntry())) == []

    def test_more_malformed_entries(self, client: Client) -> None:
        twice = worker_entry()
        twice.match.add().CopyFrom(twice.match[0])
        assert "twice" in write_error(client, INSERT, twice)[1]
        twice = worker_entry()
        twice.action.action.params.add().CopyFrom(twice.action.action.params[0])
        assert "twice" in write_error(client, INSERT, twice)[1]
        unknown = worker_entry()
        unknown.match.add(field_id=99, exact={"value": b"\1"})
        assert "no match field with id 99" in write_error(client, INSERT, unknown)[1]
        member = worker_entry()
        member.action.action_profile_member_id = 4
        assert "direct table" in write_error(client, INSERT, member)[1]

    def test_a_batch_says_which_updates_failed(self, client: Client) -> None:
        good, bad = rank_entry(rank=1), rank_entry(rank=2, action=("address_rank", 0, 1 << 32, 1, 1))
        with pytest.raises(grpc.RpcError) as raised:
            client.write(update(INSERT, good), update(INSERT, bad), update(INSERT, good), update(INSERT, rank_entry(3)))
        errors = update_errors(raised.value)
        codes = [rpc_code.OK, rpc_code.OUT_OF_RANGE, rpc_code.ALREADY_EXISTS, rpc_code.OK]
        assert [e.canonical_code for e in errors] == codes
        assert errors[0] == p4r.Error()
        assert "2 of 4" in raised.value.details()
        assert len(client.read(entity(p4r.TableEntry()))) == 2

    def test_many_failures_fit_into_the_default_metadata(self, client: Client) -> None:
        with grpc.insecure_channel(client.switch_address) as channel:
            stub = type(client.stub)(channel)
            assert client.election_id is not None
            request = p4r.WriteRequest(device_id=1, election_id=uint128(client.election_id))
            request.updates.extend([update(DELETE, rank_entry(1))] * 60)
            with pytest.raises(grpc.RpcError) as raised:
                stub.Write(request)
        assert [e.canonical_code for e in update_errors(raised.value)] == [rpc_code.NOT_FOUND] * 60

    def test_a_full_table(self, client: Client) -> None:
        (size,) = (t.size for t in info().tables if t.preamble.alias == "job_table")
        entries = [table_entry("job_table", {"job": job}, ("describe_job", 0, 0)) for job in range(size + 2)]
        with pytest.raises(grpc.RpcError) as raised:
            client.write(*(update(INSERT, e) for e in entries))
        codes = [e.canonical_code for e in update_errors(raised.value)]
        assert codes == [rpc_code.OK] * size + [rpc_code.RESOURCE_EXHAUSTED] * 2
        client.write(update(DELETE, entries[0]), update(INSERT, entries[-1]))
        assert len(client.read(entity(table_entry("job_table")))) == size

    def test_what_this_pipeline_does_not_have(self, client: Client) -> None:
        clone = p4r.PacketReplicationEngineEntry(clone_session_entry=p4r.CloneSessionEntry(session_id=1))
        one_each = [
            p4r.Entity(action_profile_member=p4r.ActionProfileMember(action_profile_id=1)),
            p4r.Entity(action_profile_group=p4r.ActionProfileGroup(action_profile_id=1)),
            p4r.Entity(meter_entry=p4r.MeterEntry(meter_id=1)),
            p4r.Entity(direct_meter_entry=p4r.DirectMeterEntry(table_entry=p4r.TableEntry(table_id=1))),
            p4r.Entity(value_set_entry=p4r.ValueSetEntry(value_set_id=1)),
            p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=1)),
            p4r.Entity(extern_entry=p4r.ExternEntry(extern_type_id=1)),
            p4r.Entity(packet_replication_engine_entry=clone),
            p4r.Entity(),
            p4r.Entity(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry()),
        ]
        expected = [rpc_code.UNIMPLEMENTED] * 8 + [rpc_code.INVALID_ARGUMENT] * 2
        with pytest.raises(grpc.RpcError) as raised:
            client.write(*(p4r.Update(type=INSERT, entity=e) for e in one_each))
        assert [e.canonical_code for e in update_errors(raised.value)] == expected
        with pytest.raises(grpc.RpcError) as raised:
            client.read(*one_each)
        assert [e.canonical_code for e in update_errors(raised.value)] == expected
        assert write_error(client, p4r.Update.UNSPECIFIED, rank_entry())[0] == rpc_code.INVALID_ARGUMENT
        assert write_error(client, 17, rank_entry())[0] == rpc_code.INVALID_ARGUMENT

    def test_the_whole_state_can_be_asked_for(self, client: Client) -> None:
        """Test the example of the specification's "Wildcard Reads": one default message of every kind."""
        client.write(update(INSERT, rank_entry()), update(INSERT, group_entry(3)))
        whole = [p4r.Entity() for _ in p4r.Entity.DESCRIPTOR.fields]
        for request, field in zip(whole, p4r.Entity.DESCRIPTOR.fields, strict=True):
            getattr(request, field.name).SetInParent()
        for request in whole:
            if request.WhichOneof("entity") == "packet_replication_engine_entry":
                request.packet_replication_engine_entry.multicast_group_entry.SetInParent()
        whole.append(p4r.Entity())
        whole[-1].packet_replication_engine_entry.clone_session_entry.SetInParent()
        kinds = collections.Counter(e.WhichOneof("entity") for e in client.read(*whole))
        assert kinds == {
            "table_entry": 1,
            "packet_replication_engine_entry": 1,
            "counter_entry": sum(c.size for c in info().counters),
            "register_entry": 128 * len(info().registers),
        }


class TestDefaultEntries:
    def test_keyless_table(self, client: Client) -> None:
        request = table_entry("switch_address_table", is_default_action=True)
        (found,) = client.read(entity(request))
        assert found.table_entry.action == table_action("set_switch_address", 0, 0)
        written = table_entry(
            "switch_address_table", None, ("set_switch_address", 0x020304050607, 0x0A000001), is_default_action=True
        )
        written.metadata = b"mine"
        client.write(update(MODIFY, written))
        (found,) = client.read(entity(request))
        assert found.table_entry == written
        assert client.read(entity(table_entry("switch_address_table"))) == []
        client.write(update(MODIFY, request))  # without an action: reset to the program's default
        (found,) = client.read(entity(request))
        assert found.table_entry.action == table_action("set_switch_address", 0, 0)
        assert found.table_entry.metadata == b""
        for kind in (INSERT, DELETE):
            assert write_error(client, kind, written)[0] == rpc_code.INVALID_ARGUMENT
        not_default = table_entry("switch_address_table", None, ("set_switch_address", 1, 2))
        for kind in (MODIFY, DELETE):
            assert write_error(client, kind, not_default)[0] == rpc_code.INVALID_ARGUMENT

    def test_settable_and_constant_defaults(self, client: Client) -> None:
        flood = table_entry("l2_table", None, ("flood", 9), is_default_action=True)
        client.write(update(MODIFY, flood))
        (found,) = client.read(entity(table_entry("l2_table", is_default_action=True)))
        assert found.table_entry == flood
        constant = table_entry("rank_table", None, ("NoAction",), is_default_action=True)
        assert write_error(client, MODIFY, constant)[0] == rpc_code.PERMISSION_DENIED
        (found,) = client.read(entity(table_entry("rank_table", is_default_action=True)))
        assert found.table_entry.is_const
        with_priority = table_entry("l2_table", None, ("flood", 9), is_default_action=True, priority=1)
        assert write_error(client, MODIFY, with_priority)[0] == rpc_code.INVALID_ARGUMENT
        everything = client.read(entity(p4r.TableEntry(is_default_action=True)))
        assert len(everything) == len(info().tables)


class TestRead:
    def test_filters(self, client: Client) -> None:
        forward = table_entry("l2_table", {"eth_dst": 1}, ("forward", 2), controller_metadata=3)
        flood = table_entry("l2_table", {"eth_dst": 2}, ("flood", 2), metadata=b"m")
        client.write(*(update(INSERT, e) for e in (forward, flood, rank_entry(), worker_entry())))
        assert len(client.read(entity(p4r.TableEntry()))) == 4
        by_action = table_entry("l2_table")
        by_action.action.action.action_id = object_id("flood")
        for request, expected in (
            (table_entry("l2_table"), [forward, flood]),
            (by_action, [flood]),
            (table_entry("l2_table", metadata=b"m"), [flood]),
            (table_entry("l2_table", controller_metadata=3), [forward]),
            (table_entry("l2_table", {"eth_dst": 1}), [forward]),
            (table_entry("l2_table", {"eth_dst": 5}), []),
        ):
            assert [e.table_entry for e in client.read(entity(request))] == expected
        wrong_action = table_entry("l2_table")
        wrong_action.action.action.action_id = object_id("admit")
        for request in (
            wrong_action,
            p4r.TableEntry(table_id=5),
            p4r.TableEntry(priority=5),
            worker_entry(None, match={"job": None}),
            table_entry("worker_table", priority=-1),
            table_entry("l2_table", time_since_last_hit=p4r.TableEntry.IdleTimeout()),
        ):
            assert read_error(client, request) == rpc_code.INVALID_ARGUMENT
        assert rpc_error(client.read, device_id=2)[0] == Code.NOT_FOUND

    def test_a_batch_answers_what_it_can(self, client: Client) -> None:
        client.write(update(INSERT, rank_entry()))
        request = p4r.ReadRequest(device_id=1)
        request.entities.extend(
            [entity(p4r.TableEntry(table_id=5)), entity(p4r.TableEntry()), entity(register_entry("lane_0", 10**6))]
        )
        found: list[p4r.Entity] = []
        with pytest.raises(grpc.RpcError) as raised:
            found.extend(entity for response in client.stub.Read(request) for entity in response.entities)
        assert [e.table_entry for e in found] == [rank_entry()]
        codes = [rpc_code.INVALID_ARGUMENT, rpc_code.OK, rpc_code.OUT_OF_RANGE]
        assert [e.canonical_code for e in update_errors(raised.value)] == codes

    def test_long_answers_come_in_pieces(self, client: Client) -> None:
        client.write(*(update(INSERT, rank_entry(rank)) for rank in range(1000)))
        request = p4r.ReadRequest(device_id=1, entities=[entity(p4r.TableEntry())])
        sizes = [len(response.entities) for response in client.stub.Read(request)]
        assert sum(sizes) == 1000
        assert max(sizes) <= 256

    def test_a_read_that_asks_for_too_much(self, client: Client) -> None:
        with pytest.raises(grpc.RpcError) as raised:
            client.read(*[entity(counter_entry())] * 5)
        codes = [e.canonical_code for e in update_errors(raised.value)]
        assert codes == [rpc_code.OK] * 3 + [rpc_code.RESOURCE_EXHAUSTED] * 2
