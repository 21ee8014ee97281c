"""The rules of all methods of compression, without a network: bias, residuals, arguments, and the table of methods."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch

from switchml.torch.compression import (
    METHODS,
    Compressor,
    ErrorFeedback,
    MomentumCorrection,
    MovingAverage,
    NoMemory,
    Place,
    Sum,
    by_name,
    table,
)
from switchml.torch.compression.compressor import flagged, next_of, together
from switchml.torch.compression.payloads import pack, unpack
from switchml.torch.compression.requests import Average, Gather, Largest, join, lane_bits
from switchml.torch.compression.sharded import CompressedAllGather, CompressedReduceScatter
from switchml.torch.compression.table import memory_for
from tests.torch.compression_references import simulated

DOCUMENT = Path(__file__).parents[2] / "docs" / "guides" / "compression.md"
PLACE = Place("weight", 5, 0, 1, seed=9)
SPARSIFIERS = (
    *("randomk", "shared_topk", "block_topk", "topk", "threshold", "dgc", "sidco", "shared_sidco", "hard_threshold"),
)


def gradients_of(size: int, elements: int = 3000) -> list[torch.Tensor]:
    return [torch.randn(elements, generator=torch.Generator().manual_seed(rank)) for rank in range(size)]


@pytest.mark.parametrize(
    "method",
    [
        by_name("qsgd"),
        by_name("qsgd", levels=3, norm="max", block=64),
        by_name("terngrad"),
        by_name("thc", block=64),
        by_name("randomk", density=0.25, unbiased=True),
        by_name("natural"),
    ],
    ids=repr,
)
def test_the_mean_of_many_results_of_an_unbiased_method_is_the_gradient(method: Compressor) -> None:
    assert method.unbiased
    repeats, [pattern] = 10_000, gradients_of(1, 128)
    [outcome] = simulated(method, [pattern.repeat(repeats)], PLACE)
    results = outcome.average.view(repeats, -1).double()
    error = (results.mean(0) - pattern).abs()
    assert bool((error <= 4 * results.std(0) / repeats**0.5 + 1e-6).all())
    assert float(results.std(0).max()) > 0.003  # they are random


def test_natural_rounding_between_powers_of_two() -> None:
    """At 4/3 of a power, a third is rounded up, and the second moment is 9/8 of the square: nowhere is it larger."""
    repeats = 100_000
    [outcome] = simulated(by_name("natural"), [torch.full((repeats,), -4 / 3)], PLACE)
    assert outcome.average.unique().tolist() == [-2, -1]
    deviation = (2 / 9 / repeats) ** 0.5
    assert abs(float((outcome.average == -2).double().mean()) - 1 / 3) < 4 * deviation
    assert abs(float(outcome.average.double().square().mean()) / (16 / 9) - 9 / 8) < 4 * deviation * 3 * 9 / 16
    values = torch.tensor([0.0, -0.0, 3.4e38, -2.0, 1.0, 1e-45])
    [outcome] = simulated(by_name("natural"), [values], PLACE)
    assert outcome.average.tolist() == [0, 0, 2.0**127, -2, 0, 0]  # what is 2^127 times smaller than the largest: zero


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("size", [1, 2, 16])
def test_every_method_takes_any_number_of_ranks_and_elements(name: str, size: int) -> None:
    method = by_name(name)
    method.check(size)
    for elements in (1, 2, 127, 1025):
        for gradients in (gradients_of(size, elements), [torch.zeros(elements)] * size):
            outcomes = simulated(method, gradients, PLACE)
            for outcome in outcomes:
                assert outcome.average.shape == (elements,)
                assert outcome.average.dtype == torch.float32
                assert bool(outcome.average.isfinite().all())
                assert torch.equal(outcome.average, outcomes[0].average)
            owns = [outcome.own for outcome in outcomes if outcome.own is not None]
            if owns and name not in ("signsgd", "signum"):  # whose votes are not in units of the gradient
                torch.testing.assert_close(torch.stack(owns).mean(0), outcomes[0].average, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].knows_own])
def test_what_was_sent_and_the_residual_are_the_gradient(name: str) -> None:
    gradients = gradients_of(2)
    for gradient, outcome in zip(gradients, simulated(by_name(name), gradients, PLACE), strict=True):
        memory = ErrorFeedback()
        memory.attach({"weight": len(gradient)})
        assert torch.equal(memory.begin("weight", gradient), gradient)
        memory.end("weight", outcome.own)
        residual = memory.tensors["weight"]["residual"]
        assert outcome.own is not None
        if name in SPARSIFIERS:
            assert torch.equal(outcome.own + residual, gradient)
            assert 0 < int((outcome.own != 0).sum()) < len(gradient)
        else:  # the residual is the difference, rounded once
            assert torch.equal(residual.double(), (gradient.double() - outcome.own.double()).float().double())


def test_memories() -> None:
    gradient, own = torch.tensor([3.0, -1.0]), torch.tensor([3.0, 0.0])
    feedback = ErrorFeedback(beta=0.5, gamma=2.0)
    correction, average = MomentumCorrection(0.5), MovingAverage(0.75)
    for memory in (feedback, correction, average):
        memory.attach({"w": 2})
    assert [memory.begin("w", gradient).tolist() for memory in (feedback, correction, average)] == [
        [6.0, -2.0],
        [3.0, -1.0],
        [0.75, -0.25],
    ]
    for memory in (feedback, correction, average):
        memory.end("w", own)
    assert feedback.begin("w", gradient).tolist() == [7.5, -3.0]  # 2 g + (6 - 3, -2 - 0) / 2
    assert correction.begin("w", gradient).tolist() == [3.0, -2.5]  # a value that was sent is forgotten
    assert average.begin("w", gradient).tolist() == [1.3125, -0.4375]
    for memory in (feedback, correction, average):
        memory.drop("w")  # as before the gradient
    feedback.rescale(4.0)
    assert feedback.tensors["w"]["residual"].tolist() == [12.0, -8.0]
    with pytest.raises(ValueError, match="already belongs to another"):
        feedback.attach({"w": 2})


def test_which_memory_a_method_has() -> None:
    for name, kind in METHODS.items():
        assert memory_for(by_name(name), "auto").name == kind.memory
        assert isinstance(memory_for(by_name(name), "none"), NoMemory)
    with pytest.raises(ValueError, match=r'topk is biased, and without error feedback.* write memory="none"'):
        memory_for(by_name("topk"), NoMemory())
    for name in ("lanes", "codes"):
        with pytest.raises(ValueError, match=f"{name} does not know what it has sent"):
            memory_for(by_name(name), ErrorFeedback())
    with pytest.warns(UserWarning, match="qsgd is unbiased"):
        memory_for(by_name("qsgd"), ErrorFeedback())
    with pytest.raises(TypeError, match="memory is 'feedback'"):
        memory_for(by_name("topk"), "feedback")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="momentum is 1"):
        MomentumCorrection(1.0)
    with pytest.raises(ValueError, match="beta is 0"):
        ErrorFeedback(beta=0)
    with pytest.raises(TypeError, match="gamma is True, a bool; it must be a number"):
        ErrorFeedback(gamma=True)


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("topk", {"density": 0}, ValueError, "density is 0; it must be above 0 and at most 1"),
        ("shared_topk", {"density": 1.5}, ValueError, "density is 1.5"),
        ("randomk", {"density": float("nan")}, ValueError, "density is nan"),
        ("topk", {"density": True}, TypeError, "density is True, a bool; it must be a number"),
        ("dgc", {"density": "0.1"}, TypeError, "density is '0.1', a str; it must be a number"),
        ("threshold", {"threshold": True}, TypeError, "threshold is True, a bool"),
        ("inceptionn", {"error_bound": None}, TypeError, "error_bound is None, a NoneType"),
        ("topk", {"ratio": 0.1}, TypeError, "topk has no argument 'ratio'; it has density"),
        ("topp", {}, ValueError, "'topp' is not a method of compression; choose one of none, lanes"),
        ("powersgd", {}, ValueError, "PowerSGD is PyTorch's own hook"),
        ("lanes", {"bits": 4}, ValueError, "bits is 4"),
        ("lanes", {"bits": 8, "rounding": "nearest"}, ValueError, 'The method "int8"'),
        ("codes", {"codes": "natural"}, ValueError, "codes is 'natural'; it must be 'natural8' or 'dynamic8'"),
        ("qsgd", {"levels": 0}, ValueError, "levels is 0"),
        ("qsgd", {"norm": "l1"}, ValueError, "norm is 'l1'"),
        ("qsgd", {"block": 0}, ValueError, "block is 0"),
        ("terngrad", {"clip": -1}, ValueError, "clip is -1"),
        ("thc", {"block": 1000}, ValueError, "block is 1000; it must be a power of two from 1 to 65536"),
        ("thc", {"block": 0}, ValueError, "block is 0"),
        ("thc", {"block": 1 << 17}, ValueError, "block is 131072"),
        ("delay_control", {"target": 0}, ValueError, "target is 0"),
        ("delay_control", {"least_bits": 4}, ValueError, "least_bits is 4; it must be 16 or 8"),
        ("delay_control", {"sensor": "rtt"}, ValueError, 'sensor is \'rtt\'; it must be "time" or "round_trips"'),
        ("threshold", {"threshold": 0}, ValueError, "threshold is 0"),
        ("inceptionn", {"error_bound": 1}, ValueError, "error_bound is 1"),
        ("sketchml", {"quantiles": 257}, ValueError, "quantiles is 257"),
    ],
)
def test_arguments_are_checked(name: str, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        by_name(name, **options)
    assert message in str(raised.value)


def test_sums_that_do_not_fit_are_refused() -> None:
    assert [lane_bits(bound, 8) for bound in (15, 16, 4095, 4096)] == [8, 16, 16, 32]
    by_name("qsgd", levels=2**28 - 1).check(8)
    with pytest.raises(ValueError, match="qsgd: sums of integers up to 268435456 over 8 ranks do not fit"):
        by_name("qsgd", levels=2**28).check(8)
    for name in ("int8", "lanes", "thc", "delay_control"):
        with pytest.raises(ValueError, match="8 bits hold no sum of 128 ranks"):
            by_name(name, **({"bits": 8} if name == "lanes" else {})).check(128)
    for size in (64, 65, 1024):
        by_name("codes").check(size)
    by_name("codes", codes="dynamic8").check(64)
    with pytest.raises(ValueError, match="sums of dynamic8 codes of at most 64 ranks, and this group has 65; use"):
        by_name("codes", codes="dynamic8").check(65)


def test_a_method_is_named_with_its_arguments() -> None:
    for name in METHODS:
        assert eval(repr(by_name(name)), {"by_name": by_name}).settings() == by_name(name).settings()
    assert by_name("codes", codes="dynamic8").settings() == {"codes": "dynamic8"}
    assert (by_name("codes").unbiased, by_name("codes", codes="dynamic8").unbiased) == (True, False)
    assert repr(by_name("topk", density=0.5)) == "by_name('topk', density=0.5)"


def test_codes_are_packed_into_as_few_bytes_as_hold_their_bits() -> None:
    for bits in (1, 2, 6, 8):
        codes = torch.randint(0, 2**bits, (1003,), dtype=torch.uint8, generator=torch.Generator().manual_seed(bits))
        packed = pack(codes, bits)
        assert len(packed) == -(-1003 * bits // 8)
        assert torch.equal(unpack(packed, bits, 1003), codes)


def test_only_positional_methods_of_one_round_are_scattered() -> None:
    usable = [name for name in METHODS if METHODS[name].positional]
    assert usable == ["none", "lanes", "codes", "signsgd", "signum"]
    for name in METHODS:
        if name in usable:
            CompressedReduceScatter(by_name(name))
        else:
            with pytest.raises(ValueError, match=f"{name} cannot be used in a reduce-scatter.*none, lanes"):
                CompressedReduceScatter(by_name(name))
    with pytest.raises(ValueError, match="bits is 4"):
        CompressedAllGather(bits=4)


def counting(values: list[int]) -> Generator[Any, torch.Tensor, list[int]]:
    """Ask for the sum of one more than each value."""
    answer = yield Sum(torch.tensor(values) + 1, 9)
    return [int(value) for value in answer]


def test_several_gradients_share_a_request_and_the_flag_is_its_last_value() -> None:
    parts = [counting([1, 2]), counting([3])]
    rounds = flagged(together(parts), bad=True)
    request = next_of(rounds, None)
    assert isinstance(request, Sum)
    assert request.values.tolist() == [2, 3, 4, 1]
    assert next_of(flagged(together([counting([1])]), bad=False), None).values.tolist() == [2, 0]  # type: ignore[union-attr]
    assert next_of(rounds, torch.tensor([20, 30, 40, 1])) is None
    fine = flagged(together([counting([1, 2]), counting([3])]), bad=False)
    next_of(fine, None)
    assert next_of(fine, torch.tensor([20, 30, 40, 0])) == [[20, 30], [40]]
    for kind in (Average, Gather, Largest):
        assert bool(kind(torch.zeros(2)).flagged(True).values[-1].isnan())
    with pytest.raises(ValueError, match="differ in more than their values"):
        join([Sum(torch.ones(1), 1), Sum(torch.ones(1), 2)])


def test_random_numbers_are_those_of_the_place() -> None:
    before = torch.random.get_rng_state()
    drawn = {
        float(torch.rand(1, generator=Place(name, step, rank, 2, seed).generator()))
        for name in ("a", "b")
        for step in (0, 1)
        for rank in (0, 1)
        for seed in (0, 1)
    }
    assert len(drawn) == 16
    shared = [Place("a", 0, rank, 2).shared_generator() for rank in range(2)]
    assert torch.equal(torch.rand(9, generator=shared[0]), torch.rand(9, generator=shared[1]))
    simulated(by_name("qsgd"), gradients_of(2), PLACE)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_table_of_methods_is_the_codes() -> None:
    assert table() in DOCUMENT.read_text(encoding="utf-8")


# GRACE's own code (github.com/sands-lab/grace), the model of several methods, where it is on PYTHONPATH.


def grace(kind: str, **arguments: Any) -> Any:
    """Return one of GRACE's compressors; its modules have their names in small letters."""
    module = f"grace_dl.dist.compressor.{kind.removesuffix('Compressor').lower()}"
    pytest.importorskip(
        "grace_dl.dist", reason="GRACE is not on PYTHONPATH; its sources are at github.com/sands-lab/grace"
    )
    return getattr(importlib.import_module(module), kind)(**arguments)


