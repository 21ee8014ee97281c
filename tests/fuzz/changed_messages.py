"""Change a protobuf message as directed by a fuzzer's bytes: each field may get any value that it can hold."""

from __future__ import annotations

import atheris
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message


def scalar(field: FieldDescriptor, data: atheris.FuzzedDataProvider) -> object:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return data.ConsumeBytes(data.ConsumeIntInRange(0, 12))
        return data.ConsumeUnicodeNoSurrogates(8)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return data.ConsumeBool()
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        assert field.enum_type is not None
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
