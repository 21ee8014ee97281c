"""The blocks that a sparse sum takes for zero, its sums, and the bytes that each rank sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from harness import Fabric, load, require

_RANKS = 4

MISTAKES = [
    ("!= 0).any(axis=1)", ").sum(axis=1) != 0", "cancel"),
    ("    sent = summed(comm, has)", "    sent = 0", "not the sum"),
    ("    packed = rows[has > 0]", "    packed, has = rows.copy(), np.ones_like(has)", "bytes"),
    ("    rows[has > 0] = packed", "    rows[: len(packed)] = packed", "elements"),
]


def check(program: Path) -> None:
    """Check the blocks in this process, then a job."""
    pupil = load(program)
    _check_blocks(pupil)
    with Fabric("--values", str(pupil.BLOCK)) as fabric:
        done = fabric.succeeding(_RANKS, program)
    for place, density in enumerate(pupil.DENSITIES):
        of_ranks = [(pupil.gradient(rank, density).reshape(-1, pupil.BLOCK) != 0).any(axis=1) for rank in range(_RANKS)]
        any_has = int(np.any(of_ranks, axis=0).sum())
        for rank, has in enumerate(of_ranks):
            _check_rank(pupil, rank, done.ranks[rank]["results"][place], int(has.sum()), any_has)
        _print(done.ranks[0]["results"][place])


def _check_blocks(pupil: Any) -> None:
    x = np.zeros((5, pupil.BLOCK), np.float32)
    x[1, -1] = 1e-30
    x[2, :2] = 1, -1
    x[3, 7] = -2
    found = pupil.blocks_with_values(x.reshape(-1))
    require(
        getattr(found, "shape", None) == (5,),
        f"hole 1: blocks_with_values returned {found!r} for five blocks, where one bool for each of them is right",
    )
    require(
        bool(found[2]),
        "hole 1: a block with the values 1 and -1 is taken for a block of zeros: its values cancel in a sum, but they "
        "are not zero",
    )
    right = [False, True, True, True, False]
    require(found.tolist() == right, f"hole 1: blocks_with_values says {found.tolist()} where {right} is right")


def _check_rank(pupil: Any, rank: int, said: dict[str, Any], own: int, any_has: int) -> None:
    where = f"with {said['density']:.0%} of the blocks, rank {rank}"
    require(
        said["wrong"] == 0,
        f"hole 2: {where} has {said['wrong']} elements that are not the sum over all ranks: put the sums into the "
        "rows that they belong to, those that any rank has",
    )
    right = (any_has * pupil.BLOCK + pupil.BLOCKS) * 4
    require(
        said["your_bytes"] == right,
        f"hole 2: {where} has sent {said['your_bytes']} bytes, where {right} are right: {any_has} blocks that any "
        f"rank has, and 4 bytes for each of {pupil.BLOCKS} blocks to find them",
    )
    assert said["wrong_of_skip_zeros"] == 0, said
    assert said["skip_zeros_blocks"]["sent"] in (own, pupil.BLOCKS), (said, own)


def _print(said: dict[str, Any]) -> None:
    blocks = said["skip_zeros_blocks"]
    print(
        f"  {said['density']:.0%} of the blocks: rank 0 has sent {said['dense_bytes']} bytes in a dense sum, "
        f"{said['your_bytes']} in yours, {said['skip_zeros_bytes']} with skip_zeros=True, which has sent "
        f"{blocks['sent']} blocks and received {blocks['received']}"
    )
