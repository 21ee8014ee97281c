"""Find phrases in comments, docstrings, messages and documents that readers have to read twice.

Run as ``python -m tests.prose.prose_check [PATH ...]``; without paths it checks the whole checkout. ``phrases.toml``
lists the phrases, what to write instead, and the few places where they are allowed. Exit status 1 if any is found.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Block", "Finding", "Rules", "blocks_of", "check", "main", "read_rules"]

ROOT = Path(__file__).parents[2]
RULES = Path(__file__).with_name("phrases.toml")

_C_LIKE = {".cc", ".h", ".p4", ".pml", ".proto"}
_HASH_COMMENTS = {".sh", ".toml", ".yml", ".yaml", ".service", ".conf", ".sbatch", ".cmake"}
_HASH_NAMES = {"Makefile", "Dockerfile", "CMakeLists.txt"}
_PYTHON = {".py", ".pyi"}
_GENERATED = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")

# A block comment, a line comment, a string, or a character literal, whose quote must not be taken for a string's.
_C_TOKEN = re.compile(
    r'/\*(?P<block>.*?)\*/|//(?P<line>[^\n]*)|"(?P<string>(?:\\.|[^"\\\n])*)"|\'(?:\\.|[^\'\\\n])+\'', re.S
)


@dataclass(frozen=True)
class Block:
    """Consecutive lines of prose. ``kind`` is ``docstring``, ``comment``, ``string`` or ``document``."""

    kind: str
    lines: tuple[tuple[int, str], ...]  # line number and text without comment marks

    @property
    def text(self) -> str:
        """The prose on one line with single spaces."""
        return " ".join(word for _, line in self.lines for word in line.split())

    def line_of(self, offset: int) -> int:
        """Return the number of the line that contains a character of ``text``."""
        end = -1
        for number, line in self.lines:
            words = " ".join(line.split())
            end += len(words) + 1 if words else 0
            if offset < end or (offset == end and words):
                return number
        return self.lines[-1][0]


@dataclass(frozen=True)
class Rule:
    """A phrase, as a pattern over the text of a block, and what to write instead."""

    pattern: re.Pattern[str]
    instead: str
    kinds: frozenset[str]  # of the blocks to which it applies


@dataclass(frozen=True)
class Rules:
    """The contents of phrases.toml; ``allowed`` holds pairs of path and phrase."""

    rules: tuple[Rule, ...]
    allowed: frozenset[tuple[str, str]]
    unchecked: tuple[str, ...]  # patterns of paths


@dataclass(frozen=True)
class Finding:
    """One phrase in one place."""

    path: str
    line: int
    phrase: str
    instead: str

    def __str__(self) -> str:
        """Return the finding as compilers write their messages."""
        return f"{self.path}:{self.line}: {self.phrase!r}: {self.instead}"


def read_rules(path: Path = RULES) -> Rules:
    """Return the rules in a file; raises OSError, TOMLDecodeError, KeyError and re.error if it is not one."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    every = frozenset({"docstring", "comment", "string", "document"})
    rules = [
        Rule(re.compile(entry["pattern"], re.IGNORECASE), entry["instead"], frozenset(entry.get("kinds", every)))
        for entry in document["phrase"]
    ]
    for entry in document["start"]:
        words = "|".join(entry["words"])
        rules.append(Rule(re.compile(rf"^({words})\b(?![^.]*\?)"), entry["instead"], frozenset(entry["kinds"])))
    allowed = frozenset((entry["path"], entry["phrase"]) for entry in document.get("allowed", []))
    return Rules(tuple(rules), allowed, tuple(document["unchecked"]))


def blocks_of(path: Path) -> Iterator[Block]:
    """Yield the prose of a source file or document; nothing for files of another type.

    Raises:
        SyntaxError: a Python file cannot be parsed.
        OSError: the file cannot be read.

    """
    if path.name.endswith(_GENERATED):
        return
    if path.suffix in _PYTHON:
        yield from _python_blocks(path.read_text(encoding="utf-8"))
    elif path.suffix in _C_LIKE:
        yield from _c_blocks(path.read_text(encoding="utf-8"))
    elif path.suffix in _HASH_COMMENTS or path.name in _HASH_NAMES:
        yield from _hash_blocks(path.read_text(encoding="utf-8"))
    elif path.suffix == ".md":
        yield from _document_blocks(path.read_text(encoding="utf-8"))


