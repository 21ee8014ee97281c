"""A compiled TNA program, ready to process packets, over the state that the control plane writes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ptf_tests.tofino_emulator.generate_expressions import identifier
from ptf_tests.tofino_emulator.generate_headers import hash_value, internet_checksum, pack_fields
from ptf_tests.tofino_emulator.generate_statements import Source
from ptf_tests.tofino_emulator.generator import GressGenerator
from ptf_tests.tofino_emulator.lookup import Lookup, PortMetadata, ValueSet
from ptf_tests.tofino_emulator.state import MatchTable, State
from ptf_tests.tofino_emulator.undefined import ModelError, Undefined
from switchml import dataplane

__all__ = [
    "EGRESS_RESULTS",
    "INGRESS_RESULTS",
    "PROGRAM",
    "Gress",
    "Program",
    "load_program",
    "state_of",
    "values_per_packet",
]

PROGRAM = Path(dataplane.__file__).parent / "p4" / "build" / "tofino" / "switchml.ir.json"

INGRESS_RESULTS = (
    "ig_tm_md.ucast_egress_port",
    "ig_tm_md.mcast_grp_a",
    "ig_tm_md.mcast_grp_b",
    "ig_tm_md.rid",
    "ig_tm_md.level1_exclusion_id",
    "ig_tm_md.level2_exclusion_id",
    "ig_tm_md.bypass_egress",
)
EGRESS_RESULTS: tuple[str, ...] = ()


def load_program(path: Path = PROGRAM) -> dict[str, Any]:
    """Return a program that ``import_ir`` wrote. Raises FileNotFoundError if it was never compiled."""
    program: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return program


def values_per_packet(program: Mapping[str, Any]) -> int:
    """Return the number of values in a SwitchML packet of a program."""
    return len(program["ingress"]["headers"]["hdr.values"])


def state_of(program: Mapping[str, Any]) -> State:
    """Return the state of a freshly loaded program, derived from the program itself: for use without a bfrt.json."""
    state = State()
    for gress in ("ingress", "egress"):
        parts = program[gress]
        for table in parts["tables"].values():
            name = f"pipe.{table['name']}"
            kinds = {"exact": "Exact", "ternary": "Ternary", "lpm": "LPM", "range": "Range"}
            match_types = {key: kinds[kind] for _, kind, key, _ in table["keys"]}
            state.match_tables[name] = MatchTable(name, match_types, table["size"] or 0)
        if '["port_metadata"' in json.dumps(parts["states"]):
            name = f"pipe.{parts['parser_name']}.$PORT_METADATA"
            state.match_tables[name] = MatchTable(name, {"ig_intr_md.ingress_port": "Exact"})
        for one in parts["value_sets"].values():
            state.match_tables[f"pipe.{one['name']}"] = MatchTable(f"pipe.{one['name']}", {"f1": "Exact"})
        for extern in parts["externs"].values():
            name = f"pipe.{extern['name']}"
            if extern["kind"] == "Counter":
                state.counters[name] = [[0, 0] for _ in range(extern["size"])]
            elif extern["kind"] == "Register":
                fields = [f"{extern['name']}.{field or 'f1'}" for field in extern["fields"]]
                one_field = len(fields) == 1
                state.registers[name] = [0 if one_field else dict.fromkeys(fields, 0) for _ in range(extern["size"])]
    return state


class Gress:
    """Ingress or egress: once it has a state, call it with a packet's bytes and the length that counters count."""

    def __init__(self, name: str, parts: Mapping[str, Any], files: list[str]) -> None:
        self.name = name
        self.headers: dict[str, dict[str, int]] = parts["headers"]
        self._parts, self._files = parts, files
        source = Source()
        results = INGRESS_RESULTS if name == "ingress" else EGRESS_RESULTS
        generator = GressGenerator(name, parts, source, results)
        generator.write()
        self._variables = generator.variables
        self.source, self._places = source.text, source.places
        self._filename = f"<{name} of the TNA program>"
        self._code = compile(self.source, self._filename, "exec")
        self.lookups: dict[str, Lookup] = {}
        self._function: Callable[[bytes, int], tuple[bytes, tuple[Any, ...], list[Undefined]] | None]

    def bind(self, state: State) -> None:
        """Use this state from now on. Raises ModelError if it does not match the program."""
        self.lookups = {one: self._lookup(table, state) for one, table in self._parts["tables"].items()}
        namespace = self._namespace(self._parts, state)
        exec(self._code, namespace)
        self._function = namespace[self.name]

    def __call__(self, data: bytes, length: int) -> tuple[bytes, tuple[Any, ...], list[Undefined]] | None:
        """Return (frame, results, undefined fields in the frame), or None if the packet is dropped.

        Raises:
            ModelError: the program did something that is not allowed; the text begins with the place in its source.

        """
        for lookup in self.lookups.values():
            lookup.refresh()
        try:
            return self._function(data, length)
        except ModelError as error:
            raise ModelError(f"{self._place_of(error.__traceback__)}: {error}") from error

    def _place_of(self, traceback: TracebackType | None) -> str:
        place = [-1, 0]
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == self._filename:
                place = self._places[traceback.tb_lineno - 1]
            traceback = traceback.tb_next
        return f"{self._files[place[0]]}:{place[1]}" if place[0] >= 0 else self.name

    def _lookup(self, table: Mapping[str, Any], state: State) -> Lookup:
        stored = None
        if table["entries"] is None and (table["keys"] or len(table["actions"]) > 1 or table["size"]):
            stored = state.match_tables.get(f"pipe.{table['name']}")
            if stored is None:
                raise ModelError(f"bfrt.json does not know the table pipe.{table['name']} of the program")
        return Lookup(table, self._parts["actions"], stored)

    def _namespace(self, parts: Mapping[str, Any], state: State) -> dict[str, Any]:
        names: dict[str, Any] = {
            "ModelError": ModelError,
            "Undefined": Undefined,
            "pack_fields": pack_fields,
            "unpack_from": struct.unpack_from,
            "internet_checksum": internet_checksum,
            "hash_value": hash_value,
        }
        for variable in self._variables:
            names[f"U_{identifier(variable)}"] = Undefined(variable)
        for name, lookup in self.lookups.items():
            names[f"T_{identifier(name)}"], names[f"C_{identifier(name)}"] = lookup, lookup.cache
        names["port_metadata"] = PortMetadata(state.match_tables.get(f"pipe.{parts['parser_name']}.$PORT_METADATA"))
        for name, one in parts["value_sets"].items():
            stored = state.match_tables.get(f"pipe.{one['name']}")
            names[f"S_{identifier(name)}"] = ValueSet(one["name"], one["widths"], stored)
        for name, extern in parts["externs"].items():
            if extern["kind"] == "Counter":
                names[f"K_{identifier(name)}"] = _cells(state.counters, extern)
            elif extern["kind"] == "Register":
                cells = _cells(state.registers, extern)
                names[f"R_{identifier(name)}"] = cells
                names.update(_field_names(name, extern, cells[0]))
                _initialise(extern, cells)
        return names


