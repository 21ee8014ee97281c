"""The rows of `bench sparse`: times of dense and sparse calls and of peers, and the blocks with values."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Final

import numpy as np

from switchml.benchmarks.figures import median_ratio
from switchml.benchmarks.turns import ELEMENT_BYTES, Turn
from switchml.benchmarks.workers.blocks import owners, packets_with_values

__all__ = ["GLOO", "PEER_METHODS", "BlockCounts", "SparseRow", "SparseTurn", "summarize"]

GLOO: Final = "gloo"
"""The system whose ranks run all peers."""

_MOST_WORDS: Final = 256  # of a block of a sparse call; docs/understand/protocol.md, "Large packets"

PEER_METHODS: Final = {"gloo": "dense", "allgather-sparse": "allgather-sparse"}
"""The methods (of METHODS) of the peers of SPARSE_PEERS."""


@dataclasses.dataclass(frozen=True)
class BlockCounts:
    """The blocks with values that a rank has sent and received in a call (`Work.blocks`), and all of the tensor.

    `sparse` is 1, or 0 if the call was made as a dense one.
    """

    sent: int
    received: int
    all: int
    sparse: int


@dataclasses.dataclass(frozen=True)
class SparseTurn:
    """A turn of a system with a method of METHODS; with `sparse`, `blocks` are those of the last call, by rank."""

    method: str
    values: int
    density: float
    overlap: str
    blocks: tuple[BlockCounts, ...]
    turn: Turn


@dataclasses.dataclass(frozen=True)
class SparseRow:
    """Statistics of a transport in one case. Times are in seconds: medians over all calls, measured by rank 0.

    `union` is the share of blocks in which any rank has values; `ratio` is dense / sparse. `sent` and `received` are
    blocks of the call (`Work.blocks`) with values, added up over the ranks, `expected_sent` and `expected_received`
    what follows from the tensors, `blocks` all blocks of the call. They have no meaning unless `is_sparse`: else the
    call was made as a dense one. `peers` are the times of peers, `ratios` these / sparse.
    """

    system: str
    workers: int
    values: int
    bytes: int
    density: float
    overlap: str
    union: float
    calls: int
    dense: float
    sparse: float
    ratio: float
    sent: int
    expected_sent: int
    received: int
    expected_received: int
    blocks: int
    is_sparse: bool
    peers: dict[str, float]
    ratios: dict[str, float]


Key = tuple[int, int, str, float]  # values, workers, overlap, density
Place = tuple[str, str]  # system, method


def summarize(samples: Sequence[SparseTurn], size: int, block: int) -> list[SparseRow]:
    """Return a row for each transport and case, in the order in which they were measured."""
    found: dict[Key, dict[Place, list[SparseTurn]]] = {}
    for sample in samples:
        key = sample.values, sample.turn.workers, sample.overlap, sample.density
        turns = found.setdefault(key, {})
        turns.setdefault((sample.turn.system, sample.method), []).append(sample)
    return [
        _row(key, system, found[key], size, block)
        for system in dict.fromkeys(sample.turn.system for sample in samples if sample.method == "sparse")
        for key in found
        if (system, "sparse") in found[key]
    ]


def _row(key: Key, system: str, turns: dict[Place, list[SparseTurn]], size: int, block: int) -> SparseRow:
    values, workers, overlap, density = key
    words = values if values % _MOST_WORDS else min(values, _MOST_WORDS)
    elements = size // ELEMENT_BYTES["float32"]
    owned = owners(workers, elements // block, density, overlap)
    union = np.logical_or.reduce(owned)
    sparse, dense = turns[system, "sparse"], turns[system, "dense"]
    ratio = _ratio(dense, sparse)
    assert ratio is not None
    blocks = sparse[-1].blocks
    peers = {name: turns[GLOO, way] for name, way in PEER_METHODS.items() if (GLOO, way) in turns}
    ratios = {name: _ratio(theirs, sparse) for name, theirs in peers.items()}
    return SparseRow(
        system=system,
        workers=workers,
        values=values,
        bytes=size,
        density=density,
        overlap=overlap,
        union=float(union.mean()),
        calls=sum(len(sample.turn.seconds) for sample in sparse),
        dense=_median(dense),
        sparse=_median(sparse),
        ratio=ratio,
        sent=sum(rank.sent for rank in blocks),
        expected_sent=sum(packets_with_values(own, block, words) for own in owned),
        received=sum(rank.received for rank in blocks),
        expected_received=workers * packets_with_values(union, block, words),
        blocks=sum(rank.all for rank in blocks),
        is_sparse=all(rank.sparse for rank in blocks),
        peers={name: _median(theirs) for name, theirs in peers.items()},
        ratios={name: found for name, found in ratios.items() if found is not None},
    )


def _median(samples: Sequence[SparseTurn]) -> float:
    return statistics.median(second for sample in samples for second in sample.turn.seconds)


def _ratio(theirs: Sequence[SparseTurn], ours: Sequence[SparseTurn]) -> float | None:
    return median_ratio([sample.turn for sample in theirs], [sample.turn for sample in ours])
