"""Text of probes, and of the orders that follow from them."""

from __future__ import annotations

from collections.abc import Iterator

from switchml.commands.probe import Ordered, Probed
from switchml.commands.standard_streams import note
from switchml.commands.text.printing import Part, text
from switchml.commands.text.tables import table

__all__: list[str] = []


@text.register(Probed)
def _(probed: Probed) -> Iterator[Part]:
    matrix = probed.matrix
    names = [host.name for host in matrix.hosts]
    values, title = 1e6 * matrix.round_trips, "round trip, us"
    if matrix.rates is not None:
        values, title = 8e-6 * matrix.rates, "from, to: Mbit/s"
    made = table(title, *names, right=names)
    for row, name in enumerate(names):
        cells = [f"{value:,.0f}" if row != column else "" for column, value in enumerate(values[row])]
        made.add_row(name, *cells)
    yield made
    for name, reason in probed.left_out.items():
        yield f"{name} is left out: {reason}"
    yield f"{probed.file} has the matrix; `switchml-ctl order --for ring` orders hosts by it"


@text.register(Ordered)
def _(found: Ordered) -> Iterator[Part]:
    between = " " if found.purpose == "leaves" else "\n"
    for group in found.groups:
        yield between.join(map(found.name, group))
    said = ", ".join(f"{cost:,.3g} {found.unit} {name}" for name, cost in found.costs.items())
    note(f"{found.purpose}: {said}")