def _cells(stored: Mapping[str, list[Any]], extern: Mapping[str, Any]) -> list[Any]:
    name = f"pipe.{extern['name']}"
    if name not in stored or len(stored[name]) != extern["size"]:
        raise ModelError(f"bfrt.json does not know {name} with {extern['size']} entries, as the program has it")
    return stored[name]


def _field_names(name: str, extern: Mapping[str, Any], cell: Any) -> dict[str, str]:
    """Return the names of a register's pair in a cell, in the order of the program's struct."""
    if not isinstance(cell, dict):
        return {}
    by_end = {field.rsplit(".", 1)[-1]: field for field in cell}
    return {f"F_{identifier(name)}_{number}": by_end[field] for number, field in enumerate(extern["fields"])}


def _initialise(extern: Mapping[str, Any], cells: list[Any]) -> None:
    if not any(extern["initial"]):
        return
    for index, cell in enumerate(cells):
        if isinstance(cell, dict):
            cell.update(zip(cell, extern["initial"], strict=True))
        else:
            cells[index] = extern["initial"][0]


class Program:
    """Both gresses over one state."""

    def __init__(self, program: Mapping[str, Any], state: State) -> None:
        self.ingress = Gress("ingress", program["ingress"], program["files"])
        self.egress = Gress("egress", program["egress"], program["files"])
        self.bind(state)

    def bind(self, state: State) -> None:
        """Use a state, or the new tables of one into which the program was loaded again."""
        self.ingress.bind(state)
        self.egress.bind(state)
