"""The bounds of texts and lists in gRPC messages: each field has one, the documentation lists it, and it is checked."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from finsy.proto import p4r
from google.protobuf.message import Message

from switchml.common.message_bounds import BoundExceeded, Bounds, octets, rows, text, texts
from switchml.controller.northbound.bounds import BOUNDS as CONTROLLER
from switchml.controller.proto import events_pb2 as events_pb
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.softswitch.bounds import BOUNDS as SWITCH

LIMITS = Path(__file__).resolve().parents[2] / "docs" / "reference" / "limits.md"
P4RUNTIME = (
    *(p4r.WriteRequest, p4r.ReadRequest, p4r.SetForwardingPipelineConfigRequest),
    *(p4r.GetForwardingPipelineConfigRequest, p4r.StreamMessageRequest, p4r.CapabilitiesRequest),
)


def requests() -> list[type[Message]]:
    """Return each type of message that clients and agents send to the controller."""
    services = [one for module in (pb, events_pb) for one in module.DESCRIPTOR.services_by_name.values()]
    names = {method.input_type.name for service in services for method in service.methods}
    return [getattr(pb, name, None) or getattr(events_pb, name) for name in sorted(names)]


def sized(bounds: Bounds, types: Iterable[type[Message]]) -> set[str]:
    return {name for one in types for name in bounds.sized_fields(one.DESCRIPTOR)}


def documented(heading: str) -> dict[str, str]:
    """Return the table below a heading of docs/reference/limits.md: fields and their bounds as printed there."""
    part = LIMITS.read_text().partition(f"{heading}\n")[2].partition("\n##")[0]
    found: dict[str, str] = {}
    for fields, bound in re.findall(r"^\| (`.*`) \| (.*) \|$", part, re.MULTILINE):
        found |= dict.fromkeys(re.findall(r"`([^`]+)`", fields), bound)
    return found


def test_each_field_of_each_request_has_a_bound() -> None:
    assert sized(CONTROLLER, requests()) == CONTROLLER.table.keys()
    assert sized(SWITCH, P4RUNTIME) == SWITCH.table.keys()


@pytest.mark.parametrize(
    ("heading", "bounds"), [("### Requests to the controller", CONTROLLER), ("### P4Runtime requests", SWITCH)]
)
def test_the_documentation_lists_each_bound(heading: str, bounds: Bounds) -> None:
    assert documented(heading) == {name: str(bound) for name, bound in bounds.table.items()}


BOUNDS = Bounds(
    {
        "StartJobRequest.name": text(4),
        "StartJobRequest.aggregators": texts(2, 3),
        "Heartbeat.ranks": rows(2),
        "RankPositions.phases": rows(3),
        "ProfileRequest.job": octets(6),
    }
)


@pytest.mark.parametrize(
    "message",
    [
        pb.StartJobRequest(name="abcd", aggregators=["abc", "abc"], workers=2**32 - 1),
        pb.AgentMessage(heartbeat=pb.Heartbeat(ranks=[pb.RankStatus()] * 2)),
        pb.AgentMessage(positions=pb.Positions(ranks=[pb.RankPositions(phases=[1, 2, 3])] * 9)),
        pb.AgentMessage(register=pb.Register(name="a" * 1000)),
        pb.ProfileRequest(job=pb.JobReference(name="abcd")),
        pb.InfoRequest(),
    ],
)
def test_a_message_within_its_bounds(message: Message) -> None:
    BOUNDS.check(message)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (pb.StartJobRequest(name="abcde"), r"StartJobRequest.name has 5 characters, and may have 4: 'abcde'..."),
        (pb.StartJobRequest(aggregators=["a"] * 3), "StartJobRequest.aggregators has 3 entries, and may have 2"),
        (pb.StartJobRequest(aggregators=["a", "abcd"]), "StartJobRequest.aggregators has 4 characters, and may have 3"),
        (
            pb.AgentMessage(heartbeat=pb.Heartbeat(ranks=[pb.RankStatus()] * 3)),
            "Heartbeat.ranks has 3 entries, and may have 2",
        ),
        (
            pb.AgentMessage(positions=pb.Positions(ranks=[pb.RankPositions(), pb.RankPositions(phases=[0] * 4)])),
            "RankPositions.phases has 4 entries, and may have 3",
        ),
        (pb.ProfileRequest(job=pb.JobReference(name="abcde")), "ProfileRequest.job has 7 bytes, and may have 6"),
    ],
)
def test_a_message_beyond_a_bound(message: Message, why: str) -> None:
    with pytest.raises(BoundExceeded, match=re.escape(why)):
        BOUNDS.check(message)


def test_a_long_text_is_not_repeated_in_the_error() -> None:
    with pytest.raises(BoundExceeded) as caught:
        CONTROLLER.check(pb.JobReference(name="x\n" * 2_000_000))
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)
