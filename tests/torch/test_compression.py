"""Methods of compression on real ranks: against numpy, what they keep, and the bytes that they put into packets."""

from __future__ import annotations

import math
import unittest.mock
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import switchml.torch
from switchml.client.calls import Call
from switchml.client.wire import CODES
from switchml.torch.compression import METHODS, Compressor, Exchange, Outcome, Place, by_name
from switchml.torch.compression.compressor import flagged
from switchml.torch.compression.sharded import CompressedReduceScatter
from tests.torch.compression_references import REFERENCES, reference, units_of
from tests.torch.conftest import running_fabric
from tests.torch.torch_harness import Ranks

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
    "codes": ("codes", {}, 4 * (ELEMENTS + 1)),  # ranks that share memory with the switch write words there
    "codes-dynamic8": ("codes", {"codes": "dynamic8"}, 4 * (ELEMENTS + 1)),
    "delay_control": ("delay_control", {}, 4 * (ELEMENTS + 2 + 1)),
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
    "shared_sidco": ("shared_sidco", {"density": 0.02, "fit": "exponential", "stages": 2}, None),
    "block_topk": ("block_topk", {"density": 0.2, "block": 64}, None),
    "onebit": ("onebit", {}, words(-(-ELEMENTS // 8) + 8 + 1)),
    "topk": ("topk", {"density": 0.02}, words(8 * (ELEMENTS // 50) + 1)),
    "threshold": ("threshold", {"threshold": 1.5}, None),
    "dgc": ("dgc", {"density": 0.02}, None),
    "adaq": ("adaq", {"density": 0.02}, None),
    "sidco": ("sidco", {"density": 0.02, "fit": "exponential"}, None),  # one stage does not fit
    "sidco-1": ("sidco", {"density": 0.02, "fit": "exponential", "stages": 1}, None),
    "sidco-2": ("sidco", {"density": 0.02, "fit": "exponential", "stages": 2}, None),
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
    return Ranks(server, fabric.run_dir, SWITCHML_DIRECT="0").run(SIZE, all_methods)  # the formulas are of packets


@pytest.fixture
def udp_fabric() -> Iterator[Any]:
    """Provide a fabric whose ranks reach the switch with packets."""
    yield from running_fabric("--transport", "udp")


def floats(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.float32)


def test_there_is_a_reference_for_each_method() -> None:
    assert set(REFERENCES) == set(METHODS) == {name for name, _, _ in CASES.values()}


@pytest.mark.parametrize("case", [case for case in CASES if case != "codes"])  # its powers of two have a test below
def test_all_ranks_end_with_the_reference(outcomes: list[dict[str, Any]], case: str) -> None:
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
def test_the_bytes_sent_are_those_of_the_formula(outcomes: list[dict[str, Any]], case: str) -> None:
    assert [found[case][2] for found in outcomes] == [CASES[case][2]] * SIZE


def test_the_bytes_sent_of_methods_with_a_choice(outcomes: list[dict[str, Any]]) -> None:
    kept = ELEMENTS // 50
    sent = {case: [found[case][2] for found in outcomes] for case in CASES}
    assert sent["shared_topk"] == [4 * (kept + 1) + (4 * kept if rank == STEP % SIZE else 0) for rank in range(SIZE)]
    counts = [int(np.count_nonzero(floats(found["shared_sidco"][1]))) for found in outcomes]
    chosen = counts[STEP % SIZE]  # other ranks may have zeros there
    leading = [4 * (1 + chosen) if rank == STEP % SIZE else 0 for rank in range(SIZE)]
    assert sent["shared_sidco"] == [4 * (chosen + 1) + extra for extra in leading]
    for case in ("threshold", "dgc", "sidco", "sidco-1", "sidco-2", "hard_threshold"):
        counts = [int(np.count_nonzero(floats(found[case][1]))) for found in outcomes]
        assert sent[case] == [4 * 2 + 8 * max(counts)] * SIZE
    counts = [int(np.count_nonzero(floats(found["adaq"][1]))) for found in outcomes]
    assert sent["adaq"] == [4 * 2 + 4 * 3 + 4 * max(counts)] * SIZE
    for found in outcomes:
        assert found["block_topk"][2] < 4 * ELEMENTS  # blocks of zeros are not sent
        assert found["inceptionn"][2] < 3 * ELEMENTS


def powers_around(x: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return the two powers of two around each element, as rows; below the unit 0 and the unit."""
    size = np.abs(x.astype(np.float64))
    lower = np.where(size < units, 0, np.exp2(np.frexp(np.maximum(size, units))[1] - 1))
    upper = np.where(lower == size, lower, np.where(lower > 0, 2 * lower, units))
    return np.asarray(np.copysign([lower, upper], x))


def require_powers(averages: list[np.ndarray], gradients: list[np.ndarray]) -> None:
    """Check that all ranks have the same average, of one of the two powers of two around each element of each rank."""
    assert all(np.array_equal(average, averages[0]) for average in averages)
    units = units_of(gradients, 30 - (len(gradients) - 1).bit_length())
    sums = np.zeros((1, len(units)))
    for gradient in gradients:
        sums = (sums[:, None] + powers_around(gradient, units)).reshape(-1, len(units))
    exact = averages[0].astype(np.float64)
    assert bool((np.abs(sums / len(gradients) - exact).min(0) <= 2e-7 * np.abs(exact)).all())
    spread = sums.max(0) > sums.min(0)
    assert bool((exact[spread] != sums.mean(0)[spread] / len(gradients)).any())  # it is not the middle everywhere


def test_sums_of_natural_codes_are_of_the_powers_of_two_around_the_elements(outcomes: list[dict[str, Any]]) -> None:
    require_powers([floats(found["codes"][0]) for found in outcomes], [gradient_of(r).numpy() for r in range(SIZE)])


EQUAL, REPEATS = (4 / 3, -0.7, 1.3e-3, 1.0), 4096


def summed_codes(rank: int) -> dict[str, Any]:
    """Average codes of gradients, of equal elements, of elements that are not finite, and in a reduce-scatter."""
    exchange, found = three_rounds(), {}
    for name in CODES:
        method, before = by_name("codes", codes=name), switchml.torch.statistics()
        outcome = exchanged(exchange, method, gradient_of(rank), place_of(rank))
        after = switchml.torch.statistics()
        assert exchanged(exchange, method, gradient_of(rank), place_of(rank), bad=rank == 1) is None
        assert outcome is not None
        assert after["gloo_calls"] == before["gloo_calls"]
        assert outcome.own is None
        part, bad = torch.empty(100), torch.empty(100)
        given = torch.full((SIZE * 100,), 2.0**rank)
        CompressedReduceScatter(method)(part, given, dist.group.WORLD, dist.ReduceOp.AVG)
        given[7] = math.nan if rank == 1 else 1
        CompressedReduceScatter(method)(bad, given, dist.group.WORLD, dist.ReduceOp.AVG)
        assert bool(bad.isnan().all())
        found[name] = outcome.average.numpy(), after["wire_bytes"] - before["wire_bytes"], part.numpy()
    equal = torch.tensor(EQUAL).repeat(REPEATS)
    outcome = exchanged(exchange, by_name("codes"), equal, place_of(rank))
    assert outcome is not None
    return found | {"equal": outcome.average.numpy().reshape(REPEATS, -1)}


def test_codes_over_packets(server: Any, udp_fabric: Any, outcomes: list[dict[str, Any]]) -> None:
    """Packets have one byte for each element; the mean of many equal elements is that of the elements."""
    got = Ranks(server, udp_fabric.run_dir).run(SIZE, summed_codes)
    gradients = [gradient_of(rank).numpy() for rank in range(SIZE)]
    require_powers([found["natural8"][0] for found in got], gradients)
    for rank, found in enumerate(got):
        assert [found[name][1] for name in CODES] == [ELEMENTS + 1] * 2
        assert found["dynamic8"][0].tobytes() == outcomes[rank]["codes-dynamic8"][0]  # as over shared memory
        np.testing.assert_array_equal(found["natural8"][2], np.float32(7 / 3))
        np.testing.assert_allclose(found["dynamic8"][2], 7 / 3, rtol=0, atol=8 * 0.9 / 128)  # half a step
    equal = got[0]["equal"].astype(np.float64)
    for x, column in zip(EQUAL, equal.T, strict=True):
        [[lower], [upper]] = powers_around(np.array([x], np.float32), np.zeros(1))
        deviation = math.sqrt((x - lower) * (upper - x) / (SIZE * REPEATS))
        assert abs(column.mean() - x) <= 4 * deviation + 1e-6 * abs(x)
        assert len(np.unique(column)) == (1 if lower == upper else SIZE + 1)


def refused_codes(rank: int) -> None:
    """Ask for codes in a job whose switches have none, as those of Tofino."""
    described = Call.described
    without_codes = lambda call, world_size, _formats: described(call, world_size, 1)  # noqa: E731
    with unittest.mock.patch.object(Call, "described", without_codes):
        dist.all_reduce(torch.ones(1))
        exchange = Exchange(by_name("codes"), timeout=60.0)
        with pytest.raises(RuntimeError, match="the switches of this job cannot sum natural8 codes: a switch must"):
            exchanged(exchange, by_name("codes"), gradient_of(rank), place_of(rank, 2))
        with pytest.raises(ValueError, match="cannot sum dynamic8 codes"):
            CompressedReduceScatter(by_name("codes", codes="dynamic8"))(
                torch.empty(2), torch.ones(4), dist.group.WORLD, dist.ReduceOp.AVG
            )


def test_codes_are_refused_with_the_reason_where_switches_have_none(ranks: Ranks) -> None:
    ranks.run(2, refused_codes)


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
