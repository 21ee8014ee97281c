"""Compile the program of FPISA-A for Tofino: `python -m studies.fpisa.compile`, after a change of what it includes.

It needs the compilers of `python -m switchml.dataplane.compiler --target tofino`. The outputs are checked in, because
tests run them in the model of the pipeline.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from switchml.dataplane.compiler.compile_p4 import digest_of_text, text_of
from switchml.dataplane.compiler.compile_tofino import Program, compile_tofino, compiler_version
from switchml.dataplane.compiler.tofino_report import report_lines

__all__ = ["BUILD", "OUTPUTS", "PROGRAM", "digests", "main"]

PROGRAM: Final = Program("fpisa", Path(__file__).parent / "p4", "fpisa.p4")
BUILD: Final = PROGRAM.folder / "build"
OUTPUTS: Final = tuple(f"fpisa.{kind}.json" for kind in ("ir", "resources", "stateful"))
"""The files that are kept: not the BfRt schema, because no switch loads the program."""


def digests() -> dict[str, str]:
    """Return the SHA-256 (hexadecimal) of the program and of each output in the build folder. Raises CompileError."""
    outputs = {name: digest_of_text((BUILD / name).read_text(encoding="utf-8")) for name in OUTPUTS}
    return {"sources": digest_of_text(text_of(PROGRAM.folder / PROGRAM.entry)), **outputs}


def main() -> None:
    """Compile, print the report, and write the outputs and their digests. Raises TofinoCompileError."""
    compiler = compiler_version()
    if compiler is None:
        sys.exit("p4c-barefoot and bfas are not on PATH: build p4c with -DENABLE_TOFINO=ON")
    compilation = compile_tofino(PROGRAM)
    sys.stdout.write("\n".join(report_lines(compilation.report, {})) + "\n")
    for name in OUTPUTS:
        (BUILD / name).write_text(compilation.outputs[name], encoding="utf-8")
    content = {"compiler": compiler, **digests()}
    (BUILD / "digest.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
