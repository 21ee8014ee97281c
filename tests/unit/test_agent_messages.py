"""The agent's parser of a training process's messages."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchml.common.version import same_release
from switchml.controller.proto import switchml_pb2 as pb
from switchml.host_agent.errors import BadMessage
from switchml.host_agent.messages import Attach, CheckFailed, Close, Missing, ReportedCall, parse
from switchml.host_agent.orders import failure_of

ATTACH = {"type": "attach", "version": "0.1.0", "job": "j", "rank": 3, "world_size": 8, "pid": 17}
CREATE = {**ATTACH, "create": True, "timeout": 30, "slots": 64}
CALL = {"sequence": 2**64 - 1, "operation": "all_reduce", "op": "sum", "dtype": "float32", "elements": 5, "root": 0}


def test_messages_that_are_right() -> None:
    assert parse(json.dumps(ATTACH).encode()) == Attach("0.1.0", "j", 3, 8, 17)
    assert parse(json.dumps({**ATTACH, "world_size": None, "new": 1}).encode()) == Attach("0.1.0", "j", 3, None, 17)
    assert parse(json.dumps({**ATTACH, "create": False, "timeout": -1}).encode()) == Attach("0.1.0", "j", 3, 8, 17)
    created = parse(json.dumps({**CREATE, "job": "k" * 200}).encode())
    assert created == Attach("0.1.0", "k" * 200, 3, 8, 17, create=True, timeout=30.0, slots=64)
    urgent = parse(json.dumps({**CREATE, "priority": 7}).encode())
    assert isinstance(urgent, Attach)
    assert urgent.priority == 7
    assert parse(b'{"type": "close", "epoch": 7, "calls": 9}') == Close(7, 9)
    assert parse(b'{"type": "close", "epoch": 7, "calls": 9, "loss": "why"}') == Close(7, 9, "why")
    assert parse(b'{"type": "missing"}') == Missing()
    assert parse(json.dumps({"type": "check_failed", "position": 9, "call": CALL}).encode()) == CheckFailed(
        9, ReportedCall(2**64 - 1, "all_reduce", "sum", "float32", 5, 0)
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_other_bytes_are_bad_messages(data: bytes) -> None:
    with pytest.raises(BadMessage):
        parse(data)


@given(st.sampled_from(sorted(ATTACH)).flatmap(lambda key: JSON.map(lambda value: (key, value))))
def test_one_wrong_field_never_makes_a_wrong_message(change: tuple[str, object]) -> None:
    data = json.dumps({**ATTACH, change[0]: change[1]}).encode()
    try:
        message = parse(data)
    except BadMessage:
        return
    assert isinstance(message, Attach)
    assert type(message.rank) is int
    assert 0 <= message.rank < 4096
    assert isinstance(message.job, str)
    assert len(message.job) <= 64


@pytest.mark.parametrize(
    "change",
    [
        {"create": 1},
        {"job": ""},
        {"job": "k" * 201},
        {"job": "a\nb"},
        {"world_size": None},
        {"world_size": 3},
        {"world_size": 4097},
        {"timeout": None},
        {"timeout": True},
        {"timeout": "30"},
        {"timeout": 0},
        {"timeout": -1.5},
        {"timeout": 86401},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"slots": None},
        {"slots": -1},
        {"slots": 2**32},
        {"on_failure": "retry"},
        {"on_failure": ["abort"]},
        {"on_failure": {}},
        {"priority": 8},
        {"priority": -1},
        {"priority": "7"},
        {"priority": None},
        {"aggregators": "s1"},
        {"aggregators": ["s1", 2]},
        {"aggregators": ["s 1"]},
        {"aggregators": ["s"] * 65},
    ],
)
def test_wrong_fields_of_a_rank_that_waits_for_others(change: dict[str, object]) -> None:
    with pytest.raises(BadMessage, match=next(iter(change))):
        parse(json.dumps({**CREATE, **change}).encode())


@pytest.mark.parametrize("reason", [reason for reason in pb.RevocationReason.values() if reason])
def test_every_reason_has_an_error(reason: pb.RevocationReason) -> None:
    failure = failure_of(pb.Revocation(reason=reason, ranks=[4], message="why"))
    assert failure.to_message() == {"type": "failed", "error": failure.error, "ranks": [4], "message": "why"}
    assert failure.error in {
        "EpochSpent",
        "WorkerLost",
        "CollectiveMismatch",
        "IntegrityError",
        "JobStopped",
        "JobFailed",
        "SwitchLost",
    }


def test_a_reason_of_a_newer_controller() -> None:
    failure = failure_of(pb.Revocation(reason=99))  # type: ignore[arg-type]
    assert failure.error == "JobFailed"
    assert "99" in failure.message


@pytest.mark.parametrize(
    ("version", "same"),
    [("0.1.0", True), ("0.1.7", True), ("0.2.0", False), ("1.1.0", False), ("0.10.0", False), ("", False)],
)
def test_same_release(version: str, same: bool) -> None:
    assert same_release(version) is same