def outcome_of_grace(ranks: list[Any], gradients: list[torch.Tensor]) -> torch.Tensor:
    decoded = []
    for rank, gradient in zip(ranks, gradients, strict=True):
        payload, context = rank.compress(gradient, "weight")
        if type(rank).__name__ == "OneBitCompressor":  # it inverts a mask of bytes bit by bit, which makes 255 of 0
            payload = (payload[0].bool(), *payload[1:])
        decoded.append(rank.decompress(payload, context))
    total = ranks[0].aggregate(decoded)
    return total / len(gradients) if ranks[0].average else total


@pytest.mark.parametrize(
    ("name", "ours", "kind", "arguments", "ranks"),
    [
        ("none", {}, "NoneCompressor", {}, 4),
        ("topk", {"density": 0.05}, "TopKCompressor", {"compress_ratio": 0.05}, 4),
        ("threshold", {"threshold": 0.5}, "ThresholdCompressor", {"threshold": 0.5}, 4),
        ("onebit", {}, "OneBitCompressor", {}, 4),
        ("signsgd", {}, "SignSGDCompressor", {}, 4),
        ("signum", {}, "SignumCompressor", {"momentum": 0.9}, 4),  # its first step
        # SwitchML takes the largest magnitude of all ranks, GRACE each rank's own: they are equal for one rank.
        ("efsign", {}, "EFSignSGDCompressor", {"lr": 1.0}, 1),
    ],
)
def test_graces_own_code_ends_alike(
    name: str, ours: dict[str, Any], kind: str, arguments: dict[str, Any], ranks: int
) -> None:
    gradients = gradients_of(ranks)
    expected = outcome_of_grace([grace(kind, **arguments) for _ in gradients], gradients)
    torch.testing.assert_close(simulated(by_name(name, **ours), gradients, PLACE)[0].average, expected)


