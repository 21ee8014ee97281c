"""The Promela model decides like the P4 program, and its documentation states the figures that SPIN reports."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from model.cases import CASES, DEADLOCK, HOLDS, STARVATION, Case
from model.drawing import draw
from model.run import table
from model.spin import Event, Outcome, SpinError, missing_tools, parse_report, parse_trace, run
from switchml.dataplane.constants import Verdict

ROOT = Path(__file__).parents[2]
COMMON = ROOT / "dataplane" / "p4" / "common"
MODEL = ROOT / "model"
PHASE_PREDICATES = ("PHASE_STALE", "PHASE_SAME", "PHASE_NEWER")
PUBLISHED = next(case for case in CASES if case.picture == "protocol-published")
needs_spin = pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))

# All combinations of phase predicate, seen and full.
Situation = tuple[str, bool, bool]
SITUATIONS: list[Situation] = list(itertools.product(PHASE_PREDICATES, (False, True), (False, True)))


def decisions_of_p4(source: str, full_below: bool = False) -> dict[Situation, str]:
    """Return the verdict of each situation by decision_table, which is that of the first matching entry.

    With ``full_below`` only the RESULT of the switch's parent is missing.
    """
    # Every entry begins with the conditions under which the table is applied.
    entry = r"^\s*\(1, VERDICT_NONE, (PHASE_\w+), (\w), (\w), (\w)\): \w+\((VERDICT_\w+)"
    entries = re.findall(entry, source, re.MULTILINE)
    assert len(entries) == len(re.findall(r"^\s*\(1, VERDICT_NONE", source, re.MULTILINE)) == 12
    return {situation: _first_match(entries, situation, full_below) for situation in SITUATIONS}


def _first_match(entries: list[tuple[str, ...]], situation: Situation, full_below: bool) -> str:
    predicate, *conditions = (*situation, full_below)
    wanted = [("_", str(int(condition))) for condition in conditions]
    return next(
        verdict
        for of_predicate, *columns, verdict in entries
        if of_predicate == predicate and all(column in values for column, values in zip(columns, wanted, strict=True))
    )


def decisions_of_model(source: str) -> dict[Situation, str]:
    """Return the verdict of each situation by decide(), in which exactly one guard must hold."""
    rows = re.findall(r"^\s*:: (phase_predicate.*?)\s*-> verdict = (VERDICT_\w+)$", source, re.MULTILINE)
    assert len(rows) == source.count("::") == 7
    decisions = {}
    for predicate, seen, full in SITUATIONS:
        holds = {f"phase_predicate == {predicate}", "seen" if seen else "!seen", "complete" if full else "!complete"}
        verdicts = [verdict for guard, verdict in rows if set(guard.split(" && ")) <= holds]
        assert len(verdicts) == 1, (predicate, seen, full)
        decisions[predicate, seen, full] = verdicts[0]
    return decisions


def test_the_model_decides_as_the_p4_program_does() -> None:
    p4 = decisions_of_p4((COMMON / "slot_decision.p4").read_text(encoding="utf-8"))
    model = decisions_of_model((MODEL / "decision.pml").read_text(encoding="utf-8"))
    assert model == p4


def test_a_switch_forwards_what_the_model_forwards() -> None:
    tree = (MODEL / "tree.pml").read_text(encoding="utf-8")
    assert "#define FORWARDS ((verdict == VERDICT_AGGREGATED || verdict == VERDICT_DUPLICATE) && IS_FULL_BELOW)" in tree
    source = (COMMON / "slot_decision.p4").read_text(encoding="utf-8")
    without, below = decisions_of_p4(source), decisions_of_p4(source, full_below=True)
    for situation in SITUATIONS:
        if situation[2]:
            continue  # not full and full below at a time
        forwards = without[situation] in ("VERDICT_AGGREGATED", "VERDICT_DUPLICATE")
        assert below[situation] == ("VERDICT_FORWARDED" if forwards else without[situation])


def test_a_changed_decision_is_noticed() -> None:
    source = (MODEL / "decision.pml").read_text(encoding="utf-8")
    assert "VERDICT_RESENT\n    :: " in source
    changed = source.replace("VERDICT_RESENT\n    :: ", "VERDICT_DUPLICATE\n    :: ")
    assert decisions_of_model(changed) != decisions_of_p4((COMMON / "slot_decision.p4").read_text(encoding="utf-8"))


def test_the_model_has_the_constants_of_the_p4_program() -> None:
    defined = re.findall(r"#define (\w+) (\d+)$", (MODEL / "decision.pml").read_text(encoding="utf-8"), re.MULTILINE)
    numbers = {name: int(number) for name, number in defined}
    types = (COMMON / "types.p4").read_text(encoding="utf-8")
    expected = {f"VERDICT_{verdict.name}": int(verdict) for verdict in Verdict}
    for predicate in PHASE_PREDICATES:
        found = re.search(rf"const phase_predicate_t {predicate} = (\d+);", types)
        assert found is not None
        expected[predicate] = int(found[1])
    assert numbers == expected


def test_every_file_of_the_model_is_used() -> None:
    used = {f"{case.model}.pml" for case in CASES}
    for path in MODEL.glob("*.pml"):
        used |= set(re.findall(r'#include "(.*)"', path.read_text(encoding="utf-8")))
    assert used == {path.name for path in MODEL.glob("*.pml")}


def test_the_documentation_has_the_table_of_these_cases() -> None:
    document = (ROOT / "docs" / "understand" / "correctness.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in row.strip("|").split("|")] for row in re.findall(r"^\| .* s +\|.*$", document, re.M)
    ]
    said = [(row[0], *map(int, row[1:4]), row[7], row[8]) for row in rows]
    expected = [(c.title, c.workers, c.slots, c.phases, c.expected.replace("_", " ")) for c in CASES]
    assert said == [(*case, case[-1]) for case in expected]
    for case in CASES:
        assert not case.picture or f"({case.picture}.svg)" in document


def test_report_and_trace() -> None:
    report = "State-vector 52 byte, depth reached 36, errors: 2\n      105 states, stored\n      699 states, matched\n"
    assert parse_report(report) == (105, 36, 2)
    assert parse_report(report.replace("105", "1.5e+06"))[0] == 1_500_000
    with pytest.raises(SpinError, match="does not say how many"):
        parse_report("pan: out of memory")
    trace = parse_trace("noise\n   @begin slot=0 worker=1\n@violation what=wrong_sum\n@begin slot=1 worker=1\n")
    assert trace == (Event("begin", {"slot": 0, "worker": 1}), Event("wrong_sum", {}))


def test_table() -> None:
    lines = table([Outcome(PUBLISHED, "wrong_sum", 12345, 21, 0.25, ())]).splitlines()
    assert [cell.strip() for cell in lines[2].strip("|").split("|")] == [
        *("published", "2", "1", "4", "12,345", "21", "0.2 s", "wrong sum", "wrong sum")
    ]
    assert len({len(line) for line in lines}) == 1


@needs_spin
@pytest.mark.parametrize(
    "case",
    [
        Case("ours", "aggregation", 2, 1, 3),
        Case("nothing resent", "aggregation", 2, 1, 3, ("NO_RESEND",), "stuck"),
        Case("sparse", "aggregation", 2, 1, 3, ("BLOCKS=2",)),
        Case("sparse, chunk kept", "aggregation", 2, 1, 3, ("BLOCKS=2", "CHUNK_KEPT"), "wrong_chunk"),
        Case("nothing resent, LTL", "liveness", 2, 1, 2, ("NO_RESEND",), STARVATION),
        Case("packets", "window", 2, 3, 2, ("PACKETS",), DEADLOCK),
    ],
    ids=lambda case: case.title,
)
def test_spin_finds_what_is_there(case: Case) -> None:
    outcome = run(case)
    assert outcome.result == case.expected
    assert (outcome.trace == ()) == (case.expected == HOLDS)


@needs_spin
def test_a_picture_is_that_of_its_trace(tmp_path: Path) -> None:
    draw(PUBLISHED, run(PUBLISHED).trace, tmp_path / "picture.svg")
    checked_in = ROOT / "docs" / f"{PUBLISHED.picture}.svg"
    assert (tmp_path / "picture.svg").read_text() == checked_in.read_text(), "run python -m model.run --pictures docs"
