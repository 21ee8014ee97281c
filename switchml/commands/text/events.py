"""Text of events."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rich.text import Text

from switchml.commands.events import Events
from switchml.commands.text.printing import Part, text
from switchml.controller.proto import events_pb2 as pb

__all__: list[str] = []

_STYLES = {"warning": "yellow", "error": "red"}


@text.register(Events)
def _(found: Events) -> Iterator[Part]:
    any_shown = False
    for event in found.events:
        any_shown = True
        yield _line(event)
    if not any_shown:
        yield "no events"


def _line(event: pb.Event) -> Text:
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.time))
    line = Text.assemble((f"{moment}.{int(event.time % 1 * 1000):03d}  ", "dim"))
    line.append(f"{event.kind:<20}", _STYLES.get(event.level, ""))
    about = []
    if event.job_key:
        about.append(f"job {event.job_name} (id {event.job}, epoch {event.epoch})")
    if event.HasField("rank"):
        about.append(f"rank {event.rank}")
    about += [f"{what} {name}" for what, name in (("agent", event.agent), ("switch", event.switch)) if name]
    line.append(" " + ", ".join(about))
    if event.detail:
        line.append(f": {event.detail}")
    if event.actor:
        line.append(f"  [{event.actor}]", "dim")
    return line
