"""Text of topologies."""

from __future__ import annotations

from collections.abc import Iterator

from switchml.commands.text.printing import Part, Verbatim, text
from switchml.commands.topology import ControllerFile, TopologyFound
from switchml.topologies import drawing

__all__: list[str] = []


@text.register(TopologyFound)
def _(found: TopologyFound) -> Iterator[Part]:
    if not found.drawn:
        yield Verbatim(drawing.text(found.topology) + "\n")


@text.register(ControllerFile)
def _(file: ControllerFile) -> Iterator[Part]:
    yield Verbatim(file.configuration)
