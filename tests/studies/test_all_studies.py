"""`python -m studies all`: studies that are done, that fail, and that are skipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
from click.testing import CliRunner

from studies.__main__ import studies
from studies.all_studies import StudyEnd, run_all, summary
from studies.command import StudyCommand


def group(**callbacks: Callable[[], None]) -> click.Group:
    """Return a group with `all` and these studies; the run of one is `python -m studies NAME`, in another process."""
    found = click.Group("studies", commands=[run_all])
    for name, callback in callbacks.items():
        needs = ("no_such_module",) if name == "lacking" else ()
        found.add_command(StudyCommand(name, short="", headline=lambda _result: "", needs=needs, callback=callback))
    return found


def test_a_study_that_fails_does_not_end_the_others() -> None:
    found = group(unknown_study=lambda: None, lacking=lambda: None)  # the first one is not in `python -m studies`
    shown = CliRunner().invoke(found, ["all", "--short"])
    assert shown.exit_code == 1
    assert "unknown_study: failed" in shown.stdout
    assert "exit status 2" in shown.stdout
    assert "lacking: skipped: no_such_module cannot be imported" in shown.stdout
    assert "0 done, 1 failed, 1 skipped" in shown.stdout


def test_without_what_it_needs_a_study_is_skipped_and_says_so() -> None:
    shown = CliRunner().invoke(group(lacking=lambda: None), ["all"])
    assert shown.exit_code == 0
    assert "pip install" in shown.stdout


def test_torch_is_looked_for_in_the_interpreter_that_is_named(tmp_path: Path) -> None:
    command = StudyCommand("one", short="", headline=lambda _result: "", needs=("torch",))
    assert str(tmp_path / "python") in command.missing(str(tmp_path / "python"))


def test_the_summary_has_the_verdicts_of_the_claims() -> None:
    table = summary([StudyEnd("fpisa", "done", "figure", 61.2, 30.4), StudyEnd("dc2", "skipped", "no torch")])
    assert "**1 done, 0 failed, 1 skipped: 61 s, 30 s of CPU**" in table
    assert "| fpisa | done | 61 | 30 | in shape, not here | figure |" in table
    assert "| dc2 | skipped | 0 | 0 | not here | no torch |" in table


def test_only_the_studies_that_are_named_run(tmp_path: Path) -> None:
    shown = CliRunner().invoke(studies, ["all", "rdma", "--short", "--results", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert "rdma: done" in shown.stdout
    assert "million elements/s at most: 64 values 2,116, 248 values 2,783" in shown.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["rdma.json"]
    unknown = CliRunner().invoke(studies, ["all", "sorting"])
    assert unknown.exit_code == 2
    assert "sorting: there is no such study" in unknown.output
