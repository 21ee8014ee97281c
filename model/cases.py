"""The cases to check: which model, its size, and the outcome expected of SPIN."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CASES", "DEADLOCK", "HOLDS", "STARVATION", "Case"]

HOLDS = "holds"
"""The outcome of a case without a counter-example."""

DEADLOCK = "deadlock"
"""No process can continue, and not all have finished: SPIN calls it an invalid end state."""

STARVATION = "starvation"
"""An infinite run in which not all processes finish: SPIN calls it an acceptance cycle."""


@dataclass(frozen=True)
class Case:
    """One run of SPIN.

    ``model`` is the name of a file in this folder, without extension. ``phases`` is the number of phases of a slot in
    one epoch, with sparse calls the largest one; in ``window`` each chunk has a separate slot. ``variant`` lists macros
    that change the model. ``expected`` is HOLDS, DEADLOCK, STARVATION or the name of a violated property; with a name,
    no other property is checked. A ``witness`` is not a fault but an example run. ``progress`` includes the property
    `stuck`, which is slow to check. ``short`` cases are part of the short form. ``picture`` is the file name, without
    extension, of the drawing of the shortest trace.
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
        """True if the property is about whole runs (LTL) rather than states."""
        return self.model == "liveness"

    @property
    def definitions(self) -> tuple[str, ...]:
        """The macros for SPIN's preprocessor."""
        sizes = (f"WORKERS={self.workers}", f"SLOTS={self.slots}", f"PHASES={self.phases}")
        only = () if self.expected in (HOLDS, DEADLOCK, STARVATION) else (f"ONLY={self.expected}",)
        without = () if self.progress and self.expected in (HOLDS, "stuck") else ("NO_PROGRESS_CHECK",)
        return (*sizes, *self.variant, *only, *without)


