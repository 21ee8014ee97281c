"""The lanes of a call: which arguments are allowed, and what the call is said to be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from switchml.calls import Call
from switchml.lanes import WIDE, Lanes, lanes_for
from switchml.tensors import buffer_of


@pytest.mark.parametrize(
    ("dtype", "ranks", "arguments", "lanes"),
    [
        ("float32", 64, {}, WIDE),
        ("float32", 64, {"wire_bits": 8, "rounding": "stochastic", "seed": 9}, Lanes(8, "stochastic", 9)),
        ("bfloat16", 8, {"wire_bits": np.int64(16)}, Lanes(16)),
        ("int8", 64, {"wire_bits": 16}, Lanes(16)),
        ("uint8", 64, {"wire_bits": 16}, Lanes(16)),
        ("bool", 64, {"wire_bits": 8}, Lanes(8)),
        ("int16", 64, {}, WIDE),
        ("float32", 127, {"wire_bits": 8}, Lanes(8)),
        ("float16", 4096, {"wire_bits": 16}, Lanes(16)),
        ("int8", 255, {"wire_bits": 16}, Lanes(16)),
        ("uint8", 128, {"wire_bits": 16}, Lanes(16)),
        ("bool", 4096, {"wire_bits": 16}, Lanes(16)),
        ("bool", 127, {"wire_bits": 8}, Lanes(8)),
        ("int64", 64, {}, WIDE),
        ("int16", 64, {"wire_bits": 16, "bound": 511}, Lanes(16, bound=511)),
        ("int8", 4, {"wire_bits": 8, "bound": 31}, Lanes(8, bound=31)),
        ("int32", 2, {"bound": 2**30 - 1}, Lanes(32, bound=2**30 - 1)),
        ("uint8", 64, {"wire_bits": 16, "bound": 10_000}, Lanes(16, bound=10_000)),
    ],
)
def test_lanes_that_hold_their_sums(dtype: str, ranks: int, arguments: dict[str, object], lanes: Lanes) -> None:
    assert lanes_for(dtype, ranks, **arguments) == lanes  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtype", "ranks", "arguments", "message"),
    [
        ("float32", 2, {"wire_bits": 12}, "wire_bits is 12; it must be 8, 16 or 32"),
        ("float32", 2, {"wire_bits": 0}, "wire_bits is 0"),
        ("float32", 2, {"rounding": "up"}, "rounding is 'up'"),
        ("float32", 2, {"rounding": "stochastic"}, "with wire_bits of 16 or 8, not for float32 with 32"),
        ("int8", 2, {"wire_bits": 16, "rounding": "stochastic"}, "is for floating-point numbers"),
        ("float32", 2, {"seed": -1}, "seed is -1"),
        ("float32", 2, {"seed": 2**64}, "seed is"),
        ("float32", 2, {"bound": 3}, "bound is for integers, not for float32"),
        ("int8", 2, {"bound": 0}, "bound is 0; it must be from 1"),
        ("int8", 2, {"bound": 2**31}, "it must be from 1"),
        ("int8", 5, {"wire_bits": 8, "bound": 31}, "at most 4 ranks with values of int8 up to 31, and this job has 5"),
        ("int8", 2, {"wire_bits": 8}, "at most 0 ranks with values of int8 up to 128"),
        ("int16", 2, {"wire_bits": 16}, "at most 0 ranks with values of int16 up to 32768"),
        ("int16", 33, {"wire_bits": 16, "bound": 1000}, "at most 32 ranks"),
        ("int32", 3, {"bound": 2**30}, "at most 1 ranks"),
        (
            "float32",
            128,
            {"wire_bits": 8},
            "at most 127 ranks with values of float32, and this job has 128",
        ),
        ("bfloat16", 4096, {"wire_bits": 8}, "at most 127 ranks"),
        ("int8", 256, {"wire_bits": 16}, "at most 255 ranks with values of int8 up to 128, and this job has 256"),
        ("uint8", 129, {"wire_bits": 16}, "at most 128 ranks"),
        ("bool", 128, {"wire_bits": 8}, "at most 127 ranks"),
        ("int64", 2, {"wire_bits": 16}, "int64 takes as many words as the values of its packet need"),
        ("int64", 2, {"bound": 100}, "int64 takes as many words as the values of its packet need"),
        ("int64", 2, {"rounding": "stochastic"}, "is for floating-point numbers"),
    ],
)
def test_lanes_that_are_refused(dtype: str, ranks: int, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lanes_for(dtype, ranks, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["wire_bits", "seed", "bound"])
@pytest.mark.parametrize("value", [1.5, "8", True])
def test_arguments_that_are_not_integers(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"{name} is"):
        lanes_for("int8", 2, **{name: value})  # type: ignore[arg-type]


def test_a_call_says_which_lanes_it_has() -> None:
    buffer = buffer_of(np.zeros(10, np.float32))
    call = Call(3, "all_reduce", "sum", buffer, 0, Lanes(8, "stochastic", 2**64 - 1))
    assert str(call) == f"all_reduce number 3 (sum of 10 float32 wire_bits=8 rounding=stochastic seed={2**64 - 1})"
    told = str(call.to_message()["op"])
    assert told == f"sum wire_bits=8 rounding=stochastic seed={2**64 - 1}"
    assert len(told) <= 64  # the longest text that an agent accepts
    wide = call._replace(lanes=WIDE)
    assert str(wide) == "all_reduce number 3 (sum of 10 float32)"
    assert wide.to_message()["op"] == "sum wire_bits=32"
    assert call._replace(lanes=Lanes(bound=7)).to_message()["op"] == "sum wire_bits=32 bound=7"
    assert Call(3, "broadcast", "", buffer, 0).to_message()["op"] == ""


def test_codes_are_described_with_their_seed() -> None:
    assert lanes_for("float32", 64, codes="natural8", seed=5) == Lanes(seed=5, codes="natural8")
    assert str(Lanes(seed=5, codes="natural8")) == " codes=natural8 seed=5"
    assert str(Lanes(codes="dynamic8")) == " codes=dynamic8"


@pytest.mark.parametrize(
    ("dtype", "world_size", "options", "message"),
    [
        ("float32", 2, {"codes": "other"}, "codes is 'other'; it must be 'natural8' or 'dynamic8'"),
        ("int32", 2, {"codes": "natural8"}, "not for int32"),
        ("float32", 65, {"codes": "dynamic8"}, "at most 64 ranks"),
        ("float32", 2, {"codes": "natural8", "wire_bits": 8}, "have no wire_bits"),
        ("float32", 2, {"codes": "natural8", "bound": 3}, "have no wire_bits"),
    ],
)
def test_codes_that_do_not_fit_are_refused(dtype: str, world_size: int, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lanes_for(dtype, world_size, **options)
