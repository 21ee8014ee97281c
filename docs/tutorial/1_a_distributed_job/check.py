"""The sums of a ring, and the bytes on the busiest link of a parameter server, a ring and a switch."""

from __future__ import annotations

from pathlib import Path

from harness import load, require, torchrun

_RANKS = 4

MISTAKES = [
    (
        "parts[(link.rank - step - 1) % link.size].add_(got)",
        "parts[(link.rank - step) % link.size].add_(got)",
        "not the sum",
    ),
    ("].copy_(got)", "].add_(got)", "not the sum"),
    ('"ring": 2 * (ranks - 1) / ranks * nbytes', '"ring": 2 * nbytes', "a ring"),
    ('"server": (ranks - 1) * nbytes', '"server": nbytes', "a parameter server"),
]


def check(program: Path) -> None:
    """Check the ring on four ranks, then the formulas by the bytes that were counted there."""
    ranks = torchrun(_RANKS, program)
    pupil = load(program)
    nbytes = 4 * pupil.ELEMENTS
    for rank, said in ranks.items():
        wrong = said["ring"]["wrong"]
        parts = sorted({element * _RANKS // pupil.ELEMENTS for element in wrong})
        require(
            not wrong,
            f"hole 1: {len(wrong)} elements on rank {rank} are not the sum over all ranks, in the parts {parts} of "
            "its array",
        )
        sent, right = said["ring"]["sent"], 2 * (_RANKS - 1) * nbytes // _RANKS
        require(
            sent == right,
            f"hole 1: rank {rank} has sent {sent} bytes, where {right} are right: in each of {2 * (_RANKS - 1)} steps "
            f"one part, {nbytes // _RANKS} bytes",
        )
    counted = {way: max(said[way]["sent"] for said in ranks.values()) for way in ("server", "ring")}
    names = {"server": "a parameter server", "ring": "a ring", "switch": "a switch"}
    for way, sent in {**counted, "switch": nbytes}.items():
        said = pupil.busiest_link(way, _RANKS, nbytes)
        require(
            said == sent,
            f"hole 2: with {names[way]}, {_RANKS} ranks and {nbytes} bytes, the busiest link sends {sent} bytes; your "
            f"formula says {said}",
        )
        more = pupil.busiest_link(way, 64, 64_000)
        right = {"server": 63 * 64_000, "ring": 126_000, "switch": 64_000}[way]
        require(
            more == right, f"hole 2: with {names[way]}, 64 ranks and 64000 bytes, {right} are right; yours says {more}"
        )
    print(f"  bytes on the busiest link for a gradient of {nbytes}: {counted | {'switch': nbytes}}")
