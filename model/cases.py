"""What is checked: which model, how large, and what SPIN must find."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CASES", "Case", "HOLDS"]

HOLDS = "holds"
"""Expected of every case that has no counter-example."""


@dataclass(frozen=True)
class Case:
    """One run of SPIN.

    ``source`` is a file of this folder; ``phases`` counts those of a slot in one epoch (0: not a matter of this model).
    ``variant`` names the macros that make the model another one. ``expected`` is HOLDS or the property that must be seen
    violated; then no other property is asserted. With ``witness`` that is no fault but a run to look at. ``short``: part of
    the short form. ``picture``: name of the drawing that is made of the shortest trace.
    """

    title: str
    source: str
    workers: int
    slots: int
    phases: int
    variant: tuple[str, ...] = ()
    expected: str = HOLDS
    temporal: bool = False
    progress: bool = True
    witness: bool = False
    short: bool = False
    picture: str = ""

    @property
    def definitions(self) -> tuple[str, ...]:
        """The macros that SPIN's preprocessor gets."""
        sizes = [f"WORKERS={self.workers}", f"SLOTS={self.slots}", f"PHASES={self.phases}"]
        only = [] if self.expected in (HOLDS, "deadlock", "starvation") else [f"ONLY={self.expected}"]
        checked = self.progress and self.expected in (HOLDS, "stuck")
        return (*sizes, *self.variant, *only, *([] if checked else ["NO_PROGRESS_CHECK"]))


def _aggregation(title: str, workers: int, slots: int, phases: int, *variant: str, **others: object) -> Case:
    return Case(title, "aggregation.pml", workers, slots, phases, variant, **others)  # type: ignore[arg-type]


def _epoch_change(title: str, workers: int, slots: int, phases: int, *variant: str, **others: object) -> Case:
    return Case(title, "epoch_change.pml", workers, slots, phases, variant, **others)  # type: ignore[arg-type]


def _liveness(title: str, workers: int, slots: int, phases: int, *variant: str, **others: object) -> Case:
    return Case(title, "liveness.pml", workers, slots, phases, variant, temporal=True, **others)  # type: ignore[arg-type]


def _window(title: str, workers: int, *variant: str, **others: object) -> Case:
    return Case(title, "window.pml", workers, 3, 2, variant, **others)  # type: ignore[arg-type]


CASES = (
    _aggregation("ours", 2, 2, 4, short=True),
    _aggregation("ours", 3, 2, 3, short=True),
    _aggregation("ours", 3, 2, 5),
    _aggregation("ours", 4, 1, 5),
    _aggregation("ours, one half", 2, 1, 4, "ONE_HALF", expected="overwritten", short=True),
    _aggregation("ours, nothing resent", 2, 1, 4, "NO_RESEND", expected="stuck", short=True),
    _aggregation("published", 2, 1, 4, "ONE_BIT", expected="wrong_sum", short=True, picture="late-duplicate-published"),
    _aggregation("published", 3, 2, 4, "ONE_BIT", expected="wrong_sum", short=True),
    _aggregation("published", 2, 1, 4, "ONE_BIT", expected="stuck", short=True),
    _aggregation("published, FIFO", 2, 2, 4, "ONE_BIT", "FIFO", short=True),
    _aggregation("published, FIFO", 3, 2, 4, "ONE_BIT", "FIFO"),
    _aggregation(
        *("ours, that schedule", 2, 1, 2, "WITNESS"),
        **{"expected": "witness", "witness": True, "short": True, "picture": "late-duplicate-ours"},
    ),
    _aggregation("two passes", 2, 1, 4, "TWO_PASSES", progress=False, short=True),
    _aggregation("two passes", 2, 1, 3, "TWO_PASSES", short=True),
    _aggregation("two passes", 3, 1, 3, "TWO_PASSES", progress=False),
    _aggregation("two passes", 2, 2, 3, "TWO_PASSES", progress=False),
    _aggregation(
        *("two passes, mixed RESULT", 2, 1, 3, "TWO_PASSES"),
        **{"expected": "mixed", "witness": True, "short": True, "picture": "two-passes"},
    ),
    _epoch_change("epoch change", 2, 1, 2, short=True),
    _epoch_change("epoch change", 3, 1, 2, short=True),
    _epoch_change("epoch change", 2, 2, 2),
    _epoch_change("epoch change", 3, 1, 3),
    _epoch_change(
        *("epoch change, not quiesced", 3, 1, 1, "NO_QUIESCE"),
        **{"expected": "disagreement", "short": True, "picture": "epoch-change-not-quiesced"},
    ),
    _epoch_change("epoch change, not frozen", 3, 1, 1, "NO_FREEZE", expected="disagreement", short=True),
    _epoch_change("epoch change, told early", 3, 1, 2, "EARLY", expected="stuck", short=True),
    _epoch_change(
        *("epoch change, quiesced", 3, 1, 1, "WITNESS"),
        **{"expected": "witness", "witness": True, "short": True, "picture": "epoch-change-quiesced"},
    ),
    _epoch_change("epoch change, two passes: members", 2, 1, 2, "TWO_PASSES", "ONLY=wrong_sum", progress=False, short=True),
    _epoch_change("epoch change, two passes: the lost", 2, 1, 2, "TWO_PASSES", expected="wrong_sum_at_lost", short=True),
    _liveness("ours, LTL", 2, 1, 3, short=True),
    _liveness("ours, LTL", 3, 1, 2),
    _liveness("ours, LTL, nothing resent", 2, 1, 2, "NO_RESEND", expected="starvation", short=True),
    _window("window: a stretch", 2, short=True),
    _window("window: packets", 2, "PACKETS", expected="deadlock", short=True),
    _window("window: packets", 3, "PACKETS", expected="deadlock"),
)
