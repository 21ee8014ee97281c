"""Methods of compression on real ranks: against numpy, what they keep, and the bytes that they put into packets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from compression_references import REFERENCES, reference
from torch_harness import Ranks

import switchml.torch
from switchml.torch.compression import METHODS, Compressor, Exchange, Outcome, Place, by_name
from switchml.torch.compression.compressor import flagged

SIZE, ELEMENTS, STEP = 3, 5003, 4


def lanes(bits: int, elements: int) -> int:
    """Return the bytes of these lanes in packets, which hold words of 32 bits."""
    return -(-elements * bits // 32) * 4


def words(payload: int) -> int:
    return -(-payload // 4) * 4


def blocks(size: int) -> int:
    return -(-ELEMENTS // size)


# The arguments of `by_name`, and the bytes that a rank sends, where these do not depend on the values. Each has one
# more value in its first collective of all ranks, for the flag.
CASES: dict[str, tuple[str, dict[str, Any], int | None]] = {
    "none": ("none", {}, 4 * (ELEMENTS + 1)),
    "lanes-16": ("lanes", {"bits": 16}, lanes(16, ELEMENTS + 1)),
    "lanes-16-nearest": ("lanes", {"bits": 16, "rounding": "nearest"}, lanes(16, ELEMENTS + 1)),
    "lanes-8": ("lanes", {"bits": 8}, lanes(8, ELEMENTS + 1)),
    "delay_control": ("delay_control", {}, None),  # rank 0 sends the word
    "int8": ("int8", {}, 4 * (blocks(256) + 1) + lanes(8, ELEMENTS)),
    "qsgd": ("qsgd", {}, 4 * (blocks(128) + 1) + lanes(16, ELEMENTS)),
    "qsgd-15": ("qsgd", {"levels": 15, "norm": "max"}, 4 * (blocks(128) + 1) + lanes(8, ELEMENTS)),
    "qsgd-100000": ("qsgd", {"levels": 100_000, "block": 1000}, 4 * (blocks(1000) + 1) + 4 * ELEMENTS),
    "terngrad": ("terngrad", {}, 4 * (blocks(128) + 1) + lanes(8, ELEMENTS)),
    "terngrad-clip": ("terngrad", {"clip": 2.5}, 4 * (blocks(128) + 1) + lanes(8, ELEMENTS)),
    "thc": ("thc", {}, 4 * (blocks(1024) + 1) + 1024 * blocks(1024)),
    "thc-65536": ("thc", {"block": 65536}, 4 * (1 + 1) + 8192),  # one block of the next power of two
    "signsgd": ("signsgd", {}, lanes(8, ELEMENTS + 1)),
    "signum": ("signum", {}, lanes(8, ELEMENTS + 1)),
    "efsign": ("efsign", {}, 4 * 2 + lanes(8, ELEMENTS)),
    "randomk": ("randomk", {"density": 0.1}, 4 * (ELEMENTS // 10 + 1)),
    "randomk-unbiased": ("randomk", {"density": 0.1, "unbiased": True}, 4 * (ELEMENTS // 10 + 1)),
    "shared_topk": ("shared_topk", {"density": 0.02}, None),  # the leader sends places too
    "shared_sidco": ("shared_sidco", {"density": 0.02, "stages": 2}, None),
    "block_topk": ("block_topk", {"density": 0.2, "block": 64}, None),
    "onebit": ("onebit", {}, words(-(-ELEMENTS // 8) + 8 + 1)),
    "topk": ("topk", {"density": 0.02}, words(8 * (ELEMENTS // 50) + 1)),
    "threshold": ("threshold", {"threshold": 1.5}, None),
    "dgc": ("dgc", {"density": 0.02}, None),
    "adaq": ("adaq", {"density": 0.02}, None),
    "sidco": ("sidco", {"density": 0.02}, None),  # its first call has one stage
    "sidco-2": ("sidco", {"density": 0.02, "stages": 2}, None),
    "hard_threshold": ("hard_threshold", {"threshold": 2.5}, None),
    "inceptionn": ("inceptionn", {}, None),
    "sketchml": ("sketchml", {}, words(-(-ELEMENTS * 6 // 8) + 4 * 64 + 1)),
    "natural": ("natural", {}, words(ELEMENTS + 4 + 1)),
    "dynamic8": ("dynamic8", {}, words(ELEMENTS + 4 + 1)),
}


def gradient_of(rank: int) -> torch.Tensor:
    """Return a gradient with a block of zeros, and magnitudes that differ between ranks and places."""
    generator = torch.Generator().manual_seed(40 + rank)
    gradient = torch.randn(ELEMENTS, generator=generator) * (1 + rank)
    gradient[:2000] *= 0.003
    gradient[3000:3500] = 0
    return gradient


def place_of(rank: int, size: int = SIZE) -> Place:
    return Place("layer.weight", STEP, rank, size, seed=3)


def three_rounds() -> Exchange:
    """Return an exchange that all methods can use: none has more rounds."""
    return Exchange(by_name("shared_sidco"), timeout=60.0)


def exchanged(
    exchange: Exchange, method: Compressor, gradient: torch.Tensor, place: Place, bad: bool = False
) -> Outcome | None:
    rounds = flagged(method.rounds(gradient, place), bad)
    outcome: Outcome | None = exchange.submit(rounds, method.requests).wait()
    return outcome


def all_methods(rank: int) -> dict[str, tuple[bytes, bytes | None, int]]:
    """Return the average, the own gradient and the bytes sent, of each case."""
    found = {}
    exchange = three_rounds()
    for case, (name, options, _) in CASES.items():
        before = switchml.torch.statistics()
        gradient = gradient_of(rank)
        outcome = exchanged(exchange, by_name(name, **options), gradient, place_of(rank))
        assert outcome is not None
        assert torch.equal(gradient, gradient_of(rank))  # it is only read
        after = switchml.torch.statistics()
        assert after["gloo_calls"] == before["gloo_calls"]
        own = None if outcome.own is None else outcome.own.numpy().tobytes()
        sent = after["wire_bytes"] - before["wire_bytes"]
        found[case] = (outcome.average.numpy().tobytes(), own, sent)
    return found


@pytest.fixture(scope="module")
def outcomes(server: Any, fabric: Any) -> list[dict[str, tuple[bytes, bytes | None, int]]]:
    """Provide the outcomes of all cases by rank."""
    return Ranks(server, fabric.run_dir).run(SIZE, all_methods)


def floats(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.float32)


def test_there_is_a_reference_for_each_method() -> None:
    assert set(REFERENCES) == set(METHODS) == {name for name, _, _ in CASES.values()}


@pytest.mark.parametrize("case", CASES)
def test_all_ranks_end_with_the_reference(outcomes: list[dict], case: str) -> None:
    name, options, _ = CASES[case]
    method = by_name(name, **options)
    gradients = [gradient_of(rank).numpy() for rank in range(SIZE)]
    average, owns = reference(method, gradients, place_of(0))
    got = [found[case] for found in outcomes]
    assert len({of_rank[0] for of_rank in got}) == 1
    largest = max(float(np.abs(x).max()) for x in gradients)
    # Sums of integers and of gathered values are exact; those of floats have the bound of the lanes.
    tolerance = {"none": 2e-9, "lanes-16": 2e-4, "lanes-16-nearest": 1e-4, "lanes-8": 0.05}.get(case, 0.0)
    if name in ("delay_control", "randomk", "shared_topk", "shared_sidco", "block_topk"):
        tolerance = 1e-8
    np.testing.assert_allclose(floats(got[0][0]), average, rtol=2e-7, atol=tolerance * largest)
    for rank in range(SIZE):
        if owns is None:
            assert got[rank][1] is None
        else:
            np.testing.assert_allclose(floats(got[rank][1]), owns[rank], rtol=2e-7, atol=0)


@pytest.mark.parametrize("case", [case for case, (_, _, size) in CASES.items() if size is not None])
def test_the_bytes_sent_are_those_of_the_formula(outcomes: list[dict], case: str) -> None:
    assert [found[case][2] for found in outcomes] == [CASES[case][2]] * SIZE


def test_the_bytes_sent_of_methods_with_a_choice(outcomes: list[dict]) -> None:
    kept = ELEMENTS // 50
    sent = {case: [found[case][2] for found in outcomes] for case in CASES}
    assert sent["shared_topk"] == [4 * (kept + 1) + (4 * kept if rank == STEP % SIZE else 0) for rank in range(SIZE)]
    assert sent["delay_control"] == [4 * (ELEMENTS + 1) + (4 if rank == 0 else 0) for rank in range(SIZE)]
    counts = [int(np.count_nonzero(floats(found["shared_sidco"][1]))) for found in outcomes]
    chosen = counts[STEP % SIZE]  # other ranks may have zeros there
    leading = [4 * (1 + chosen) if rank == STEP % SIZE else 0 for rank in range(SIZE)]
    assert sent["shared_sidco"] == [4 * (chosen + 1) + extra for extra in leading]
    for case in ("threshold", "dgc", "sidco", "sidco-2", "hard_threshold"):
        counts = [int(np.count_nonzero(floats(found[case][1]))) for found in outcomes]
        assert sent[case] == [4 * 2 + 8 * max(counts)] * SIZE
    counts = [int(np.count_nonzero(floats(found["adaq"][1]))) for found in outcomes]
    assert sent["adaq"] == [4 * 2 + 4 * 3 + 4 * max(counts)] * SIZE
    for found in outcomes:
        assert found["block_topk"][2] < 4 * ELEMENTS  # blocks of zeros are not sent
        assert found["inceptionn"][2] < 3 * ELEMENTS


def inputs_of(rank: int, elements: int) -> dict[str, torch.Tensor]:
    """Return gradients that are even, that have heavy tails, and that have one large element among 4096."""
    random = np.random.default_rng(rank)
    gauss = random.standard_normal(elements)
    outlier = gauss.copy()
    outlier[7::4096] = 1000
    found = {"Gauss": gauss, "Student-3": random.standard_t(3, elements), "outlier": outlier}
    return {name: torch.from_numpy(values.astype(np.float32)) for name, values in found.items()}


def rotated_and_plain(rank: int, size: int, elements: int) -> dict[str, tuple[float, float]]:
    """Return the relative errors of averages of rotated blocks, and of plain lanes of 8 bits, by the kind of input."""
    exchange, found = three_rounds(), {}
    for name, gradient in inputs_of(rank, elements).items():
        exact = torch.stack([inputs_of(other, elements)[name].double() for other in range(size)]).mean(0)
        errors = []
        for method in (by_name("thc"), by_name("lanes", bits=8)):
            outcome = exchanged(exchange, method, gradient, place_of(rank, size))
            assert outcome is not None
            errors.append(float((outcome.average - exact).norm() / exact.norm()))
        found[name] = (errors[0], errors[1])
    return found


def test_a_rotation_helps_where_elements_differ_in_size(ranks: Ranks) -> None:
    for found in ranks.run(4, rotated_and_plain, 4, 1 << 16):
        ratios = {name: rotated / plain for name, (rotated, plain) in found.items()}
        assert 0.4 < ratios["Gauss"] < 1.1  # a unit that is not a power of two; the rotation itself gains nothing
        assert ratios["Student-3"] < 0.5
        assert ratios["outlier"] < 0.3
