"""Compile the P4 program for Tofino with p4c's open back end, and read the compiler's reports.

``p4c-barefoot`` and ``bfas`` are the compiler and the assembler that p4c builds with ``-DENABLE_TOFINO=ON``; with
``p4test`` of the same p4c they must be on PATH. The binary for the chip is not kept: users compile it with their SDE.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptf_tests.tofino_emulator.assembly import AssemblyError, extract
from ptf_tests.tofino_emulator.compile_ir import CompileRefused, compile_ir, preprocessed
from switchml.dataplane.compiler.tofino_report import Report, read_report
from switchml.dataplane.targets import TOFINO

__all__ = [
    "ASSEMBLER",
    "BUDGET",
    "COMPILER",
    "PROGRAM",
    "Compilation",
    "Program",
    "TofinoCompileError",
    "check_parser",
    "compile_tofino",
    "compiler_version",
]

COMPILER = "p4c-barefoot"
ASSEMBLER = "bfas"
BUDGET = "tna/budget.toml"  # relative to the P4 folder

_DEVICES = {"tofino": 1, "tofino2": 2}
_P4 = Path(__file__).parent.parent / "p4"
_SECONDS = 3600  # for a busy machine; an idle one needs less than a minute


class TofinoCompileError(Exception):
    """The compiler is missing, or refused the program; the text contains its messages."""


@dataclass(frozen=True)
class Program:
    """A program for Tofino: its name, a folder, and its entry file relative to that."""

    name: str
    folder: Path
    entry: str


PROGRAM = Program("switchml", _P4, TOFINO.entry)


@dataclass(frozen=True)
class Compilation:
    """The outputs by file name, the report, and the compiler's run time in seconds."""

    outputs: dict[str, str]
    report: Report
    seconds: float


def compiler_version() -> str | None:
    """Return name and version of the compiler, or None if it or the assembler is not on PATH.

    Raises:
        TofinoCompileError: it does not print its version.

    """
    if shutil.which(COMPILER) is None or shutil.which(ASSEMBLER) is None:
        return None
    for line in _run(COMPILER, "--version").splitlines():
        if line.startswith("Version "):
            return f"{COMPILER} {line.split()[1]}"
    raise TofinoCompileError(f"{COMPILER} --version prints no version")


def compile_tofino(program: Program, device: str = "tofino") -> Compilation:
    """Compile a program for ``device``, which is ``tofino`` or ``tofino2``.

    Raises:
        TofinoCompileError: a program is not on PATH, or refused the source.

    """
    try:
        model = compile_ir(program.folder, program.entry)
        device_macro = ["-U__TARGET_TOFINO__", f"-D__TARGET_TOFINO__={_DEVICES[device]}"]
        source = preprocessed(program.folder, program.entry, device_macro)
    except CompileRefused as error:
        raise TofinoCompileError(str(error)) from error
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        text = folder / "switchml.p4pp"
        text.write_text(source, encoding="utf-8")
        started = time.monotonic()
        _run(
            COMPILER,
            "--target",
            device,
            "--arch",
            "tna",
            "--std",
            "p4-16",
            "--nocpp",
            "-g",
            "--verbose",  # both are needed, or some reports are not written
            "--Wdisable",
            "--bf-rt-schema",
            str(folder / "bfrt.json"),
            "-o",
            str(folder),
            str(text),
        )
        pipe = folder / "pipe"
        assembly = pipe / "switchml.bfa"
        _run(ASSEMBLER, "--target", device, "--no-warn", "-o", str(pipe), str(assembly))
        seconds = time.monotonic() - started
        text_of_assembly = assembly.read_text(encoding="utf-8")
        check_parser(text_of_assembly)
        report = read_report(pipe)
        schema = json.loads((folder / "bfrt.json").read_text(encoding="utf-8"))
        try:
            stateful = extract(text_of_assembly)
        except AssemblyError as error:
            raise TofinoCompileError(f"the assembly is not understood: {error}") from error
    outputs = {
        f"{program.name}.resources.json": json.dumps(report.to_json(), indent=1) + "\n",
        f"{program.name}.ir.json": model,
        f"{program.name}.stateful.json": stateful,
        "bfrt.json": _schema_text(schema),
    }
    return Compilation(outputs, report, seconds)


def check_parser(assembly: str) -> None:
    """Check the ingress parser of an assembly for two faults of the compiler.

    p4c since 16 February 2026 (commit e3af57f, pull request 5063) silently omits the keys of a parser's select
    expressions, so that the parser takes every packet for the first choice. And it may place the parser's error field
    inside a wider container, while the chip writes to the container's low end.

    Raises:
        TofinoCompileError: the assembly has one of these faults.

    """
    parser = assembly.partition("\nparser ingress:")[2].partition("\ndeparser ingress:")[0]
    if not re.search(r"^\s+match: \[", parser, re.MULTILINE):
        raise TofinoCompileError(
            f"{COMPILER} made a parser without select keys: this p4c has the fault of its pull request 5063 "
            "(bind_use in backends/tofino/bf-p4c/parde/allocate_parser_match_register.cpp keeps scratch registers "
            "only); use an older one, or one in which it is fixed"
        )
    if not re.search(r"^\s+parser_error: M?H\d+$", parser, re.MULTILINE):
        raise TofinoCompileError(
            f"{COMPILER} did not give the parser's error a container of 16 bits: the chip would write to the wrong bits"
        )


def _schema_text(schema: dict[str, Any]) -> str:
    """Return the BfRt schema with one line for each table, so that differences are readable.

    Snapshot tables are omitted: they are for debugging, SwitchML does not use them, and they differ between
    compilations of the same source.
    """
    tables = ",\n".join(
        json.dumps(table, separators=(",", ":"))
        for table in schema["tables"]
        if not table["table_type"].startswith("Snapshot")
    )
    rest = "".join(
        f",\n{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}"
        for key, value in schema.items()
        if key != "tables"
    )
    return '{"tables":[\n' + tables + "\n]" + rest + "\n}\n"


def _run(*command: str) -> str:
    """Run one of the compiler's programs in the P4 folder and return its output."""
    try:
        done = subprocess.run(command, cwd=_P4, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except FileNotFoundError as error:
        raise TofinoCompileError(
            f"{command[0]} is not on PATH: build p4c with -DENABLE_TOFINO=ON to compile for Tofino"
        ) from error
    except subprocess.CalledProcessError as error:
        raise TofinoCompileError(f"{command[0]} refused its input:\n{error.stdout}{error.stderr}") from error
    except subprocess.TimeoutExpired as error:
        raise TofinoCompileError(f"{command[0]} did not finish within {_SECONDS} s") from error
    return done.stdout + done.stderr
