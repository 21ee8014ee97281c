"""Updates with flipped, lost and added bytes: each succeeds or is refused with a status code."""

from __future__ import annotations

import collections
import itertools
import random
from collections.abc import Callable

import grpc
import pytest
from finsy.proto import p4r
from google.protobuf.message import DecodeError

from switchml.dataplane.softswitch._native import Switch
from switchml.dataplane.softswitch.device import P4RuntimeDevice
from switchml.dataplane.softswitch.errors import P4RuntimeError
from switchml.dataplane.softswitch.pipeline_config import Dimensions
from tests.support.p4_messages import (
    DELETE,
    INSERT,
    MODIFY,
    VALID,
    load_p4info,
    update,
)


def damaged(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randrange(4)):
        position = chance.randrange(len(changed))
        byte = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        changed[position : position + chance.randrange(2)] = bytes([byte])[: chance.randrange(2)]
    return bytes(changed)


def outcome(operation: Callable[[p4r.Update], object], message: p4r.Update) -> grpc.StatusCode:
    try:
        operation(message)
    except P4RuntimeError as error:
        return error.code
    return grpc.StatusCode.OK


@pytest.mark.parametrize("seed", range(3))
def test_damaged_updates(seed: int) -> None:
    device = P4RuntimeDevice(Switch(8, 4), frozenset({1, 2}), Dimensions(4, 8))
    request = p4r.SetForwardingPipelineConfigRequest(action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT)
    request.config.p4info.CopyFrom(load_p4info())
    device.set_config(request)
    chance = random.Random(seed)
    sources = [update(kind, message).SerializeToString() for message in VALID for kind in (INSERT, MODIFY, DELETE)]
    outcomes: collections.Counter[grpc.StatusCode] = collections.Counter()
    for _ in range(20_000):
        try:
            message = p4r.Update.FromString(damaged(chance.choice(sources), chance))
        except DecodeError:
            continue
        for operation in (device.write, lambda m: list(itertools.islice(device.pipeline.read(m.entity), 50))):
            outcomes[outcome(operation, message)] += 1
    assert set(outcomes) >= {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}
    assert grpc.StatusCode.INTERNAL not in outcomes
