"""Compile the P4 program for its targets and record the inputs and outputs.

Run it as ``python -m switchml.dataplane.compiler --target bmv2`` or ``tofino`` in the source tree after changing a P4
file or constants.toml. The outputs are checked in, so that a switch runs without a P4 compiler; ``digest.json`` in the
same folder tells whether they match the programs. They contain no paths of the machine that compiled them.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from switchml.dataplane.compiler import compile_tofino
from switchml.dataplane.compiler.p4_lines import count_lines
from switchml.dataplane.compiler.tofino_report import BudgetError, check_budget, read_budget, report_lines
from switchml.dataplane.targets import BMV2

__all__ = [
    "COMPILER",
    "TARGETS",
    "VARIANTS",
    "CompileError",
    "Variant",
    "bmv2_text",
    "compile_bmv2",
    "compile_variant",
    "compiler_version",
    "digest_of_sources",
    "digest_of_text",
    "find_stale",
    "main",
    "read_digest",
    "text_of",
    "write_outputs",
]

COMPILER = "p4c-bm2-ss"
COMMAND = "python -m switchml.dataplane.compiler"

_HERE = Path(__file__).resolve().parent.parent
_BUILD = Path("p4") / "build"
_DIGEST = "digest.json"
_HEADER = re.compile(r"^#include <(.*)>", re.MULTILINE)
_CONSTANT = re.compile(r"\bconst [^;=]* (\w+) = [^;]*;\n?")


class CompileError(Exception):
    """The P4 compiler is missing or refused the program."""


@dataclass(frozen=True)
class Variant:
    """One compilation of the program: its name, its values per packet, and how it adds floats if it does.

    ``floats`` is the end of one of the names FLOATS_... in v1model/arch.p4.
    """

    name: str
    values: int
    floats: str = "NONE"

    @property
    def macros(self) -> list[str]:
        """The options that define the macros of the program."""
        return [f"-DVALUES={self.values}"] + ([f"-DFLOATS=FLOATS_{self.floats}"] if self.floats != "NONE" else [])


VARIANTS = tuple(
    Variant(BMV2.compiled(program, values).name, values, "DIGITS" if program == "switchml_floats" else "NONE")
    for program, compiled in BMV2.programs.items()
    for values in compiled
)

# Without this pass: it puts the expression that a variable was assigned to in the place of the variable, and then the
# expressions with which floats are added would grow exponentially.
_OPTIONS_FOR_FLOATS = ("--excludeMidendPasses", "P4::LocalCopyPropagation")

# The entry file of each program of a target, and the options that define its macros.
_PROGRAMS: dict[str, list[tuple[str, list[str]]]] = {
    "bmv2": [(BMV2.entry, variant.macros) for variant in VARIANTS],
    "tofino": [(compile_tofino.PROGRAM.entry, [])],
}

TARGETS = tuple(_PROGRAMS)


def digest_of_sources(target: str, folder: Path = _HERE) -> str:
    """Return the SHA-256 (hexadecimal) of the texts of a target's programs; ``folder`` is the one that holds p4/.

    Raises:
        CompileError: cpp is not on PATH, or refused a program.

    """
    return digest_of_text("".join(text_of(folder / "p4" / entry, macros) for entry, macros in _PROGRAMS[target]))


def text_of(entry: Path, macros: Sequence[str] = ()) -> str:
    """Return a program as the compiler reads it, so that it changes only where the program does.

    It is the preprocessed text without white space that says nothing, and without the constants that it does not use,
    because constants.p4 is shared with other targets.

    Raises:
        CompileError: cpp is not on PATH, or refused the program.

    """
    return " ".join(_without_unused_constants(_preprocessed(entry, macros)).split())


def _preprocessed(entry: Path, macros: Sequence[str]) -> str:
    """Return a program without comments, directives and the compiler's own headers."""
    with tempfile.TemporaryDirectory() as headers:
        for source in (_HERE / "p4").glob("*/*.p4"):
            for name in _HEADER.findall(source.read_text(encoding="utf-8")):
                (Path(headers) / name).touch()
        return _run("cpp", "-P", "-undef", "-nostdinc", f"-I{headers}", *macros, str(entry))


def _without_unused_constants(program: str) -> str:
    uses = Counter(re.findall(r"\w+", program))
    return _CONSTANT.sub(lambda found: found[0] if uses[found[1]] > 1 else "", program)


