"""The pages of docs/reference that tools/generate makes, and what they must have."""

import ast
import re
from pathlib import Path

import click
import pytest

from switchml.client import errors
from switchml.common.variables import VARIABLES
from tools.generate import ROOT
from tools.generate.programs import DAEMONS, sentences, switchml_ctl
from tools.generate.reference import generate

PAGES = generate()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_what_the_sources_say(page: Path) -> None:
    assert PAGES[page] == page.read_text(encoding="utf-8"), f"{page} is stale: run python -m tools.generate reference"


def test_every_variable_has_one_meaning_in_the_table_of_settings() -> None:
    lines = PAGES[ROOT / "docs/reference/settings.md"].splitlines()
    meanings = {variable: [line for line in lines if f"| `{variable}` |" in line] for variable in VARIABLES}
    for variable, found in meanings.items():
        where = 2 if variable == "SWITCHML_CONTROLLER" else 1  # of a user's commands, and of agents
        assert len(found) == where, variable
        assert all(re.search(r"\w", line.rsplit("|", 2)[1]) for line in found), variable


def test_every_command_and_every_option_is_in_the_page_of_commands() -> None:
    parts = PAGES[ROOT / "docs/reference/commands.md"].split("\n## ")
    sections = {part.partition("\n")[0]: part for whole in parts for part in whole.split("\n### ")}
    for name, command in [*switchml_ctl(), *DAEMONS.items()]:
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                missing = {option for option in parameter.opts if option not in sections[name]}
                assert missing <= {"-o", "--json", "--help", "-h"}, name


def test_every_error_of_the_library_has_a_section() -> None:
    sections = re.findall(r"^### (\w+)$", PAGES[ROOT / "docs/reference/errors.md"], re.MULTILINE)
    assert sections == errors.__all__


@pytest.mark.parametrize("module", ["switchml", "switchml.torch"])
def test_every_public_name_is_in_the_page_of_python(module: str) -> None:
    page = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
    shown = set(re.findall(rf"^::: {re.escape(module)}\.(\w+)$", page, re.MULTILINE)) | set(errors.__all__)
    assert public_names(module) - shown <= {"__version__"}


def public_names(module: str) -> set[str]:
    """Return __all__ of a package, whose modules may need packages that are not installed."""
    source = (ROOT / module.replace(".", "/") / "__init__.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    raise AssertionError(f"{module} has no __all__")


@pytest.mark.parametrize(
    ("text", "shown"),
    [("A  [X; default 1]", "A"), ("A [B] c.", "A [B] c."), ("A.  [env: X]  [0<=x<=1]", "A."), ("", "")],
)
def test_notes_in_brackets_at_the_end_are_left_out(text: str, shown: str) -> None:
    assert sentences(text) == shown
