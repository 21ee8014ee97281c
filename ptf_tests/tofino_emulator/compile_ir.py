"""Compile the TNA program for the model: p4c's front and middle end (``p4test``), then ``import_ir``."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from ptf_tests.tofino_emulator.import_ir import EXCLUDED_PASSES, ImportRefused, import_program, program_text

__all__ = ["COMPILER", "CompileRefused", "compile_ir", "preprocessed"]

COMPILER = "p4test"

_MARKER = re.compile(r'# (\d+) "(.*?)"')
_LONG = 200
_SECONDS = 600


class CompileRefused(Exception):
    """The compiler is missing, or refused the program; the text says why."""


def compile_ir(folder: Path, entry: str) -> str:
    """Return the text of the model's program.

    ``folder`` is the one with tna/ and common/, ``entry`` a path relative to it.

    Raises:
        CompileRefused: p4test is not on PATH, or refused the program, or the model does not know something in it.

    """
    source = preprocessed(folder, entry)
    with tempfile.TemporaryDirectory() as place:
        broken, dump = Path(place) / "program.p4", Path(place) / "program.json"
        broken.write_text(source, encoding="utf-8")
        passes = ",".join(EXCLUDED_PASSES)
        _run(folder, "--nocpp", "--Wdisable", "--excludeMidendPasses", passes, "--toJSON", str(dump), str(broken))
        try:
            return program_text(import_program(dump.read_text(encoding="utf-8")))
        except ImportRefused as error:
            raise CompileRefused(f"the model of the pipeline does not support this: {error}") from error


def preprocessed(folder: Path, entry: str, options: Sequence[str] = ()) -> str:
    """Return the program as one file without directives and without very long lines; compile it with --nocpp.

    Raises:
        CompileRefused: p4test is not on PATH, or the preprocessor refused the program.

    """
    lines = _run(folder, "-E", "-D__TARGET_TOFINO__=1", *options, entry).splitlines()
    return "\n".join(_broken(lines)) + "\n"


def _broken(lines: Sequence[str]) -> Iterator[str]:
    """Break long lines after each statement; each part keeps its line number.

    The preprocessor puts all lanes on one line, and p4c dumps that line with each of their nodes.
    """
    file, number = "", 0
    for line in lines:
        marker = _MARKER.match(line)
        if marker is not None:
            number, file = int(marker[1]), marker[2]
            yield line
            continue
        if len(line) > _LONG:
            for part in re.split(r"(?<=[;{}]) ", line):
                yield f'# {number} "{file}"'
                yield part
        else:
            yield line
        if len(line) > _LONG:
            yield f'# {number + 1} "{file}"'
        number += 1


def _run(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [COMPILER, *arguments], cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except FileNotFoundError as error:
        raise CompileRefused(f"{COMPILER} is not on PATH: install p4c to compile the model's program") from error
    except subprocess.CalledProcessError as error:
        raise CompileRefused(f"{COMPILER} refused the program:\n{error.stderr}") from error
    return done.stdout