def digest_of_text(text: str) -> str:
    """Return the SHA-256 (hexadecimal) of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_digest(folder: Path = _HERE) -> dict[str, Any]:
    """Return digest.json: for each target ``compiler``, ``sources`` and ``outputs`` (SHA-256, by file name).

    Raises:
        FileNotFoundError: nothing was compiled yet.

    """
    digest: dict[str, Any] = json.loads((folder / _BUILD / _DIGEST).read_text(encoding="utf-8"))
    return digest


def find_stale(folder: Path = _HERE) -> list[str]:
    """Return a sentence for each file in the build folder that does not match the sources; empty if all are fresh."""
    if not (folder / _BUILD / _DIGEST).exists():
        return [f"{_DIGEST} is missing"]
    recorded = read_digest(folder)
    stale = []
    for target in TARGETS:
        if target in recorded:
            stale += _find_stale(target, recorded[target], folder)
        else:
            stale.append(f"{_DIGEST} does not list {target}")
    return stale


def _find_stale(target: str, recorded: dict[str, Any], folder: Path) -> list[str]:
    build = folder / _BUILD
    stale = []
    if recorded["sources"] != digest_of_sources(target, folder):
        stale.append(f"the P4 program has changed since it was compiled for {target}")
    present = {path.relative_to(build).as_posix() for path in (build / target).glob("*")}
    stale += [f"{name} is not in {_DIGEST}" for name in sorted(present - {*recorded["outputs"]})]
    for name, digest in recorded["outputs"].items():
        if name not in present:
            stale.append(f"{name} is missing")
        elif digest_of_text((build / name).read_text(encoding="utf-8")) != digest:
            stale.append(f"{name} was not made by this compilation")
    return stale


def compiler_version() -> str | None:
    """Return name and version of BMv2's P4 compiler, or None if it is not on PATH.

    Raises:
        CompileError: it does not print its version.

    """
    if shutil.which(COMPILER) is None:
        return None
    for line in _run(COMPILER, "--version").splitlines():
        if line.startswith("Version "):
            return f"{COMPILER} {line.split()[1]}"
    raise CompileError(f"{COMPILER} --version prints no version")


def compile_variant(variant: Variant) -> dict[str, str]:
    """Return the text of the p4info and of the BMv2 JSON by file name, relative to the build folder.

    Raises:
        CompileError: the compiler is not on PATH, or refused the program; the text says where.

    """
    with tempfile.TemporaryDirectory() as folder:
        p4info = Path(folder) / "p4info.txtpb"
        config = Path(folder) / "config.json"
        _run(
            COMPILER,
            "--std=p4-16",
            "--Wdisable=unused",  # constants.p4 also has constants of other targets and programs
            *(() if variant.floats == "NONE" else _OPTIONS_FOR_FLOATS),
            *variant.macros,
            "--p4runtime-files",
            str(p4info),
            "-o",
            str(config),
            BMV2.entry,
        )
        return {
            f"bmv2/{variant.name}.p4info.txtpb": p4info.read_text(encoding="utf-8"),
            f"bmv2/{variant.name}.json": bmv2_text(json.loads(config.read_text(encoding="utf-8"))),
        }


def compile_bmv2() -> dict[str, str]:
    """Return the outputs of every BMv2 variant by file name, relative to the build folder.

    Raises:
        CompileError: the compiler is not on PATH, or refused the program.

    """
    outputs: dict[str, str] = {}
    for variant in VARIANTS:
        outputs.update(compile_variant(variant))
    return outputs


def write_outputs(target: str, compiler: str, outputs: Mapping[str, str]) -> list[str]:
    """Write a target's outputs and its part of digest.json; return the names in the build folder."""
    build = _HERE / _BUILD
    digests = read_digest() if (build / _DIGEST).exists() else {}
    digests[target] = {
        "compiler": compiler,
        "sources": digest_of_sources(target),
        "outputs": {name: digest_of_text(text) for name, text in sorted(outputs.items())},
    }
    written = {**outputs, _DIGEST: json.dumps({name: digests[name] for name in sorted(digests)}, indent=2) + "\n"}
    for name, text in written.items():
        path = build / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return sorted(written)