def check(paths: Iterable[Path], rules: Rules, root: Path = ROOT) -> tuple[list[Finding], set[tuple[str, str]]]:
    """Return the findings in some files, and the allowed pairs of path and phrase that occurred."""
    findings: list[Finding] = []
    used: set[tuple[str, str]] = set()
    for path in paths:
        name = path.relative_to(root).as_posix()
        if any(fnmatchcase(name, pattern) for pattern in rules.unchecked):
            continue
        for block in blocks_of(path):
            text = block.text
            for rule in rules.rules:
                if block.kind not in rule.kinds:
                    continue
                for match in rule.pattern.finditer(text):
                    phrase = match[0].lower()
                    if (name, phrase) in rules.allowed:
                        used.add((name, phrase))
                    else:
                        findings.append(Finding(name, block.line_of(match.start()), match[0], rule.instead))
    return findings, used


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the files named on the command line, or all files of the checkout; return 1 if anything is found."""
    parser = argparse.ArgumentParser(description="Find phrases that readers have to read twice.")
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="files to check; default: all that git knows"
    )
    chosen = parser.parse_args(arguments).paths
    rules = read_rules()
    findings, used = check((path.resolve() for path in chosen) if chosen else _tracked_files(), rules)
    lines = [str(finding) for finding in findings]
    if not chosen:
        unused = sorted(rules.allowed - used)
        lines += [f"{RULES.name}: {phrase!r} no longer occurs in {path}: remove the entry" for path, phrase in unused]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 1 if lines else 0


def _tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = (ROOT / name for name in listed.split("\0") if name)
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def _python_blocks(source: str) -> Iterator[Block]:
    tokens = [
        token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type == tokenize.COMMENT
    ]
    own_line = [
        (token.start[0], token.string.lstrip("#!: ")) for token in tokens if not token.line[: token.start[1]].strip()
    ]
    yield from _adjacent("comment", own_line)
    for token in tokens:
        if token.line[: token.start[1]].strip():
            yield Block("comment", ((token.start[0], token.string.lstrip("# ")),))
    tree = ast.parse(source)
    docstrings = {id(node) for node in _docstrings(tree)}
    inside: set[int] = set()
    names = {id(node) for node in ast.walk(tree) if isinstance(node, ast.Constant) and len(str(node.value).split()) < 2}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(value) for value in node.values}
            text = "".join(str(value.value) if isinstance(value, ast.Constant) else "{}" for value in node.values)
            yield _string_block("string", node.lineno, text)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside | names:
            yield _string_block("docstring" if id(node) in docstrings else "string", node.lineno, node.value)


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the docstrings of modules, classes and functions, and the strings that document an attribute."""
    for node in ast.walk(tree):
        for statement in getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                yield statement.value


def _string_block(kind: str, line: int, text: str) -> Block:
    return Block(kind, tuple((line + index, part) for index, part in enumerate(text.split("\n"))))


def _c_blocks(source: str) -> Iterator[Block]:
    own_line: list[tuple[int, str]] = []
    for match in _C_TOKEN.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        if match["string"] is not None:
            yield Block("string", ((line, match["string"].replace("\\n", " ")),))
        elif match["line"] is not None:
            begin = source.rfind("\n", 0, match.start()) + 1
            if source[begin : match.start()].strip():
                yield Block("comment", ((line, match["line"]),))
            else:
                own_line.append((line, match["line"]))
        elif match["block"] is not None:
            parts = match["block"].split("\n")
            yield Block("comment", tuple((line + index, part.lstrip(" *")) for index, part in enumerate(parts)))
    yield from _adjacent("comment", own_line)


def _hash_blocks(source: str) -> Iterator[Block]:
    own_line: list[tuple[int, str]] = []
    for number, line in enumerate(source.splitlines(), start=1):
        code, mark, comment = line.partition("# ")
        if not code.strip("#@ \t") and mark:
            own_line.append((number, comment))
        elif line.strip("# \t"):
            yield Block("string", ((number, line),))
    yield from _adjacent("comment", own_line)


def _document_blocks(source: str) -> Iterator[Block]:
    """Yield the paragraphs, list items, table rows and examples of a Markdown document."""
    begun: list[tuple[int, str]] = []
    for number, line in enumerate(source.splitlines(), start=1):
        if begun and (not line.strip() or re.match(r"\s*([-*#|]|\d+\.|```)", line)):
            yield Block("document", tuple(begun))
            begun = []
        if line.strip():
            begun.append((number, line))
    if begun:
        yield Block("document", tuple(begun))


def _adjacent(kind: str, lines: Sequence[tuple[int, str]]) -> Iterator[Block]:
    """Join comment lines that follow each other; an empty one separates paragraphs."""
    begun: list[tuple[int, str]] = []
    for number, text in lines:
        if begun and (number != begun[-1][0] + 1 or not text.strip()):
            yield Block(kind, tuple(begun))
            begun = []
        if text.strip():
            begun.append((number, text))
    if begun:
        yield Block(kind, tuple(begun))


if __name__ == "__main__":
    sys.exit(main())
