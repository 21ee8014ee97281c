"""The P4Runtime server: structured updates and reads of a real device, with fields that may be anything.

Each is done or refused with a code of gRPC, and never fails in another way. Run by tests/fuzz/run.py.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "loopback")]

import grpc
from finsy.proto import p4r
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

with atheris.instrument_imports(include=["dataplane.softswitch"]):
    from dataplane.softswitch._native import Switch
    from dataplane.softswitch.device import Device
    from dataplane.softswitch.errors import P4RuntimeError
    from dataplane.softswitch.pipeline_config import Dimensions

import p4_messages
from p4_messages import load_p4info, update

VALID = [
    update(kind, message)
    for kind in (p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE)
    for message in p4_messages.VALID
]
P4INFO = load_p4info()


def new_device() -> Device:
    device = Device(Switch(8, 4), frozenset({1, 2}), Dimensions(4, 8))
    request = p4r.SetForwardingPipelineConfigRequest(action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT)
    request.config.p4info.CopyFrom(P4INFO)
    device.set_config(request)
    return device


def scalar(field: FieldDescriptor, data: atheris.FuzzedDataProvider) -> object:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return data.ConsumeBytes(data.ConsumeIntInRange(0, 12))
        return data.ConsumeUnicodeNoSurrogates(8)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return data.ConsumeBool()
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return data.PickValueInList([value.number for value in field.enum_type.values])
    bits = 64 if kind in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64) else 32
    signed = kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
    number = data.ConsumeIntInRange(0, 2**bits - 1) if data.ConsumeBool() else data.ConsumeIntInRange(0, 20)
    return number - 2**bits if signed and number >= 2 ** (bits - 1) else number


def change(message: Message, data: atheris.FuzzedDataProvider, depth: int = 0) -> None:
    """Set, clear, add or descend into one field."""
    fields = [field for field in message.DESCRIPTOR.fields if field.cpp_type != FieldDescriptor.CPPTYPE_DOUBLE]
    if not fields or depth > 8:
        return
    present = [field for field, _ in message.ListFields() if field in fields]
    chosen = present if present and data.ConsumeIntInRange(0, 3) != 0 else fields
    field = data.PickValueInList(list(chosen))
    nested = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
    now = getattr(message, field.name)
    if data.ConsumeIntInRange(0, 9) == 0:
        message.ClearField(field.name)
    elif nested and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        if value.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            change(now[scalar(key, data)], data, depth + 1)
        else:
            now[scalar(key, data)] = scalar(value, data)
    elif field.is_repeated:
        if len(now) and data.ConsumeBool():
            if nested:
                change(now[data.ConsumeIntInRange(0, len(now) - 1)], data, depth + 1)
            else:
                now[data.ConsumeIntInRange(0, len(now) - 1)] = scalar(field, data)
        elif nested:
            added = now.add()
            if len(now) > 1 and data.ConsumeBool():
                added.CopyFrom(now[0])
            change(added, data, depth + 1)
        else:
            now.append(scalar(field, data))
    elif nested:
        now.SetInParent()
        change(now, data, depth + 1)
    else:
        setattr(message, field.name, scalar(field, data))


def apply(device: Device, message: p4r.Update) -> None:
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
            message = p4r.Update.FromString(message.SerializeToString())  # as it travels
        except (DecodeError, ValueError):
            continue
        try:
            apply(device, message)
        except P4RuntimeError as error:  # no pipeline is installed any more
            assert error.code == grpc.StatusCode.FAILED_PRECONDITION


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
