"""docs/README.md, the list of all pages for readers of the repository, from the navigation of the site."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tools.generate import ROOT
from tools.site import navigation, pages_in

__all__ = ["generate"]

_PAGE: Final = ROOT / "docs" / "README.md"
_BEGIN: Final = """# All pages

<!-- Generated from mkdocs.yml by tools/generate; do not edit. -->

`make site` builds them as a site with a search.
"""


def generate() -> dict[Path, str]:
    """Return the text of the page."""
    paths = {place: path for path, place in pages_in(ROOT).items()}
    return {_PAGE: "\n".join([_BEGIN, *(line for section in navigation() for line in _section(section, paths, 2))])}


def _section(section: dict[str, Any], paths: dict[str, str], level: int) -> Iterator[str]:
    for title, inside in section.items():
        if isinstance(inside, str):
            continue
        yield f"{'#' * level} {title}\n"
        pages = [entry for entry in inside if isinstance(entry, str) and entry in paths]
        yield "".join(f"- {_link(paths[page])}\n" for page in pages)
        for entry in inside:
            if isinstance(entry, dict):
                yield from _section(entry, paths, level + 1)


def _link(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    title = text.partition("# ")[2].partition("\n")[0].strip()
    return f"[{title}]({posixpath.relpath(path, 'docs')})"
