"""The pages of docs/reference that are made from the sources."""

from __future__ import annotations

from pathlib import Path

from tools.generate import ROOT
from tools.generate.c_header import c_page
from tools.generate.commands import commands_page
from tools.generate.errors import errors_page
from tools.generate.settings import settings_page

__all__ = ["generate"]


def generate() -> dict[Path, str]:
    """Return the text of every page by its path.

    Raises:
        ValueError: a setting, an error or a function of the C header is not described completely.

    """
    pages = {"settings": settings_page, "commands": commands_page, "errors": errors_page, "c": c_page}
    return {ROOT / "docs" / "reference" / f"{name}.md": make() for name, make in pages.items()}
