"""The report of the differential test: a difference of two switches, or a switch that has not answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptf_tests.differential import run
from ptf_tests.differential.pair import OTHERS, Difference, NoAnswer, Pair
from ptf_tests.differential.sequence import Sequence


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Difference("step 3: other frames came out"), "the switches differ"),
        (NoAnswer("a switch does not answer: markers were not seen"), "a switch has not answered in time"),
    ],
)
def test_a_switch_that_does_not_answer_is_not_called_different(
    error: BaseException, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = run._Run(Pair(tmp_path, 64, next(iter(OTHERS.values()))), "bmv2")
    of.failing = Sequence(values=64, steps=())
    run._report(error, of, tmp_path, 7)
    report = capsys.readouterr().err
    assert report.startswith(f"{said}")
    assert str(error) in report
    assert ("differ (seed" in report) == isinstance(error, Difference)
    assert (tmp_path / "sequence.json").exists()
