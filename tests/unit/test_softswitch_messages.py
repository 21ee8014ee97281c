"""The parts of the soft switch's P4Runtime server that need neither a switch nor a socket."""

from __future__ import annotations

import grpc
import pytest
from finsy.proto import p4i, p4r, rpc_status
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from switchml.common.grpc_address import parse_host_port
from switchml.dataplane.softswitch import bytestring
from switchml.dataplane.softswitch.errors import P4RuntimeError, status_details
from switchml.dataplane.softswitch.pipeline_config import (
    Dimensions,
    describe_difference,
    load_supported_p4info,
    parse_device_config,
)
from switchml.dataplane.softswitch.schema import Schema
from switchml.dataplane.softswitch.table_entry import decode_key, encode_match

DEFAULT = Dimensions()


# The rows for bit<W> of the specification's two tables in "Bytestrings".
@pytest.mark.parametrize(
    ("bits", "data", "value"),
    [
        (8, b"\x63", 99),
        (16, b"\x00\x63", 99),
        (16, b"\x63", 99),
        (16, b"\x30\x64", 12388),
        (16, b"\x00\x30\x64", 12388),
        (12, b"\x00\x63", 99),
        (12, b"\x63", 99),
        (12, b"\x00\x00\x63", 99),
    ],
)
def test_valid_byte_strings(bits: int, data: bytes, value: int) -> None:
    assert bytestring.decode(data, bits, "field") == value


@pytest.mark.parametrize(
    ("bits", "data"),
    [
        (8, b"\x01\x63"),
        (8, b""),
        (16, b"\x01\x00\x63"),
        (12, b"\x10\x63"),
        (12, b"\x01\x00\x63"),
        (12, b"\x00\x40\x63"),
    ],
)
def test_invalid_byte_strings(bits: int, data: bytes) -> None:
    with pytest.raises(P4RuntimeError, match="field") as raised:
        bytestring.decode(data, bits, "field")
    assert raised.value.code == grpc.StatusCode.OUT_OF_RANGE


@given(st.integers(min_value=0, max_value=2**128 - 1), st.integers(min_value=0, max_value=9))
def test_byte_strings_round_trip(value: int, padding: int) -> None:
    data = bytestring.encode(value)
    assert len(data) == max(1, (value.bit_length() + 7) // 8)
    assert bytestring.decode(bytes(padding) + data, 128, "field") == value


@given(st.integers(min_value=1, max_value=64), st.binary(max_size=20))
def test_any_bytes_decode_within_the_field_or_not_at_all(bits: int, data: bytes) -> None:
    fits = bool(data) and int.from_bytes(data, "big") < 1 << bits
    try:
        assert bytestring.decode(data, bits, "field") == int.from_bytes(data, "big")
        assert fits
    except P4RuntimeError:
        assert not fits


def test_device_config_defaults() -> None:
    assert (DEFAULT.values_per_packet, DEFAULT.slots) == (256, 4096)
    assert parse_device_config(b"", DEFAULT) == DEFAULT
    assert parse_device_config(b"{}", Dimensions(8, 16)) == Dimensions(8, 16)
    assert parse_device_config(b'{"slots": 32768}', DEFAULT) == Dimensions(256, 32768)
    assert parse_device_config(b' {"values_per_packet": 2048, "slots": 1}\n', DEFAULT) == Dimensions(2048, 1)


@given(st.binary(max_size=200))
def test_any_device_config_is_understood_or_refused(data: bytes) -> None:
    try:
        assert isinstance(parse_device_config(data, DEFAULT), Dimensions)
    except P4RuntimeError as error:
        refused = error.code
        assert refused == grpc.StatusCode.INVALID_ARGUMENT


def test_difference_names_every_object_up_to_five() -> None:
    supported = load_supported_p4info()
    assert describe_difference(supported, supported) is None
    difference = describe_difference(supported, p4i.P4Info())
    assert difference is not None
    assert "pkg_info" in difference
    assert difference.endswith("more")
    assert difference.count(";") == 5


@given(st.binary(max_size=300))
def test_any_p4info_can_be_compared(data: bytes) -> None:
    given_p4info = p4i.P4Info()
    try:
        given_p4info.ParseFromString(data)
    except DecodeError:  # not a P4Info at all: gRPC refuses it before the server sees it
        return
    assert describe_difference(load_supported_p4info(), given_p4info) is not None


def test_difference_in_a_map() -> None:
    changed = load_supported_p4info()
    changed.type_info.structs["s"].SetInParent()
    assert describe_difference(load_supported_p4info(), changed) == "type_info.structs"


def test_every_update_has_an_error_however_long_the_messages() -> None:
    error = P4RuntimeError(grpc.StatusCode.NOT_FOUND, "x" * 10_000)
    data = status_details("some failed", [None, *[error] * 50])
    status = rpc_status.Status.FromString(data)
    assert status.code == grpc.StatusCode.UNKNOWN.value[0]
    errors = []
    for detail in status.details:
        errors.append(p4r.Error())
        assert detail.Unpack(errors[-1])
    assert [e.canonical_code for e in errors] == [0] + [5] * 50
    assert errors[1].message == "x" * 500
    assert len(data) < 8192


def test_match_fields_read_back_in_canonical_form() -> None:
    schema = Schema(load_supported_p4info())
    (table,) = (t for t in schema.tables.values() if t.name == "worker_table")
    entry = p4r.TableEntry(table_id=table.id, priority=3)
    for field in reversed(list(table.fields.values())):  # in any order, and padded
        if field.ternary:
            entry.match.add(field_id=field.id, ternary={"value": b"\0\x40", "mask": b"\0\xff\xc0"})
        else:
            entry.match.add(field_id=field.id, exact={"value": b"\0\x01"})
    encoded = encode_match(table, decode_key(table, entry))
    assert [m.field_id for m in encoded] == sorted(table.fields)
    assert {m.exact.value for m in encoded if m.HasField("exact")} == {b"\x01"}
    (ternary,) = (m.ternary for m in encoded if m.HasField("ternary"))
    assert (ternary.value, ternary.mask) == (b"\x40", b"\xff\xc0")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:9559", ("127.0.0.1", 9559)), ("[::1]:0", ("::1", 0)), ("host.example:65535", ("host.example", 65535))],
)
def test_host_and_port(text: str, expected: tuple[str, int]) -> None:
    assert parse_host_port(text) == expected


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:-1", "host:65536", "::1:5", "[::1]", "host:\u0663"])
def test_not_host_and_port(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|brackets"):
        parse_host_port(text)
