"""The C++, P4 and Python constants of dataplane/constants.toml."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from tools.generate import ROOT

__all__ = ["SOURCE", "generate"]

SOURCE = ROOT / "dataplane" / "constants.toml"
_NOTICE = "Generated from dataplane/constants.toml by tools/generate; do not edit."

# Tables whose members are the values of one field or the index of one counter.
_ENUMS = {"kind": "Kind", "format": "Format", "verdict": "Verdict", "drop_reason": "DropReason"}
# The switch adds checks and compares chunks without computing either; a flag within a field is a slice in P4.
_NOT_IN_P4 = {"next", "owner.except", "rocev2.grh_bytes", "rocev2.queue_pairs"}
# The width in bits that P4 gives each constant; default 32.
_P4_WIDTHS = {
    "protocol": {"version": 8, "udp_port": 16, "ipv4_ttl": 8},
    "rocev2": {"udp_port": 16, "opcode": 8, "queue_pair": 24, "partition_key": 16, "overhead_bytes": 16},
    "kind": {"*": 8},
    "format": {"*": 8},
    "flag": {"*": 8},
    "owner": {"*": 8},
    "exponent": {"*": 16},
    "verdict": {"*": 4},
    "tree": {"parent_group": 16, "first_parent_instance": 16, "no_rank": 8},
    "drop_reason": {"*": 8},
}


def _cpp(constants: dict[str, dict[str, int]]) -> str:
    lines = [f"// {_NOTICE}", "#pragma once", "", "#include <cstdint>", "", "namespace switchml::wire {"]
    for table, members in constants.items():
        lines.append("")
        if table in _ENUMS:
            lines.append(f"enum class {_ENUMS[table]} : uint8_t {{")
            lines += [f"  {name} = {value}," for name, value in members.items()]
            lines.append("};")
        else:
            lines.append(f"namespace {table} {{")
            lines += [f"constexpr uint32_t {name} = {_number(value)};" for name, value in members.items()]
            lines.append(f"}}  // namespace {table}")
    lines += ["", "}  // namespace switchml::wire", ""]
    return "\n".join(lines)


def _p4(constants: dict[str, dict[str, int]]) -> str:
    lines = [f"// {_NOTICE}", "#ifndef SWITCHML_CONSTANTS_P4", "#define SWITCHML_CONSTANTS_P4", ""]
    for table, members in constants.items():
        if table in _NOT_IN_P4:
            continue
        widths = _P4_WIDTHS.get(table, {})
        for name, value in members.items():
            if f"{table}.{name}" in _NOT_IN_P4:
                continue
            width = widths.get(name, widths.get("*", 32))
            lines.append(f"const bit<{width}> {table.upper()}_{name.upper()} = {_number(value)};")
        lines.append("")
    lines += ["#endif", ""]
    return "\n".join(lines)


def _python(constants: dict[str, dict[str, int]]) -> str:
    lines = [f"# {_NOTICE}", '"""Wire constants, verdicts and drop reasons."""', ""]
    lines += ["from enum import IntEnum, IntFlag", "from typing import Final", ""]
    for table, members in constants.items():
        if table in _ENUMS or table == "flag":
            name, base = (_ENUMS[table], "IntEnum") if table in _ENUMS else ("Flag", "IntFlag")
            lines += ["", f"class {name}({base}):", f'    """Members of [{table}] in constants.toml."""', ""]
            lines += [f"    {member.upper()} = {_number(value)}" for member, value in members.items()]
            lines.append("")
    lines.append("")
    for table, members in constants.items():
        if table not in _ENUMS and table != "flag":
            lines += [f"{table.upper()}_{name.upper()}: Final = {_number(value)}" for name, value in members.items()]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _number(value: int) -> str:
    return str(value) if value < 0x8000 else f"0x{value:X}"


def generate(source: Path = SOURCE) -> dict[Path, str]:
    """Return the text of every generated file by its path.

    Raises:
        ValueError: a member is not an integer that fits 32 bits, or two members of an enumeration are equal.

    """
    constants: dict[str, dict[str, Any]] = tomllib.loads(source.read_text(encoding="utf-8"))
    for table, members in constants.items():
        for name, value in members.items():
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**32:
                raise ValueError(f"{source}: [{table}] {name} = {value!r} is not an unsigned 32-bit integer")
        if len(set(members.values())) != len(members) and table in {*_ENUMS, "flag"}:
            raise ValueError(f"{source}: two members of [{table}] have the same value")
    return {
        ROOT / "native" / "wire" / "constants.h": _cpp(constants),
        ROOT / "dataplane" / "p4" / "common" / "constants.p4": _p4(constants),
        ROOT / "dataplane" / "constants.py": _python(constants),
    }
