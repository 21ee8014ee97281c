"""Text of advice on a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from switchml.commands.advise import Advised
from switchml.commands.text.printing import Part, text
from switchml.commands.text.tables import FittedTable, table
from switchml.topologies.shaped_links import rate_text

if TYPE_CHECKING:
    from switchml.ops.advice import Choice

__all__: list[str] = []

_MUCH: Final = 0.3  # share of a step


@text.register(Advised)
def _(advised: Advised) -> Iterator[Part]:
    advice = advised.advice
    yield (
        f"A step makes {advice.calls} collectives with {_size(advice.bytes)} of values; the largest has "
        f"{_size(advice.largest)}."
    )
    yield (
        f"On this machine, with {advice.workers} ranks, it takes {_milliseconds(advice.gloo_here)} over Gloo and "
        f"{_milliseconds(advice.switch_here)} through a switch: {advice.gloo_here / advice.switch_here:.2f} times as "
        "fast."
    )
    yield (
        f"Over links of {rate_text(advice.rate)}, {advice.communicating:.0%} of a step over Gloo is communication that "
        f"nothing hides: without any it would be {advice.gloo / advice.computing:.2f} times as fast."
    )
    yield _table(advice.choices)
    _, plain, *options = advice.choices
    if plain.gain < 1 and not options:
        yield "Nothing here pays: stay with Gloo."
        return
    # An option has the same lines with and without a change of the program before it.
    names: dict[Sequence[str], str] = {}
    for choice in (plain, *options):
        names.setdefault(choice.lines, choice.name)
    for lines, name in names.items():
        yield f"{name}, to write:"
        yield from (f"  {line}" for line in lines)
    if advice.left > _MUCH:
        yield (
            f"Then {advice.left:.0%} of a step is still communication. docs/guides/compression.md describes methods "
            "that send less than 8 bits for a value, and what they cost."
        )


def _table(choices: Sequence[Choice]) -> FittedTable:
    baseline = choices[0].measured
    names = ["over links of this rate", "predicted", "Gloo / this"]
    measured = ["measured", "Gloo / that"] if baseline is not None else []
    made = table(*names, *measured, "accuracy", right=(*names[1:], *measured), wrap=("accuracy",))
    for number, choice in enumerate(choices):
        cells = [f"with {choice.name}" if number > 1 else choice.name]
        cells += [_milliseconds(choice.seconds), f"{choice.gain:.2f}"]
        if baseline is not None and choice.measured is not None:
            cells += [_milliseconds(choice.measured), f"{baseline / choice.measured:.2f}"]
        else:
            cells += ["" for _ in measured]
        made.add_row(*cells, choice.accuracy)
    return made


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms" if seconds < 10 else f"{seconds:.1f} s"


def _size(nbytes: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.1f} {name}"
    return f"{nbytes} bytes"