def test_qsgd_has_the_levels_of_graces() -> None:
    """Compare stochastic rounding: for one rank, both choose one of the two levels around a value."""
    [gradient] = gradients_of(1, 128 * 20)
    theirs = outcome_of_grace([grace("QSGDCompressor", quantum_num=15, bucket_size=128)], [gradient])
    ours = simulated(by_name("qsgd", levels=15, block=128), [gradient], PLACE)[0].average
    unit = gradient.view(-1, 128).norm(dim=1).repeat_interleave(128) / 15
    for outcome in (ours, theirs):
        assert float((outcome / unit - (outcome / unit).round()).abs().max()) < 1e-4
        assert bool(((outcome - gradient).abs() < unit * 1.0001).all())


def test_terngrad_has_the_magnitude_of_graces() -> None:
    [gradient] = gradients_of(1, 4096)
    theirs = outcome_of_grace([grace("TernGradCompressor")], [gradient])
    ours = simulated(by_name("terngrad", block=4096, clip=2.5), [gradient], PLACE)[0].average
    for outcome in (ours, theirs):
        assert bool((outcome * gradient >= 0).all())
        torch.testing.assert_close(outcome[outcome != 0].abs().unique(), theirs.abs().max().view(1))


def test_dgc_sends_about_as_much_as_graces() -> None:
    """Compare the elements above a threshold that is estimated from a random sample."""
    [gradient] = gradients_of(1, 100_000)
    theirs = outcome_of_grace([grace("DgcCompressor", compress_ratio=0.01)], [gradient])
    ours = simulated(by_name("dgc", density=0.01), [gradient], PLACE)[0].average
    for outcome in (ours, theirs):
        sent = outcome != 0
        assert 0.7 * 0.01 <= float(sent.float().mean()) <= 1.3 * 0.01
        assert float(gradient[sent].abs().min()) > float(gradient[~sent].abs().max())
