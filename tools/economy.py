"""Measure what the source costs its readers: ``python tools/economy.py [--json]``.

The figures are: lines by kind and folder, functions with many parameters, classes with many fields, files that name one
choice, options of the command line, and targets of make. Compare them before and after a change of structure.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PRODUCT: Final = (*("cli.py", "controller", "dataplane", "host_agent", "native", "switchml", "topologies"),)
KINDS: Final = {".py": "Python", ".cc": "C++", ".h": "C++", ".p4": "P4"}
MOST_PARAMETERS: Final = 6
MOST_FIELDS: Final = 12
CHOICES: Final = {
    "sums of floats": r"Floats\b|FLOAT32\b|adds_floats|float_pools|arithmetic",
    "a coded format": r"Codes\b|natural8|dynamic8|NATURAL8|DYNAMIC8",
    "a target": r"\b(?:bmv2|tofino)\b|\"soft\"",
    "the priority of a job": r"\bpriority\b",
}
_GENERATED: Final = re.compile(r"\A.*(?:Generated (?:by|from)|Generated protocol buffer|do not edit)", re.IGNORECASE)


def tracked() -> list[Path]:
    """Return the files of the repository, without links."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [Path(name) for name in listed.split("\0") if name]
    return [path for path in paths if (ROOT / path).is_file() and not (ROOT / path).is_symlink()]


def product_sources() -> dict[Path, str]:
    """Return the product's hand-written sources, by their path."""
    texts = {
        path: (ROOT / path).read_text(encoding="utf-8")
        for path in tracked()
        if path.parts[0] in PRODUCT and path.suffix in KINDS
    }
    return {
        path: text
        for path, text in texts.items()
        if not _GENERATED.match(text) and not path.stem.endswith(("_pb2", "_pb2_grpc"))
    }


def lines_by(sources: dict[Path, str]) -> dict[str, dict[str, int]]:
    """Return the numbers of lines by kind and by folder."""
    kinds: Counter[str] = Counter()
    folders: Counter[str] = Counter()
    for path, text in sources.items():
        count = text.count("\n")
        kinds[KINDS[path.suffix]] += count
        folders[path.parts[0]] += count
    return {"kind": dict(kinds), "folder": dict(folders.most_common())}


def _trees(sources: dict[Path, str]) -> Iterator[tuple[Path, ast.Module]]:
    for path, text in sources.items():
        if path.suffix == ".py":
            yield path, ast.parse(text)


def _is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether click fills the parameters: each is one option."""
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    return any("command(" in text or "option" in text or text == "click.pass_obj" for text in decorators)


def long_signatures(sources: dict[Path, str]) -> list[tuple[int, str]]:
    """Return the functions with more than MOST_PARAMETERS parameters, without `self`, and their number of them."""
    found = []
    for path, tree in _trees(sources):
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not _is_command(node):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = sum(argument.arg not in ("self", "cls") for argument in given)
                if count > MOST_PARAMETERS:
                    found.append((count, f"{path}:{node.lineno} {node.name}"))
    return sorted(found, reverse=True)


def _fields(node: ast.ClassDef) -> int:
    declared = {
        statement.target.id
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            for inner in ast.walk(method):
                targets: Iterable[ast.expr] = ()
                if isinstance(inner, ast.Assign):
                    targets = inner.targets
                elif isinstance(inner, ast.AnnAssign):
                    targets = [inner.target]
                for target in targets:
                    for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                        if isinstance(part, ast.Attribute) and ast.unparse(part.value) == "self":
                            declared.add(part.attr)
    return len(declared)


def large_classes(sources: dict[Path, str]) -> list[tuple[int, str]]:
    """Return the classes with more than MOST_FIELDS fields, declared or set in `__init__`, and their number of them."""
    found = []
    for path, tree in _trees(sources):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                count = _fields(node)
                if count > MOST_FIELDS:
                    found.append((count, f"{path}:{node.lineno} {node.name}"))
    return sorted(found, reverse=True)


def files_naming(sources: dict[Path, str]) -> dict[str, int]:
    """Return the number of files that name each of some choices, which a new one of the same kind may have to touch."""
    return {
        name: sum(re.search(pattern, text) is not None for text in sources.values())
        for name, pattern in CHOICES.items()
    }


def measure() -> dict[str, Any]:
    """Return all figures."""
    sources = product_sources()
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return {
        "lines": {**lines_by(sources), "all": sum(text.count("\n") for text in sources.values())},
        f"functions with more than {MOST_PARAMETERS} parameters": long_signatures(sources),
        f"classes with more than {MOST_FIELDS} fields": large_classes(sources),
        "files naming": files_naming(sources),
        "options": sum(text.count("click.option(") for text in sources.values()),
        "targets of make": len(re.findall(r"^[a-z][a-z0-9-]*:(?!=)", makefile, re.MULTILINE)),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Measure what the source costs its readers.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    found = measure()
    if parser.parse_args().json:
        lines = [json.dumps(found, indent=2)]
    else:
        lines = [line for name, value in found.items() for line in _lines_of(name, value)]
    sys.stdout.write("\n".join(lines) + "\n")


def _lines_of(name: str, value: object) -> list[str]:
    if isinstance(value, list):
        return [f"{name}: {len(value)}", *(f"  {count:3} {place}" for count, place in value)]
    return [f"{name}: {value}"]


if __name__ == "__main__":
    main()