def _run(*command: str) -> str:
    """Run a program in the P4 folder and return its output (p4c writes even its version to stderr)."""
    try:
        done = subprocess.run(command, cwd=_HERE / "p4", capture_output=True, text=True, timeout=600, check=True)
    except FileNotFoundError as error:
        package = "p4c" if command[0] == COMPILER else "g++"
        raise CompileError(f"{command[0]} is not on PATH: install {package} to compile the P4 program") from error
    except subprocess.CalledProcessError as error:
        raise CompileError(f"{command[0]} refused {command[-1]}:\n{error.stderr}") from error
    return done.stdout + done.stderr


def bmv2_text(config: dict[str, Any]) -> str:
    """Return the text of a BMv2 configuration, without anything that only depends on lines of the source.

    The compiler names an action, and its table, after the file and the line that it was made from: "loss36" and
    "tbl_loss36". Here the first action of a file has the number 1, the next one 2, so that lines which are added to a
    file above them, such as a comment, do not change the output.
    """
    stems = {source.stem for source in (_HERE / "p4").glob("*/*.p4")}
    names: dict[str, dict[str, int]] = {stem: {} for stem in stems}

    def numbered(found: re.Match[str]) -> str:
        prefix, stem, line = found.groups(default="")
        number = names[stem].setdefault(line, len(names[stem]) + 1)
        return f'"{prefix}{stem}_{number}"'

    generated = re.compile(rf'"(tbl_)?({"|".join(sorted(stems))})(\d+)"')
    return generated.sub(numbered, _json_text(_without_sources(config)))


def _without_sources(node: Any) -> Any:
    """Return a BMv2 configuration without source locations, which are four fifths of its size and have no effect."""
    if isinstance(node, dict):
        return {key: _without_sources(value) for key, value in node.items() if key != "source_info"}
    if isinstance(node, list):
        return [_without_sources(value) for value in node]
    return node


def _json_text(config: dict[str, Any]) -> str:
    """Return compact JSON with one line for each element of each section, so that differences are readable."""
    sections = []
    for key, value in config.items():
        if isinstance(value, list) and value:
            text = "[\n" + ",\n".join(json.dumps(element, separators=(",", ":")) for element in value) + "\n]"
        else:
            text = json.dumps(value, separators=(",", ":"))
        sections.append(f"{json.dumps(key)}:{text}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def _make_bmv2() -> None:
    compiler = compiler_version()
    if compiler is None:
        raise CompileError(f"{COMPILER} is not on PATH: install p4c to compile the P4 program")
    for name in write_outputs("bmv2", compiler, compile_bmv2()):
        click.echo(name)


def _make_tofino(device: str) -> None:
    """Compile the program, print its report, and write the outputs unless a limit is exceeded."""
    compiler = compile_tofino.compiler_version()
    if compiler is None:
        raise CompileError(
            f"{compile_tofino.COMPILER} and {compile_tofino.ASSEMBLER} are not on PATH: build p4c with "
            "-DENABLE_TOFINO=ON to compile the P4 program for Tofino"
        )
    compilation = compile_tofino.compile_tofino(compile_tofino.PROGRAM, device)
    budget = read_budget(_HERE / "p4" / compile_tofino.BUDGET) if device == "tofino" else {}
    for line in report_lines(compilation.report, budget):
        click.echo(line)
    click.echo(f"\ncompiled in {compilation.seconds:.0f} s\n")
    if device == "tofino":
        check_budget(compilation.report, budget)
        outputs = {f"tofino/{name}": text for name, text in compilation.outputs.items()}
        for name in write_outputs("tofino", compiler, outputs):
            click.echo(name)


@click.command()
@click.option(
    "--target",
    type=click.Choice([*TARGETS, "tofino2"]),
    default="bmv2",
    show_default=True,
    help="Target to compile for. For tofino2 only the report is printed.",
)
@click.option(
    "--check", is_flag=True, help="Compile nothing; fail if the outputs of any target do not match the sources."
)
def main(target: str, check: bool) -> None:
    """Compile the P4 program into dataplane/p4/build."""
    if check:
        stale = find_stale()
        if stale:
            raise click.ClickException(f"{'; '.join(stale)}: run {COMMAND} with --target bmv2 and --target tofino")
        return
    try:
        if target == "bmv2":
            _make_bmv2()
        else:
            _make_tofino(target)
    except (CompileError, compile_tofino.TofinoCompileError, BudgetError) as error:
        raise click.ClickException(str(error)) from error
    for name, lines in count_lines().items():
        click.echo(
            f"{name}: {lines.shared} lines of P4 shared, {lines.own} its own ({lines.shared_percent:.0f} % shared)"
        )
