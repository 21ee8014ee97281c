"""Count how much of the P4 program its targets share, in lines that are neither empty nor only a comment."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from switchml.dataplane.targets import TARGETS

__all__ = ["Lines", "count_lines"]

_SHARED = "common"
_P4 = Path(__file__).parent.parent / "p4"
_INCLUDE = re.compile(r'^#include "(.*)"', re.MULTILINE)


@dataclass(frozen=True)
class Lines:
    """Lines of one target's program: those in common/ that it includes, and those specific to the target."""

    shared: int
    own: int

    @property
    def shared_percent(self) -> float:
        """The percentage of shared lines."""
        return 100 * self.shared / (self.shared + self.own)


def count_lines(folder: Path = _P4) -> dict[str, Lines]:
    """Return the lines of each target's program; ``folder`` is the one with common/, v1model/ and tna/."""
    return {one.name: _lines(folder, folder / one.entry) for one in TARGETS.values() if one.entry}


def _lines(folder: Path, entry: Path) -> Lines:
    included: set[Path] = set()
    waiting = [entry.resolve()]
    while waiting:
        path = waiting.pop()
        if path not in included:
            included.add(path)
            waiting += [(path.parent / name).resolve() for name in _INCLUDE.findall(path.read_text(encoding="utf-8"))]
    counts = {True: 0, False: 0}
    for path in included:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        shared = path.parent == (folder / _SHARED).resolve()
        counts[shared] += sum(bool(line) and not line.startswith("//") for line in lines)
    return Lines(counts[True], counts[False])
