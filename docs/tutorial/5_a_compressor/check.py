"""The rounds of a compressor by hand, for four ranks in one process; then a training with it through the switch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from harness import Fabric, Wrong, load, require

from switchml.torch import compression
from switchml.torch.compression.compressor import next_of

_RANKS = 3
_BY_HAND = 4

MISTAKES = [
    ("unit = largest / most", "unit = gradient.abs().max().view(1) / most", "same unit"),
    ("unit = largest / most", "unit = largest / 127", "8 bits"),
    ("sums * unit / place.size", "sums * unit", "the sum, not the average"),
    ("levels * unit)", "gradient)", "what was sent"),
]


def check(program: Path) -> None:
    """Check one gradient by hand, then a training."""
    pupil = load(program)
    gradients = [
        torch.randn(1000, generator=torch.Generator().manual_seed(rank)) * (rank + 1) for rank in range(_BY_HAND)
    ]
    _check_by_hand(pupil.EightBits(), gradients)
    zeros, _ = _exchanged(pupil.EightBits(), [torch.zeros(5)] * _BY_HAND)
    require(not zeros[0].average.any(), f"hole 1: the average of zeros is {zeros[0].average}")
    with Fabric() as fabric:
        ranks = fabric.succeeding(_RANKS, program).ranks
    none, yours = ranks[0]["none"], ranks[0]["yours"]
    share = yours["bytes"] / none["bytes"]
    require(share < 0.3, f"hole 2: rank 0 has sent {share:.0%} of the bytes without compression; 8 of 32 bits are 25 %")
    require(
        yours["accuracy"] > none["accuracy"] - 0.03,
        f"the accuracy is {yours['accuracy']}, and without compression it is {none['accuracy']}",
    )
    print(f"  accuracy {yours['accuracy']} with {share:.1%} of the bytes, {none['accuracy']} without compression")


def _exchanged(
    compressor: Any, gradients: Sequence[torch.Tensor]
) -> tuple[list[compression.Outcome], list[list[compression.Request]]]:
    """Run the generators of all ranks, and return their outcomes and the requests of each round."""
    places = [compression.Place("bucket", 0, rank, len(gradients)) for rank in range(len(gradients))]
    running = [compressor.rounds(gradient, place) for gradient, place in zip(gradients, places, strict=True)]
    answers: list[torch.Tensor | None] = [None] * len(running)
    rounds = []
    while True:
        steps = [next_of(generator, answer) for generator, answer in zip(running, answers, strict=True)]
        if isinstance(steps[0], compression.Outcome):
            return steps, rounds
        kinds = [type(step).__name__ for step in steps]
        number = len(rounds)
        right = compressor.requests[number] if number < len(compressor.requests) else None
        if right is None or any(type(step) is not right for step in steps):
            wanted = f"yield a {right.__name__}" if right else "return an Outcome"
            raise Wrong(f"hole {min(number, 1) + 1}: in round {number + 1} the ranks must {wanted}; they gave {kinds}")
        rounds.append(steps)
        values = torch.stack([step.values for step in steps])
        answers = [values.amax(0) if isinstance(steps[0], compression.Largest) else values.sum(0)] * len(running)


def _check_by_hand(compressor: Any, gradients: Sequence[torch.Tensor]) -> None:
    outcomes, rounds = _exchanged(compressor, gradients)
    largest, sums = rounds
    for rank, request in enumerate(largest):
        right = gradients[rank].abs().max()
        require(
            request.values.shape == (1,) and request.values[0] == right,
            f"hole 1: rank {rank} gives {request.values} for the unit, where its largest magnitude, {right:.4f}, is "
            "right",
        )
    most = 127 // len(gradients)
    for rank, request in enumerate(sums):
        got = int(request.values.abs().max())
        require(
            got <= most and request.bound == most,
            f"hole 1: rank {rank} sends levels up to {got}, with bound={request.bound}: with {len(gradients)} ranks a "
            f"sum fits 8 bits only if each has at most {most}",
        )
    unit = max(float(gradient.abs().max()) for gradient in gradients) / most
    for rank, (outcome, request) in enumerate(zip(outcomes, sums, strict=True)):
        require(
            outcome.own is not None, "hole 2: the Outcome does not say what was sent (own), which error feedback needs"
        )
        off = float((outcome.own - request.values * unit).abs().max())
        require(
            off < unit / 100,
            f"the `own` of rank {rank} differs from its levels by up to {off / unit:.2f} units. Its levels must be in "
            "the same unit on all ranks, the largest magnitude of any divided by the levels (hole 1), and `own` must "
            "be what was sent, not what should have been (hole 2)",
        )
    exact = torch.stack(list(gradients)).mean(0)
    off = float((outcomes[0].average - exact).abs().max())
    ratio = float((outcomes[0].average @ exact) / (exact @ exact))
    require(
        ratio < 2,
        f"hole 2: the result is {ratio:.1f} times the average of {len(gradients)} ranks: it is the sum, not the "
        "average",
    )
    require(
        off <= unit * 0.51, f"hole 2: the average is wrong by up to {off / unit:.1f} units, where half of one is right"
    )
    require(
        all(torch.equal(outcome.average, outcomes[0].average) for outcome in outcomes),
        "hole 2: the ranks continue with different averages",
    )
