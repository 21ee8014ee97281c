"""All studies: their commands, their pages, and their lines in the table of results."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from studies.__main__ import studies
from studies.command import StudyCommand
from switchml.benchmarks import plots, report

FOLDER = Path(__file__).parents[2] / "studies"
NAMES = sorted(name for name, command in studies.commands.items() if isinstance(command, StudyCommand))


def test_without_a_name_they_are_listed() -> None:
    listed = CliRunner().invoke(studies, [])
    assert listed.exit_code == 0
    assert all(f"\n  {name} " in listed.stdout for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_study_has_help_tables_plots_a_page_and_a_result(name: str) -> None:
    shown = CliRunner().invoke(studies, [name, "--help"])
    assert shown.exit_code == 0
    assert f"python -m studies {name} --short" in shown.output
    assert {name} <= report.TABLES.keys() & plots.FIGURES.keys()
    assert f"python -m studies {name}" in (FOLDER / name / "README.md").read_text(encoding="utf-8")
    assert f"]({name}/README.md)" in (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_the_short_form_has_values_that_the_options_take(name: str) -> None:
    command = studies.commands[name]
    short = command.make_context(name, ["--short"]).params
    assert short != command.make_context(name, []).params
    small = command.make_context(name, ["--short", "--markdown"]).params
    assert small == short | {"markdown": True}
