"""Text of benchmark results."""

from __future__ import annotations

from collections.abc import Iterator

from switchml.benchmarks import report
from switchml.commands.bench import Figures
from switchml.commands.text.printing import Part, Verbatim, text
from switchml.commands.text.tables import table

__all__: list[str] = []


@text.register(Figures)
def _(figures: Figures) -> Iterator[Part]:
    tables = [shown for result in figures.results for shown in report.tables(result)]
    if figures.markdown:
        yield Verbatim("\n".join(report.markdown(shown) for shown in tables) + "\n")
        return
    for shown in tables:
        made = table(*shown.columns, title=shown.title, right=shown.columns[1:])
        for row in shown.rows:
            made.add_row(*row)
        yield made
        yield from shown.remarks
