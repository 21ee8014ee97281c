"""Documents and settings name files and modules of this repository that exist."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = {PurePosixPath(line) for line in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split("\n")}
FOLDERS = {folder for file in FILES for folder in file.parents}
TOP = {file.parts[0] for file in FILES if len(file.parts) > 1}

PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.(?:py|cc|h|p4|toml)|[\w.-]+(?:/[\w.-]+)*/)`")
LINK = re.compile(r"\[([^\[\]]+\.md)\]\(([^():#]*)[^()]*\)")
MODULE = re.compile(r"python3? -m ([\w.]+)")
OTHERS = {"build"}  # folders that are made
FOREIGN = {"venv", "pip"}  # modules of others


def missing(document: PurePosixPath) -> Iterator[str]:
    """Yield what a document names and is not there. A path may leave out its first folders."""
    text = (ROOT / document).read_text()
    for found in PATH.findall(text):
        path = PurePosixPath(found)
        if path.parts[0] not in OTHERS and not any(_ends_with(known, path) for known in FILES | FOLDERS):
            yield found
    for name in MODULE.findall(text):
        path = PurePosixPath(*name.removeprefix("switchml.").split("."))
        places = {path.with_suffix(".py"), path / "__main__.py", PurePosixPath("switchml", path).with_suffix(".py")}
        if name not in FOREIGN and not places & FILES:
            yield f"python -m {name}"
        if path.parts[0] in TOP - {"ptf_tests", "tests", "tools", "model", "studies"} and not name.startswith(
            "switchml."
        ):
            yield f"python -m {name}, which is switchml.{name}"


def misnamed(document: PurePosixPath) -> Iterator[str]:
    """Yield each link whose text is the name of a page, and which leads to another one."""
    for text, target in LINK.findall((ROOT / document).read_text()):
        if PurePosixPath(text).name != PurePosixPath(target or document).name:
            yield f"[{text}]({target})"


def _ends_with(known: PurePosixPath, path: PurePosixPath) -> bool:
    return known.parts[-len(path.parts) :] == path.parts


@pytest.mark.parametrize("document", sorted(str(file) for file in FILES if file.suffix in {".md", ".toml"}))
def test_what_a_document_names_exists(document: str) -> None:
    assert list(missing(PurePosixPath(document))) == []


@pytest.mark.parametrize("document", sorted(str(file) for file in FILES if file.suffix == ".md"))
def test_a_link_that_names_a_page_leads_to_it(document: str) -> None:
    assert list(misnamed(PurePosixPath(document))) == []
