"""The study of TACCL: a case that is searched in a second, and words that are not cases."""

from __future__ import annotations

import pytest

from studies.taccl.study import TacclOptions, cases, run
from switchml.benchmarks import report
from switchml.common.progress import Progress


def test_a_schedule_is_shorter_than_a_ring() -> None:
    pytest.importorskip("highspy", reason="needs the package highspy: pip install 'switchml[synthesis]'")
    result = run(TacclOptions(cases("all-gather:ndv2-1mb:ndv2-x2"), 60.0), lambda _line: None, Progress())
    [row] = result.rows
    assert row["proven"]
    assert row["relaxed"] <= row["makespan"] < row["ring"] == 15 * 107
    [table] = report.tables(result)
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert cells["proven"] == "yes"
    assert cells["around the switch / this"] == ""


@pytest.mark.parametrize("word", ["ndv2-1mb:ndv2-x2", "gather:ndv2-1mb:ndv2-x2", "all-to-all:ndv2-1mb:ndv2-x2"])
def test_other_words_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match="is not a case"):
        cases(word)
