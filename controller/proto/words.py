"""The values of enumerations as people read and write them: READY for JOB_STATE_READY."""

from __future__ import annotations

import re

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

__all__ = ["enum_word", "value_word"]


def enum_word(enum: EnumTypeWrapper, value: int) -> str:
    """Return the name of a value without the enumeration's name before it; the digits of a value without a name."""
    return value_word(enum.DESCRIPTOR, value)


def value_word(enum: EnumDescriptor, value: int) -> str:
    """Return the same as `enum_word`, from the descriptor of the enumeration."""
    known = enum.values_by_number.get(value)
    prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", enum.name).upper() + "_"
    return str(value) if known is None else known.name.removeprefix(prefix)
