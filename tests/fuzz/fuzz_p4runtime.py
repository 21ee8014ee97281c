"""Fuzz the P4Runtime server: structured updates and reads of a real device, with arbitrary fields.

Each must succeed or be refused with a gRPC status code, and must not fail in another way. tests/fuzz/run.py runs this.
"""

from __future__ import annotations

import itertools
import sys

import atheris
import grpc
from finsy.proto import p4r
from google.protobuf.message import DecodeError

import tests.fuzz.our_sources  # noqa: F401 - before the modules of SwitchML
from tests.fuzz.changed_messages import change

with atheris.instrument_imports(include=["switchml.dataplane.softswitch"]):
    from switchml.dataplane.softswitch._native import Switch
    from switchml.dataplane.softswitch.device import P4RuntimeDevice
    from switchml.dataplane.softswitch.errors import P4RuntimeError
    from switchml.dataplane.softswitch.pipeline_config import Dimensions

from tests.support import p4_messages
from tests.support.p4_messages import load_p4info, update

VALID = [
    update(kind, message)
    for kind in (p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE)
    for message in p4_messages.VALID
]
P4INFO = load_p4info()


def new_device() -> P4RuntimeDevice:
    device = P4RuntimeDevice(Switch(8, 4), frozenset({1, 2}), Dimensions(4, 8))
    request = p4r.SetForwardingPipelineConfigRequest(action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT)
    request.config.p4info.CopyFrom(P4INFO)
    device.set_config(request)
    return device


def apply(device: P4RuntimeDevice, message: p4r.Update) -> None:
    for operation in (device.write, lambda m: list(itertools.islice(device.pipeline.read(m.entity), 50))):
        try:
            operation(message)
        except P4RuntimeError as error:
            assert error.code not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)


def one_input(raw: bytes) -> None:
    data = atheris.FuzzedDataProvider(raw)
    device = new_device()
    for _ in range(64):
        if data.remaining_bytes() == 0:
            return
        if data.ConsumeIntInRange(0, 19) == 0:  # the pipeline itself
            request = p4r.SetForwardingPipelineConfigRequest()
            request.action = data.PickValueInList(list(p4r.SetForwardingPipelineConfigRequest.Action.values()))
            request.config.p4info.CopyFrom(P4INFO)
            change(request, data)
            try:
                device.set_config(request)
            except P4RuntimeError as error:
                assert error.code not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
            continue
        message = p4r.Update()
        message.CopyFrom(data.PickValueInList(VALID))
        for _ in range(data.ConsumeIntInRange(0, 4)):
            change(message, data)
        try:
            message = p4r.Update.FromString(message.SerializeToString())  # as the server receives it
        except (DecodeError, ValueError):
            continue
        try:
            apply(device, message)
        except P4RuntimeError as error:  # the pipeline is no longer installed
            assert error.code == grpc.StatusCode.FAILED_PRECONDITION


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
