"""Text of synthesized schedules."""

from __future__ import annotations

from collections.abc import Iterator

from switchml.commands.synthesize import Synthesized
from switchml.commands.text.printing import Part, text
from switchml.commands.text.tables import table

__all__: list[str] = []


@text.register(Synthesized)
def _(result: Synthesized) -> Iterator[Part]:
    found = result.synthesis
    schedule = found.best.schedule
    columns = ("schedule", "makespan us", "relaxed us", "bound us", "proven", "sends")
    shown = table(
        *columns, title=f"{schedule.collective} of {schedule.ranks} ranks, {found.network.name}", right=columns[1:]
    )
    for one in found.candidates:
        name = (
            "through the switch"
            if one.through_switch
            else "over links"
            if len(found.candidates) == 1
            else "around the switch"
        )
        figures = (f"{figure:.6g}" for figure in (one.makespan, one.relaxed, one.bound))
        shown.add_row(name, *figures, "yes" if one.proven else "no", str(len(one.schedule.sends)))
    if found.ring is not None:
        shown.add_row("a ring, at least", f"{found.ring:.6g}", "", "", "", "")
    yield shown
    if found.verdict:
        yield found.verdict
