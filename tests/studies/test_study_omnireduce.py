"""The table of the study of OmniReduce."""

from studies.omnireduce.study import GRADIENTS
from switchml.benchmarks import report
from switchml.benchmarks.results import BenchmarkResult
from switchml.benchmarks.sparse import SparseOptions
from switchml.benchmarks.sparse_rows import SparseRow


def test_the_table_names_the_models() -> None:
    chosen = SparseOptions([2], 1 << 18, [64], list(GRADIENTS.values()), ["random"], 256, ["shm"], [], 1, 1, "python3")
    row = SparseRow("shm", 2, 64, 1 << 18, 0.16, "random", 0.3, 1, 0.01, 0.002, 5.0, 16, 16, 30, 30, 100, True, {}, {})
    [table] = report.tables(BenchmarkResult.of("omnireduce", chosen, [row]))
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert (cells["blocks with values"], cells["at any rank"], cells["dense / sparse"]) == ("16 % NCF", "30 %", "5.00")
