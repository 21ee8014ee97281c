"""The forwarding-pipeline configurations that this switch can realize, and the reasons to refuse others.

The pipeline is native code, so there is only one: that of the P4 program whose P4Info is
dataplane/p4/build/bmv2/switchml.p4info.txtpb. The device configuration selects its dimensions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

import grpc
from finsy.proto import p4i, p4r
from google.protobuf import text_format
from google.protobuf.message import Message

from switchml.dataplane.constants import PROTOCOL_MAX_SLOT_INDEX, PROTOCOL_MAX_VALUES
from switchml.dataplane.softswitch.errors import P4RuntimeError
from switchml.dataplane.softswitch.schema import LANE_NAME, short_name

__all__ = [
    "Dimensions",
    "MAX_DEVICE_CONFIG_BYTES",
    "describe_difference",
    "load_supported_p4info",
    "parse_device_config",
    "verify",
]

MAX_DEVICE_CONFIG_BYTES = 4096
_EXPECTED = (
    'the soft switch takes JSON such as {"values_per_packet": 256, "slots": 4096}, or nothing;'
    " a program compiled for BMv2 or Tofino is not for it"
)
# The annotations of a pipeline that follow from its dimensions.
_ANNOTATIONS = ("switchml_values_per_packet", "switchml_streamed", "switchml_owned_results", "switchml_formats")
_MAX_DIFFERENCES = 5


@dataclass(frozen=True)
class Dimensions:
    """The dimensions that the device configuration selects.

    Values per packet, 1..2048; slots (pool indexes), 1..32768: a register has twice as many entries.
    """

    values_per_packet: int = 256
    slots: int = 4096

    def __post_init__(self) -> None:
        _check_range("values_per_packet", self.values_per_packet, PROTOCOL_MAX_VALUES)
        _check_range("slots", self.slots, PROTOCOL_MAX_SLOT_INDEX + 1)


def load_supported_p4info() -> p4i.P4Info:
    """Return the P4Info of the pipeline that this switch implements, as the P4 compiler wrote it.

    Raises FileNotFoundError if the file is missing from the installation.
    """
    path = resources.files("switchml.dataplane") / "p4" / "build" / "bmv2" / "switchml.p4info.txtpb"
    return text_format.Parse(path.read_text(encoding="utf-8"), p4i.P4Info())


def parse_device_config(data: bytes, default: Dimensions) -> Dimensions:
    """Return the dimensions in a ``p4_device_config``: JSON with values_per_packet and slots, each optional.

    Empty bytes mean the default. Raises P4RuntimeError INVALID_ARGUMENT for anything else.
    """
    if not data:
        return default
    if len(data) > MAX_DEVICE_CONFIG_BYTES:
        raise _refused(f"p4_device_config has {len(data)} bytes, more than {MAX_DEVICE_CONFIG_BYTES}: {_EXPECTED}")
    try:
        parsed = json.loads(data.decode("utf-8"), object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise _refused(f"p4_device_config: {_EXPECTED}: {error}") from None
    if not isinstance(parsed, dict):
        raise _refused(f"p4_device_config must be a JSON object, not {type(parsed).__name__}")
    unknown = sorted(set(parsed) - {"values_per_packet", "slots"})
    if unknown:
        raise _refused(
            f"p4_device_config has unknown keys: {_listed(unknown)}; known keys are values_per_packet and slots"
        )
    try:
        return Dimensions(
            parsed.get("values_per_packet", default.values_per_packet), parsed.get("slots", default.slots)
        )
    except ValueError as error:
        raise _refused(f"p4_device_config: {error}") from None


def verify(config: p4r.ForwardingPipelineConfig, supported: p4i.P4Info, default: Dimensions) -> Dimensions:
    """Return the dimensions of a configuration that this switch can realize.

    Raises P4RuntimeError INVALID_ARGUMENT, which names the difference, for any other.
    """
    if not config.HasField("p4info"):
        raise _refused("the request has no p4info")
    difference = describe_difference(supported, config.p4info)
    if difference is not None:
        raise _refused(
            "the p4info is not that of the SwitchML pipeline (dataplane/p4/build/bmv2/switchml.p4info.txtpb), "
            f"the only one of this switch: {difference}"
        )
    return parse_device_config(config.p4_device_config, default)


def describe_difference(expected: p4i.P4Info, given: p4i.P4Info) -> str | None:
    """Return a text about the differences between two P4Infos, or None if they describe the same pipeline.

    Register sizes, the number of lane registers and the annotations in ``_ANNOTATIONS`` follow from the dimensions,
    which the device configuration gives, so they are not compared. Neither are documentation and the package's version.
    """
    left, right = _without_dimensions(expected), _without_dimensions(given)
    differences: list[str] = []
    for descriptor in left.DESCRIPTOR.fields:
        if descriptor.is_repeated:
            differences += _object_differences(
                descriptor.name, getattr(left, descriptor.name), getattr(right, descriptor.name)
            )
        else:
            field_path = _first_difference(getattr(left, descriptor.name), getattr(right, descriptor.name))
            if field_path is not None:
                differences.append(f"{descriptor.name}.{field_path}")
    if not differences:
        return None
    more = len(differences) - _MAX_DIFFERENCES
    return "; ".join(differences[:_MAX_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")


def _without_dimensions(p4info: p4i.P4Info) -> p4i.P4Info:
    stripped = p4i.P4Info()
    stripped.CopyFrom(p4info)
    stripped.pkg_info.ClearField("version")
    stripped.pkg_info.ClearField("doc")
    for table in stripped.tables:
        _remove_annotations(table.preamble)
    _remove_annotations(stripped.pkg_info)
    for register in stripped.registers:
        register.ClearField("size")
    registers = [register for register in stripped.registers if not _is_further_lane(register)]
    del stripped.registers[:]
    stripped.registers.extend(registers)
    return stripped


def _is_further_lane(register: p4i.Register) -> bool:
    name = short_name(register.preamble.name)
    return (
        name != "lane_0" and LANE_NAME.fullmatch(name) is not None and register.type_spec.bitstring.bit.bitwidth == 32
    )


def _remove_annotations(holder: p4i.Preamble | p4i.PkgInfo) -> None:
    kept = [a for a in holder.annotations if not a.lstrip("@").startswith(_ANNOTATIONS)]
    structured = [a for a in holder.structured_annotations if a.name not in _ANNOTATIONS]
    for name in ("annotations", "annotation_locations", "structured_annotations"):
        holder.ClearField(name)
    holder.annotations.extend(kept)
    holder.structured_annotations.extend(structured)


def _object_differences(kind: str, left: Iterable[Message], right: Iterable[Message]) -> list[str]:
    """Compare two lists of P4 objects by name, in any order."""
    expected, given = _by_name(left), _by_name(right)
    differences = []
    for name in sorted(expected.keys() | given.keys()):
        if name not in given:
            differences.append(f"{kind} lacks {_shown(name)}")
        elif name not in expected:
            differences.append(f"{kind} has {_shown(name)}, which is not in this pipeline")
        else:
            field_path = _first_difference(expected[name], given[name])
            if field_path is not None:
                differences.append(f"{kind} {_shown(name)} differs in {field_path}")
    return differences


def _by_name(objects: Iterable[Message]) -> dict[str, Message]:
    named: dict[str, Message] = {}
    for position, message in enumerate(objects):
        name = message.preamble.name if hasattr(message, "preamble") else ""
        if not name or name in named:  # nameless, or a second object of the same name: the expected P4Info has neither
            name = f"{name or 'nameless object'} (number {position + 1})"
        named[name] = message
    return named


def _first_difference(expected: Message, given: Message) -> str | None:
    """Return the path of the first field in which two messages of one type differ, with both values."""
    if expected == given:
        return None
    for descriptor in expected.DESCRIPTOR.fields:
        left, right = getattr(expected, descriptor.name), getattr(given, descriptor.name)
        if left == right:
            continue
        if descriptor.message_type is None:
            return f"{descriptor.name}: {_shown(right)} instead of {_shown(left)}"
        if not descriptor.is_repeated:
            return f"{descriptor.name}.{_first_difference(left, right)}"
        if descriptor.message_type.GetOptions().map_entry:
            return descriptor.name
        if len(left) != len(right):
            return f"{descriptor.name}: {len(right)} instead of {len(left)}"
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            if one != other:
                return f"{descriptor.name}[{index}].{_first_difference(one, other)}"
    return "a field that is set in only one of them, or that this switch does not know"


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:80] + "..."


def _listed(names: Iterable[str]) -> str:
    return _shown(", ".join(map(repr, names)))


def _check_range(name: str, value: object, maximum: int) -> None:
    if type(value) is not int or not 1 <= value <= maximum:
        raise ValueError(f"{name} must be an integer from 1 to {maximum}, not {_shown(repr(value))}")


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


def _refused(message: str) -> P4RuntimeError:
    return P4RuntimeError(grpc.StatusCode.INVALID_ARGUMENT, message)
