"""The path from P4 source to packets: p4c's front end, the project's short form, the model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ptf_tests.tofino_emulator.compile_ir import COMPILER, CompileRefused, compile_ir
from ptf_tests.tofino_emulator.pipeline import Pipeline
from ptf_tests.tofino_emulator.program import load_program, state_of
from ptf_tests.tofino_emulator.state import Entry

HERE = Path(__file__).parent
EXAMPLE = "tna_example.p4"
needs_compiler = pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"{COMPILER} not found")


@needs_compiler
def test_a_program_is_compiled_and_executed() -> None:
    program = json.loads(compile_ir(HERE, EXAMPLE))
    state = state_of(program)
    out: list[tuple[int, bytes]] = []
    pipeline = Pipeline(program, state, lambda *sent: out.append(sent))
    state.match_tables["pipe.IngressParser.noted_ports"].put(Entry({"f1": 4}, ""))
    ports = state.match_tables["pipe.Ingress.ports"]
    ports.put(Entry({"port": 3, "kind": (0, 9)}, "Ingress.sum_up", {"port": 7}))
    ports.put(Entry({"port": 4, "kind": (0, 255)}, "Ingress.sum_up", {"port": 8}))
    ports.put(Entry({"port": 3, "kind": (10, 20)}, "Ingress.refuse"))

    def frame(kind: int, slot: int, value: int) -> bytes:
        return bytes((kind, slot)) + value.to_bytes(2, "big") + b"data"

    pipeline.receive(3, frame(2, 5, 0xFFFF))  # the registers begin with 1
    pipeline.receive(3, frame(1, 5, 2))
    pipeline.receive(4, b"\x00\x09" + frame(4, 5, 3))
    pipeline.receive(3, frame(12, 5, 3))
    pipeline.receive(3, frame(200, 5, 3))
    assert out == [
        (7, frame(2, 5, 0)),
        (7, b"\x00\x03" + frame(1, 5, 2)),
        (8, b"\x00\x09" + frame(4, 5, 5)),
    ]
    cells: list[Any] = state.registers["pipe.Ingress.sums"]
    assert [list(cell.values()) for cell in cells[5:7]] == [[5, 3], [1, 0]]
    assert state.counters["pipe.Ingress.kinds"][2] == [1, 7]
    assert [entry.packets for entry in ports.entries.values()] == [2, 1, 1]


@needs_compiler
def test_the_same_source_makes_the_same_program_without_paths() -> None:
    text = compile_ir(HERE, EXAMPLE)
    assert text == compile_ir(HERE, EXAMPLE)
    assert json.loads(text)["files"] == [EXAMPLE]
    assert str(HERE) not in text


@needs_compiler
def test_what_is_not_modelled_is_refused_with_its_place(tmp_path: Path) -> None:
    source = (HERE / EXAMPLE).read_text(encoding="utf-8")
    source = source.replace(
        "apply {\n        switch", "Meter<bit<8>>(16, MeterType_t.BYTES) meter;\n    apply {\n        switch"
    )
    (tmp_path / EXAMPLE).write_text(source, encoding="utf-8")
    with pytest.raises(CompileRefused, match=r"tna_example\.p4:\d+: the extern Meter is not modelled"):
        compile_ir(tmp_path, EXAMPLE)
    (tmp_path / EXAMPLE).write_text(source.replace("meta.known = 1;", "meta.known = ;"), encoding="utf-8")
    with pytest.raises(CompileRefused, match="syntax error"):
        compile_ir(tmp_path, EXAMPLE)


def test_without_the_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CompileRefused, match="p4test is not on PATH: install p4c"):
        compile_ir(HERE, EXAMPLE)


def test_our_program_names_no_path_of_a_machine() -> None:
    assert all(not name.startswith(("/", "..")) for name in load_program()["files"])
