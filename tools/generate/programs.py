"""The programs' commands and options, as click knows them, and Markdown made from them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Final

import click

from switchml.commands.root import Deferred, cli
from switchml.controller.daemon import main as controller
from switchml.dataplane.softswitch.daemon import main as switch
from switchml.host_agent.daemon import main as agent

__all__ = ["DAEMONS", "cell", "commands_of", "linked", "paragraph", "sentences", "switchml_ctl", "variables_of"]

DAEMONS: Final[dict[str, click.Command]] = {
    "switchml-controller": controller,
    "switchml-agent": agent,
    "switchml-switch": switch,
}
"""The daemons, by name."""


def commands_of(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    """Yield the command and all below it, with their names."""
    if isinstance(command, Deferred):
        command = command.load()
    yield " ".join(path), command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from commands_of(child, (*path, name))


def switchml_ctl() -> list[tuple[str, click.Command]]:
    """Return switchml-ctl and all of its commands, by their names."""
    return list(commands_of(cli, ("switchml-ctl",)))


def variables_of(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a daemon that an environment variable replaces, by its name."""
    prefix = command.context_settings.get("auto_envvar_prefix")
    found = {}
    for option in command.params:
        assert isinstance(option, click.Option)
        assert option.name is not None
        if option.envvar is not None:
            found[str(option.envvar)] = option
        elif prefix is not None and not option.is_eager and option.allow_from_autoenv:
            found[f"{prefix}_{option.name.upper()}"] = option
    return found


def sentences(text: str) -> str:
    """Return a help text without the notes in brackets at its end, which name variables, keys and defaults."""
    while (shorter := re.sub(r"\s*\[[^\[\]]*\]$", "", text.strip())) != text:
        text = shorter
    return text


def prose(text: str) -> str:
    """Return a help text as a paragraph: its pages are links, and nothing in it is a tag of HTML."""
    return " ".join(linked(text).split()).replace("<", "&lt;")


def paragraph(text: str) -> str:
    """Return such a paragraph in lines, as those of the pages."""
    return "\n".join(textwrap.wrap(prose(text), 120, break_long_words=False, break_on_hyphens=False))


def cell(text: str) -> str:
    """Return such a paragraph for a cell of a table."""
    return prose(text).replace("|", "\\|")


def linked(text: str) -> str:
    """Return text in which the paths of pages are links, as seen from docs/reference."""

    def link(found: re.Match[str]) -> str:
        folder = "" if found["folder"] == "reference" else f"../{found['folder']}/"
        return f"[{found['name']}]({folder}{found['name']}.md)"

    return re.sub(r"\bdocs/(?P<folder>[a-z]+)/(?P<name>[a-z-]+)\.md", link, text)
