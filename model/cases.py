"""What is checked: which model, how large, and what SPIN must find."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CASES", "DEADLOCK", "HOLDS", "STARVATION", "Case"]

HOLDS = "holds"
"""Expected of a case that has no counter-example."""

DEADLOCK = "deadlock"
"""Nobody can go on, and not everybody has finished: SPIN calls it an invalid end state."""

STARVATION = "starvation"
"""A run for ever in which not everybody finishes: SPIN calls it an acceptance cycle."""


@dataclass(frozen=True)
class Case:
    """One run of SPIN.

    ``model`` is a file of this folder, without its ending; ``phases`` counts those of a slot in one epoch; in
    ``window`` each chunk has a slot of its own. ``variant`` names the macros that make the model another one.
    ``expected`` is HOLDS or what must be found: the name of a property, and then no other is asserted, DEADLOCK or
    STARVATION. A ``witness`` is no fault but a run to look at. ``progress``: with the property `stuck`, which costs
    time. ``short``: part of the short form. ``picture``: file name, without its ending, of the drawing that is made
    of the shortest trace.
    """

    title: str
    model: str
    workers: int
    slots: int
    phases: int
    variant: tuple[str, ...] = ()
    expected: str = HOLDS
    progress: bool = True
    short: bool = False
    picture: str = ""

    @property
    def temporal(self) -> bool:
        """Whether the property is one of whole runs (LTL) and not of states."""
        return self.model == "liveness"

    @property
    def definitions(self) -> tuple[str, ...]:
        """The macros that SPIN's preprocessor gets."""
        sizes = (f"WORKERS={self.workers}", f"SLOTS={self.slots}", f"PHASES={self.phases}")
        only = () if self.expected in (HOLDS, DEADLOCK, STARVATION) else (f"ONLY={self.expected}",)
        without = () if self.progress and self.expected in (HOLDS, "stuck") else ("NO_PROGRESS_CHECK",)
        return (*sizes, *self.variant, *only, *without)


CASES = (
    # One epoch.
    Case("ours", "aggregation", 2, 2, 4, short=True),
    Case("ours", "aggregation", 3, 2, 3, short=True),
    Case("ours", "aggregation", 3, 2, 5),
    Case("ours", "aggregation", 4, 2, 3),
    Case("ours, LTL", "liveness", 2, 1, 3, short=True),
    Case("ours, LTL", "liveness", 3, 1, 2),
    # What it is that makes it work.
    Case("ours, one half", "aggregation", 2, 1, 4, ("ONE_HALF",), "overwritten", short=True),
    Case("ours, nothing resent", "aggregation", 2, 1, 4, ("NO_RESEND",), "stuck", short=True),
    Case("ours, nothing resent, LTL", "liveness", 2, 1, 2, ("NO_RESEND",), STARVATION, short=True),
    # Not every contribution has values: of two workers both in phase 0, the first in phase 1, the second in phase 2.
    Case("values of some", "aggregation", 2, 2, 4, ("OWNERS=39",), short=True),
    Case("values of some", "aggregation", 3, 2, 3, ("OWNERS=143",), short=True),
    Case("values of some, two passes", "aggregation", 2, 1, 4, ("OWNERS=39", "TWO_PASSES")),
    Case("values of some, epoch change", "epoch_change", 3, 1, 2, ("OWNERS=15",)),
    Case(
        *("values of some, first packet overwrites", "aggregation", 2, 1, 4, ("OWNERS=39", "VALUES_ADD"), "wrong_sum"),
        short=True,
    ),
    Case(
        *("values of some, kind of the trigger", "aggregation", 2, 1, 4, ("OWNERS=39", "KIND_OF_TRIGGER"), "wrong_sum"),
        short=True,
    ),
    # The published protocol.
    Case("published", "aggregation", 2, 1, 4, ("ONE_BIT",), "wrong_sum", short=True, picture="protocol-published"),
    Case("published", "aggregation", 3, 2, 4, ("ONE_BIT",), "wrong_sum", short=True),
    Case("published", "aggregation", 2, 1, 3, ("ONE_BIT",), "stuck", short=True),
    Case("published, FIFO", "aggregation", 2, 2, 4, ("ONE_BIT", "FIFO"), short=True),
    Case("published, FIFO", "aggregation", 3, 2, 4, ("ONE_BIT", "FIFO")),
    Case("ours, that schedule", "aggregation", 2, 1, 2, ("WITNESS",), "witness", short=True, picture="protocol-ours"),
    # Change of epoch.
    Case("epoch change", "epoch_change", 2, 1, 2, short=True),
    Case("epoch change", "epoch_change", 3, 1, 2, short=True),
    Case("epoch change", "epoch_change", 3, 1, 3),
    Case("epoch change", "epoch_change", 2, 2, 2),
    Case("epoch change", "epoch_change", 3, 2, 1),
    Case(
        *("epoch change, not quiesced", "epoch_change", 3, 1, 1, ("NO_QUIESCE",), "disagreement"),
        short=True,
        picture="protocol-not-quiesced",
    ),
    Case(
        *("epoch change, quiesced", "epoch_change", 3, 1, 1, ("WITNESS",), "witness"),
        short=True,
        picture="protocol-quiesced",
    ),
    Case("epoch change, not frozen", "epoch_change", 3, 1, 1, ("NO_FREEZE",), "disagreement", short=True),
    Case("epoch change, told early", "epoch_change", 3, 1, 2, ("EARLY",), "stuck", short=True),
    # Tofino: a RESULT is read in two passes.
    Case("two passes", "aggregation", 2, 1, 4, ("TWO_PASSES",), short=True),
    Case("two passes", "aggregation", 3, 1, 3, ("TWO_PASSES",)),
    Case(
        *("two passes, mixed RESULT", "aggregation", 2, 1, 3, ("TWO_PASSES",), "mixed"),
        short=True,
        picture="protocol-two-passes",
    ),
    Case("two passes, epoch change", "epoch_change", 2, 1, 2, ("TWO_PASSES", "ONLY=wrong_sum"), progress=False),
    Case(
        *("two passes, epoch change, lost worker", "epoch_change", 2, 1, 2, ("TWO_PASSES",), "wrong_sum_at_lost"),
        short=True,
    ),
    # What a worker's window counts.
    Case("window: a stretch", "window", 2, 3, 2, short=True),
    Case("window: packets", "window", 2, 3, 2, ("PACKETS",), DEADLOCK, short=True),
)
