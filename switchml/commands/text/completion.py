"""Completion scripts for shells."""

from __future__ import annotations

from collections.abc import Iterator

from switchml.commands.completion import CompletionScript
from switchml.commands.text.printing import Part, Verbatim, text

__all__: list[str] = []


@text.register(CompletionScript)
def _(completion: CompletionScript) -> Iterator[Part]:
    yield Verbatim(completion.script + "\n")
