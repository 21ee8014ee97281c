"""The rows and the table of the study of urgent jobs."""

import pytest

from studies.urgent import measurement
from switchml.benchmarks import report
from switchml.benchmarks.results import BenchmarkResult
from switchml.topologies.shaped_links import rate_text

MIB = 1 << 20
RATE = 8 * MIB  # a MiB takes a second


def urgent_turn(
    alone: bool, *seconds: float, rate: int = RATE, ended_first: int = 0, drops: int = 0
) -> measurement.UrgentTurn:
    system = "udp" if rate else "shm"
    return measurement.UrgentTurn(system, rate, 0.4, 4, alone, seconds, ended_first, packets=99, drops=drops)


def test_an_urgent_call_is_compared_with_itself_alone() -> None:
    turns = [urgent_turn(True, 1.0, 1.2), urgent_turn(False, 2.0, 1.4, drops=1), urgent_turn(True, 1.1)]
    turns += [urgent_turn(True, 0.1, rate=0), urgent_turn(False, 0.2, rate=0, ended_first=1)]
    links_row, memory_row = measurement.summarize(turns, MIB)
    assert (links_row.alone, links_row.calls) == (1.1, 2)
    assert links_row.behind == pytest.approx(1.7)
    assert links_row.ratio == pytest.approx(1.7 / 1.1)
    assert links_row.bound == pytest.approx(1.0)
    assert links_row.dropped == pytest.approx(1 / (3 * 99 + 1))
    assert (memory_row.system, memory_row.bound) == ("shm", 0.0)
    assert memory_row.ratio == pytest.approx(2.0)
    assert (links_row.ended_first, memory_row.ended_first) == (0, 1)
    chosen = measurement.UrgentOptions([RATE], [0.4], [4], 64 * MIB, MIB, 2, 2)
    result = BenchmarkResult.of("urgent", chosen, [links_row, memory_row])
    [table] = report.TABLES["urgent"](result)
    assert table.title == "Urgent all-reduce of 1 MiB, alone and behind 64 MiB of priority 0: medians"
    assert [row[0] for row in table.rows] == [rate_text(RATE), "shared memory"]
    assert table.rows[0][5] == "1.55"
