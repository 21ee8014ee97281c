"""Forwarding-pipeline configurations of the soft switch, as the P4Runtime specification says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4d, p4i, p4r, rpc_code
from google.protobuf import text_format

from tests.support.p4_messages import (
    INSERT,
    MODIFY,
    P4INFO_PATH,
    entity,
    load_p4info,
    rank_entry,
    register_entry,
    update,
)
from tests.support.soft_switch import Client, SetConfig, read_error, rpc_error, running_switch

Code = grpc.StatusCode


class TestPipelineConfig:
    def test_before_there_is_one(self, tmp_path: Path) -> None:
        with running_switch(tmp_path, "--udp-port", "1=127.0.0.1:0") as fresh, Client(fresh.address) as first:
            assert not first.get_config().HasField("config")
            assert rpc_error(first.write)[0] == Code.FAILED_PRECONDITION
            code, message = rpc_error(first.read, entity(p4r.TableEntry()))
            assert code == Code.FAILED_PRECONDITION
            assert message.startswith("no forwarding pipeline config")
            first.set_config(SetConfig.VERIFY)
            assert rpc_error(first.write)[0] == Code.FAILED_PRECONDITION
            assert rpc_error(first.set_config, SetConfig.COMMIT, without_config=True)[0] == Code.NOT_FOUND
            first.set_config(SetConfig.RECONCILE_AND_COMMIT)
            first.write()

    def test_read_back_in_parts(self, client: Client) -> None:
        device_config = b'{"values_per_packet": 64, "slots": 32}'
        client.set_config(device_config=device_config, cookie=77)
        part = p4r.GetForwardingPipelineConfigRequest
        whole = client.get_config(part.ALL).config
        assert (whole.p4info, whole.p4_device_config, whole.cookie.cookie) == (load_p4info(), device_config, 77)
        config = client.get_config(part.COOKIE_ONLY).config
        assert (config.HasField("p4info"), config.p4_device_config, config.cookie.cookie) == (False, b"", 77)
        config = client.get_config(part.P4INFO_AND_COOKIE).config
        assert (config.HasField("p4info"), config.p4_device_config, config.cookie.cookie) == (True, b"", 77)
        config = client.get_config(part.DEVICE_CONFIG_AND_COOKIE).config
        assert (config.HasField("p4info"), config.p4_device_config, config.cookie.cookie) == (False, device_config, 77)
        client.set_config()
        assert not client.get_config().config.HasField("cookie")

    def test_commit_clears_and_reconcile_keeps(self, client: Client) -> None:
        client.write(update(INSERT, rank_entry()), update(MODIFY, register_entry("lane_3", 5, 99)))
        client.set_config(SetConfig.RECONCILE_AND_COMMIT, cookie=5)
        assert client.get_config().config.cookie.cookie == 5
        assert len(client.read(entity(p4r.TableEntry()))) == 1
        (register,) = client.read(entity(register_entry("lane_3", 5)))
        assert register.register_entry.data.bitstring == b"\x63"
        code, message = rpc_error(client.set_config, SetConfig.RECONCILE_AND_COMMIT, b'{"slots": 32}')
        assert code == Code.INVALID_ARGUMENT
        assert "cannot be preserved" in message
        assert len(client.read(entity(p4r.TableEntry()))) == 1
        client.set_config(SetConfig.VERIFY_AND_COMMIT)
        assert client.read(entity(p4r.TableEntry())) == []
        (register,) = client.read(entity(register_entry("lane_3", 5)))
        assert register.register_entry.data.bitstring == b"\0"

    def test_save_then_commit_replays_the_writes(self, client: Client) -> None:
        client.write(update(INSERT, rank_entry(rank=1)))
        client.set_config(SetConfig.VERIFY_AND_SAVE, b'{"slots": 16}', cookie=6)
        # Reads and writes refer to the saved configuration, which has no entries and shorter registers.
        assert client.get_config().config.cookie.cookie == 6
        assert client.read(entity(p4r.TableEntry())) == []
        client.write(update(INSERT, rank_entry(rank=2)), update(MODIFY, register_entry("slot_epoch", 31, 9)))
        assert read_error(client, register_entry("slot_epoch", 32)) == rpc_code.OUT_OF_RANGE
        assert rpc_error(client.set_config, SetConfig.COMMIT)[0] == Code.INVALID_ARGUMENT
        client.set_config(SetConfig.COMMIT, without_config=True)
        (found,) = client.read(entity(p4r.TableEntry()))
        assert found.table_entry == rank_entry(rank=2)
        (register,) = client.read(entity(register_entry("slot_epoch", 31)))
        assert register.register_entry.data.bitstring == b"\x09"
        assert rpc_error(client.set_config, SetConfig.COMMIT, without_config=True)[0] == Code.NOT_FOUND

    def test_dimensions_are_not_compared(self, client: Client) -> None:
        changed = load_p4info()
        changed.pkg_info.version = "99"
        for register in changed.registers:
            register.size *= 2
        for table in changed.tables:
            for annotation in list(table.preamble.annotations):
                if "values_per_packet" in annotation:
                    table.preamble.annotations.remove(annotation)
                    table.preamble.annotations.append(annotation.replace("64", "256"))
        client.set_config(p4info=changed)
        assert client.get_config().config.p4info == changed

    def test_p4info_of_the_program_for_256_values(self, client: Client) -> None:
        wide = text_format.Parse(P4INFO_PATH.with_name("switchml_256.p4info.txtpb").read_text(), p4i.P4Info())
        (lane,) = (r.preamble.id for r in wide.registers if r.preamble.alias == "lane_255")
        client.set_config(p4info=wide, device_config=b'{"values_per_packet": 256, "slots": 4}')
        written = p4r.RegisterEntry(register_id=lane, index=p4r.Index(index=7), data=p4d.P4Data(bitstring=b"\x05"))
        client.write(update(MODIFY, written))
        (found,) = client.read(entity(written))
        assert found.register_entry == written
        assert len(client.read(entity(p4r.RegisterEntry()))) == 8 * len(wide.registers)

    def test_another_p4info_is_refused_with_the_difference(self, client: Client) -> None:
        client.write(update(INSERT, rank_entry()))
        for change, expected in P4INFO_CHANGES:
            changed = load_p4info()
            change(changed)
            for action in (SetConfig.VERIFY, SetConfig.VERIFY_AND_SAVE, SetConfig.VERIFY_AND_COMMIT):
                code, message = rpc_error(client.set_config, action, p4info=changed)
                assert code == Code.INVALID_ARGUMENT
                assert expected in message
        assert len(client.read(entity(p4r.TableEntry()))) == 1

    @pytest.mark.parametrize(
        ("device_config", "expected"),
        [
            (b"{", "takes JSON"),
            (b"\xff", "takes JSON"),
            (b"[" * 4000, "takes JSON"),
            (b"[1]", "not list"),
            (b"7", "not int"),
            (b'{"slots": 64, "slots": 64}', "twice"),
            (b'{"slot": 64}', "'slot'"),
            (b'{"slots": 0}', "slots must be an integer from 1 to 32768, not 0"),
            (b'{"slots": 32769}', "32769"),
            (b'{"slots": true}', "not True"),
            (b'{"slots": "64"}', "'64'"),
            (b'{"slots": null}', "None"),
            (b'{"slots": 1e2}', "100.0"),
            (b'{"values_per_packet": 2049}', "values_per_packet must be an integer from 1 to 2048"),
            (b'{"values_per_packet": -1}', "values_per_packet"),
            (b" " * 5000, "5000 bytes, more than 4096: the soft switch takes JSON"),
            ((P4INFO_PATH.parent / "switchml.json").read_bytes(), "compiled for BMv2 or Tofino is not for it"),
        ],
    )
    def test_bad_device_config(self, client: Client, device_config: bytes, expected: str) -> None:
        code, message = rpc_error(client.set_config, device_config=device_config)
        assert code == Code.INVALID_ARGUMENT
        assert expected in message

    def test_a_p4info_that_is_much_too_long(self, client: Client) -> None:
        changed = load_p4info()
        changed.pkg_info.doc.description = "x" * 2**20
        code, message = rpc_error(client.set_config, p4info=changed)
        assert code == Code.INVALID_ARGUMENT
        assert "may have 1,048,576" in message

    def test_bad_requests(self, client: Client) -> None:
        assert rpc_error(client.set_config, SetConfig.VERIFY, without_config=True)[0] == Code.INVALID_ARGUMENT
        assert rpc_error(client.set_config, SetConfig.UNSPECIFIED)[0] == Code.INVALID_ARGUMENT
        assert rpc_error(client.set_config, 99)[0] == Code.INVALID_ARGUMENT
        assert rpc_error(client.get_config, 99)[0] == Code.INVALID_ARGUMENT
        request = p4r.GetForwardingPipelineConfigRequest(device_id=2)
        assert rpc_error(client.stub.GetForwardingPipelineConfig, request)[0] == Code.NOT_FOUND
        backup = Client(client.switch_address, None)
        assert rpc_error(backup.set_config)[0] == Code.PERMISSION_DENIED
        backup.close()

    def test_capabilities(self, client: Client) -> None:
        assert client.stub.Capabilities(p4r.CapabilitiesRequest()).p4runtime_api_version == "1.5.0"
        assert client.stub.Capabilities(p4r.CapabilitiesRequest(device_id=1)).p4runtime_api_version == "1.5.0"
        assert rpc_error(client.stub.Capabilities, p4r.CapabilitiesRequest(device_id=9))[0] == Code.NOT_FOUND


def worker_table(p4info: p4i.P4Info) -> p4i.Table:
    return next(table for table in p4info.tables if table.preamble.alias == "worker_table")


P4INFO_CHANGES: list[tuple[Callable[[p4i.P4Info], object], str]] = [
    (lambda i: i.tables.pop(), "tables lacks"),
    (lambda i: i.Clear(), "tables lacks"),
    (lambda i: setattr(i.pkg_info, "arch", "psa"), "pkg_info.arch: psa instead of v1model"),
    (lambda i: setattr(worker_table(i), "size", 5), "size: 5 instead of"),
    (lambda i: setattr(worker_table(i).match_fields[0], "bitwidth", 16), "match_fields[0].bitwidth: 16 instead of 9"),
    (lambda i: setattr(worker_table(i).preamble, "id", 5), "preamble.id: 5 instead of"),
    (lambda i: i.tables.add().CopyFrom(worker_table(i)), "which is not in this pipeline"),
    (lambda i: i.digests.add().preamble.__setattr__("name", "extra"), "digests has extra"),
    (lambda i: setattr(i.registers[0].type_spec.bitstring.bit, "bitwidth", 7), "bitwidth: 7 instead of"),
    (lambda i: [i.registers.add() for _ in range(3000)], "and 2995 more"),
]