CASES = (
    # One epoch.
    Case("this protocol", "aggregation", 2, 2, 4, short=True),
    Case("this protocol", "aggregation", 3, 2, 3, short=True),
    Case("this protocol", "aggregation", 3, 2, 5),
    Case("this protocol", "aggregation", 4, 2, 3),
    Case("this protocol, LTL", "liveness", 2, 1, 3, short=True),
    Case("this protocol, LTL", "liveness", 3, 1, 2),
    # The mechanisms on which correctness depends.
    Case("this protocol, one half", "aggregation", 2, 1, 4, ("ONE_HALF",), "overwritten", short=True),
    Case("this protocol, nothing resent", "aggregation", 2, 1, 4, ("NO_RESEND",), "stuck", short=True),
    Case("this protocol, nothing resent, LTL", "liveness", 2, 1, 2, ("NO_RESEND",), STARVATION, short=True),
    # Not every contribution has values: of two workers, both have some in phase 0, then one, then the other.
    Case("values of some", "aggregation", 2, 2, 4, ("OWNERS=39",), short=True),
    Case("values of some", "aggregation", 3, 2, 3, ("OWNERS=143",), short=True),
    Case("values of some, recirculation", "aggregation", 2, 1, 4, ("OWNERS=39", "RECIRCULATION")),
    Case("values of some, epoch change", "epoch_change", 3, 1, 2, ("OWNERS=15",)),
    Case(
        *("values of some, first packet overwrites", "aggregation", 2, 1, 4, ("OWNERS=39", "VALUES_ADD"), "wrong_sum"),
        short=True,
    ),
    Case(
        *("values of some, trigger's kind", "aggregation", 2, 1, 4, ("OWNERS=39", "KIND_OF_TRIGGER"), "wrong_kind"),
        short=True,
    ),
    # Sparse calls: BLOCKS is the number of blocks of a position, and every rank owns any of them.
    Case("sparse", "aggregation", 2, 1, 3, ("BLOCKS=2",), short=True),
    Case("sparse", "aggregation", 2, 1, 5, ("BLOCKS=4",), short=True),
    Case("sparse", "aggregation", 2, 2, 3, ("BLOCKS=2",)),
    Case("sparse", "aggregation", 3, 1, 3, ("BLOCKS=2",), short=True),
    Case("sparse", "aggregation", 3, 1, 4, ("BLOCKS=3",)),
    Case("sparse, two calls", "aggregation", 2, 1, 4, ("BLOCKS=1",), short=True),
    Case("sparse, two calls", "aggregation", 2, 2, 4, ("BLOCKS=1",)),
    Case("sparse, dense, sparse", "aggregation", 2, 1, 5, ("BLOCKS=1", "DENSE_CALL=1"), short=True),
    Case("sparse, LTL", "liveness", 2, 1, 3, ("BLOCKS=2",)),
    Case("sparse, recirculation", "aggregation", 2, 1, 3, ("BLOCKS=2", "RECIRCULATION"), short=True),
    Case("sparse, recirculation", "aggregation", 2, 1, 4, ("BLOCKS=3", "RECIRCULATION")),
    Case("sparse, epoch change", "epoch_change", 2, 1, 3, ("BLOCKS=2",), short=True),
    Case("sparse, epoch change", "epoch_change", 3, 1, 2, ("BLOCKS=1",)),
    Case("sparse, epoch change", "epoch_change", 3, 1, 3, ("BLOCKS=2",)),
    Case(
        *("sparse, recirculation, epoch change", "epoch_change", 2, 1, 2),
        *(("BLOCKS=1", "RECIRCULATION", "ONLY=wrong_sum"),),
        progress=False,
    ),
    Case("sparse, chunk kept", "aggregation", 2, 1, 4, ("BLOCKS=3", "CHUNK_KEPT"), "wrong_chunk", short=True),
    Case("sparse, late chunk", "aggregation", 2, 1, 4, ("BLOCKS=3", "CHUNK_OF_LATE"), "wrong_chunk", short=True),
    Case(
        *("sparse, trigger's chunk", "aggregation", 2, 1, 4, ("BLOCKS=3", "CHUNK_OF_TRIGGER"), "wrong_chunk"),
        short=True,
    ),
    Case(
        *("sparse, first packet overwrites", "aggregation", 2, 1, 4, ("BLOCKS=3", "VALUES_ADD"), "wrong_sum"),
        short=True,
    ),
    Case("sparse, trigger's kind", "aggregation", 2, 1, 4, ("BLOCKS=3", "KIND_OF_TRIGGER"), "wrong_kind", short=True),
    # The published protocol.
    Case("published", "aggregation", 2, 1, 4, ("ONE_BIT",), "wrong_sum", short=True, picture="protocol-published"),
    Case("published", "aggregation", 3, 2, 4, ("ONE_BIT",), "wrong_sum", short=True),
    Case("published", "aggregation", 2, 1, 3, ("ONE_BIT",), "stuck", short=True),
    Case("published, FIFO", "aggregation", 2, 2, 4, ("ONE_BIT", "FIFO"), short=True),
    Case("published, FIFO", "aggregation", 3, 2, 4, ("ONE_BIT", "FIFO")),
    Case(
        "this protocol, same schedule",
        "aggregation",
        2,
        1,
        2,
        ("WITNESS",),
        "witness",
        short=True,
        picture="protocol-correct",
    ),
    # Epoch change.
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
    # Tofino: a RESULT with values is recirculated.
    Case("recirculation", "aggregation", 2, 1, 4, ("RECIRCULATION",), short=True),
    Case("recirculation", "aggregation", 3, 1, 3, ("RECIRCULATION",)),
    Case(
        *("recirculation, mixed RESULT", "aggregation", 2, 1, 3, ("RECIRCULATION",), "mixed"),
        short=True,
        picture="protocol-recirculation",
    ),
    Case("recirculation, epoch change", "epoch_change", 2, 1, 2, ("RECIRCULATION", "ONLY=wrong_sum"), progress=False),
    Case(
        *("recirculation, epoch change, lost worker", "epoch_change", 2, 1, 2, ("RECIRCULATION",), "wrong_sum_at_lost"),
        short=True,
    ),
    # Trees of switches: PER_LEAF workers are below each leaf; a CHAIN has three levels.
    Case("tree", "aggregation", 2, 1, 4, ("TREE", "PER_LEAF=1"), short=True),
    Case("tree", "aggregation", 3, 1, 3, ("TREE", "PER_LEAF=2"), short=True),
    Case("tree", "aggregation", 3, 1, 2, ("TREE", "PER_LEAF=1"), short=True),
    Case("tree", "aggregation", 4, 1, 2, ("TREE", "PER_LEAF=2"), short=True),
    Case("tree", "aggregation", 2, 2, 3, ("TREE", "PER_LEAF=1")),
    Case("tree of three levels", "aggregation", 3, 1, 3, ("TREE", "CHAIN"), short=True),
    Case("tree, values of some", "aggregation", 2, 1, 4, ("TREE", "PER_LEAF=1", "OWNERS=39"), short=True),
    Case("tree, values of some", "aggregation", 3, 1, 3, ("TREE", "PER_LEAF=2", "OWNERS=143"), short=True),
    Case("tree, sparse", "aggregation", 2, 1, 3, ("TREE", "PER_LEAF=1", "BLOCKS=2"), short=True),
    Case("tree, sparse", "aggregation", 3, 1, 3, ("TREE", "PER_LEAF=2", "BLOCKS=2")),
    Case("tree, epoch change", "epoch_change", 2, 1, 2, ("TREE", "PER_LEAF=1")),
    Case("tree, epoch change", "epoch_change", 3, 1, 1, ("TREE", "PER_LEAF=2")),
    Case("tree, values of some, epoch change", "epoch_change", 2, 1, 2, ("TREE", "PER_LEAF=1", "OWNERS=7")),
    Case("tree, sparse, epoch change", "epoch_change", 2, 1, 2, ("TREE", "PER_LEAF=1", "BLOCKS=1")),
    Case("tree, no FINAL", "aggregation", 2, 1, 4, ("TREE", "PER_LEAF=1", "NO_FINAL"), "wrong_sum", short=True),
    Case("tree, sent on once", "aggregation", 2, 1, 4, ("TREE", "PER_LEAF=1", "FORWARD_ONCE"), "stuck", short=True),
    Case(
        *("tree, parent's values added", "aggregation", 2, 1, 4, ("TREE", "PER_LEAF=1", "FINAL_ADDS"), "wrong_sum"),
        short=True,
    ),
    Case(
        *("tree, values of some, leaf's kind", "aggregation", 2, 1, 4),
        *(("TREE", "PER_LEAF=1", "OWNERS=39", "FINAL_KEEPS_KIND"), "wrong_kind"),
        short=True,
    ),
    Case("tree, epoch change, told early", "epoch_change", 3, 1, 1, ("TREE", "PER_LEAF=1", "EARLY"), "stuck"),
    # The definition of a worker's window.
    Case("window: a stretch", "window", 2, 3, 2, short=True),
    Case("window: packets", "window", 2, 3, 2, ("PACKETS",), DEADLOCK, short=True),
    # How a training process sleeps: here the workers are the threads that wake it.
    Case("sleep", "sleep", 2, 1, 4, short=True),
    Case("sleep", "sleep", 3, 1, 3),
    Case("sleep, announced first", "sleep", 2, 1, 2, ("ANNOUNCED_FIRST",), DEADLOCK, short=True),
)
