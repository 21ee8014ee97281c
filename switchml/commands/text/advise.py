"""Text of advice on a program."""

from __future__ import annotations

from collections.abc import Iterator

from switchml.commands.advise import Advised
from switchml.commands.text.printing import Part, text
from switchml.commands.text.tables import table
from switchml.topologies.shaped_links import rate_text

__all__: list[str] = []


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
    choices = table("predicted", "step", "Gloo / this", "accuracy", right=("step", "Gloo / this"), wrap=("accuracy",))
    for number, choice in enumerate(advice.choices):
        name = f"with {choice.name}" if number > 1 else choice.name
        choices.add_row(name, _milliseconds(choice.seconds), f"{choice.gain:.2f}", choice.accuracy)
    yield choices
    _, plain, *options = advice.choices
    if plain.gain < 1 and not options:
        yield "Nothing here pays: stay with Gloo."
        return
    for choice in (plain, *options):
        yield f"{choice.name}, to write:"
        yield from (f"  {line}" for line in choice.lines)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms" if seconds < 10 else f"{seconds:.1f} s"


def _size(nbytes: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.1f} {name}"
    return f"{nbytes} bytes"
