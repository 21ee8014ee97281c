"""The blocks of code in the project's Markdown pages, and the comments above them that say what runs each.

<!-- run: SETTING -->                     test_documents.py runs it, in an environment from SETTINGS there
<!-- run: SETTING, needs root bmv2 -->    the same, if this machine has all of these; long: with `--long`
<!-- run: SETTING, as FILE -->            the block is a file, which later blocks use
<!-- run by: PATH::TEST -->               another test takes the block from its page, or .ci/run its commands
<!-- several-hosts: NAME -->              test_several_hosts.py runs it
<!-- not run: REASON -->                  nothing runs it
"""

from __future__ import annotations

import re
import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLAIN = "text"  # a block that is not code
_FENCE = re.compile(r"\s*```(?P<language>\w*)\s*$")
_COMMENT = re.compile(r"<!--\s*(?P<kind>run by|run|not run|several-hosts):\s*(?P<rest>.*?)\s*-->", re.DOTALL)
_SETTING = re.compile(r"(?P<name>[\w-]+)(, needs (?P<needs>[\w ]+))?(, as (?P<file>[\w.-]+))?")


@dataclass(frozen=True)
class Block:
    """A fenced block; `kind` and `rest` come from the comment above it, and are empty without one."""

    page: str
    line: int
    language: str
    text: str
    kind: str
    rest: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def _part(self, name: str) -> str:
        match = _SETTING.fullmatch(self.rest)
        assert match is not None, f"{self.place}: {self.rest!r} is not SETTING[, needs NAME ...][, as FILE]"
        return match[name] or ""

    @property
    def setting(self) -> str:
        return self._part("name")

    @property
    def needs(self) -> list[str]:
        return self._part("needs").split()

    @property
    def file(self) -> str:
        return self._part("file")


def pages() -> list[str]:
    """Return all Markdown files of the repository, as paths from its root."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(listed.stdout.split())


def blocks_of(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    found: list[Block] = []
    above: list[str] = []  # lines that may be the comment of the next block
    lines = iter(enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1))
    for number, line in lines:
        fence = _FENCE.fullmatch(line)
        if fence is None:
            above = [*above, line] if line.strip() else above
            continue
        inside = []
        for _, within in lines:
            if within.strip() == "```":
                break
            inside.append(within)
        paragraph = "\n".join(above)
        comments = list(_COMMENT.finditer(paragraph))
        last = comments[-1] if comments and paragraph.rstrip().endswith(comments[-1][0]) else None
        kind, rest = (last["kind"], " ".join(last["rest"].split())) if last is not None else ("", "")
        text = textwrap.dedent("\n".join(inside)) + "\n"
        found.append(Block(page, number, fence["language"], text, kind, rest))
        above = []
    return found


def all_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks_of(page)]
