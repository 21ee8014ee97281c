"""The wires of sums: which can be made, for what they are, their texts, and what a call is said to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from switchml import _native
from switchml.client.calls import Call, checked_skipping
from switchml.client.tensors import buffer_of
from switchml.client.wire import Blocks, Codes, Floats, Integers, Wire, parse_wire, refuse_old_keywords

EVERY_FORMAT = 2**32 - 1


def require(wire: Wire | None, dtype: str, ranks: int) -> str:
    """Return an all-reduce of `dtype` over `wire` in words; raise ValueError if it cannot be."""
    described = _native.describe(
        "all_reduce",
        op="sum",
        dtype=dtype,
        element_bytes=1,
        elements=10,
        root=0,
        wire=None if wire is None else wire.text,
        skip_zeros="no",
        world_size=ranks,
        formats=EVERY_FORMAT,
    )
    return described.in_words(0)


@pytest.mark.parametrize(
    ("dtype", "ranks", "wire"),
    [
        ("float32", 64, Blocks(8, "stochastic", 9)),
        ("bfloat16", 8, Blocks(16)),
        ("float32", 127, Blocks(8)),
        ("float16", 4096, Blocks(16)),
        ("float16", 64, Codes("dynamic8")),
        ("bfloat16", 4096, Codes("natural8", 5)),
        ("bfloat16", 4096, Floats()),
        ("int8", 64, Integers(16)),
        ("uint8", 64, Integers(16)),
        ("bool", 64, Integers(8)),
        ("int8", 255, Integers(16)),
        ("uint8", 128, Integers(16)),
        ("bool", 4096, Integers(16)),
        ("bool", 127, Integers(8)),
        ("int64", 64, Integers()),
        ("int32", 4096, Integers()),
        ("int16", 64, Integers(16, 511)),
        ("int8", 4, Integers(8, 31)),
        ("int32", 2, Integers(bound=2**30 - 1)),
        ("uint8", 64, Integers(16, 10_000)),
    ],
)
def test_wires_that_hold_their_sums(dtype: str, ranks: int, wire: Wire) -> None:
    require(wire, dtype, ranks)
    assert parse_wire(str(wire)) == wire


def test_the_usual_wires() -> None:
    for dtype in ("float32", "float16", "bfloat16"):
        assert require(None, dtype, 4096).endswith(" as blocks)")
    for dtype in ("int64", "int32", "int16", "int8", "uint8", "bool"):
        assert require(None, dtype, 4096).endswith(" as integers)")


@pytest.mark.parametrize(
    ("dtype", "ranks", "wire", "message"),
    [
        ("int8", 2, Blocks(16), "wire blocks:bits=16 is for float32, float16, bfloat16, not for int8"),
        ("float32", 128, Blocks(8), "at most 127 ranks with values of float32, and this job has 128"),
        ("bfloat16", 4096, Blocks(8), "at most 127 ranks"),
        ("float32", 2, Integers(bound=3), "wire integers:bound=3 is for integers, not for float32"),
        ("float32", 2, Integers(), "wire integers is for integers, not for float32"),
        ("int8", 5, Integers(8, 31), "at most 4 ranks with values of int8 up to 31, and this job has 5"),
        ("int8", 2, Integers(8), "at most 0 ranks with values of int8 up to 128"),
        ("int16", 2, Integers(16), "at most 0 ranks with values of int16 up to 32768"),
        ("int16", 33, Integers(16, 1000), "at most 32 ranks"),
        ("int32", 3, Integers(bound=2**30), "at most 1 ranks"),
        ("int8", 256, Integers(16), "at most 255 ranks with values of int8 up to 128, and this job has 256"),
        ("uint8", 129, Integers(16), "at most 128 ranks"),
        ("bool", 128, Integers(8), "at most 127 ranks"),
        ("int64", 2, Integers(16), "int64 takes as many words as the values of its packet need"),
        ("int64", 2, Integers(bound=100), "int64 takes as many words as the values of its packet need"),
        ("int64", 2, Blocks(16), "not for int64"),
        ("int32", 2, Codes("natural8"), "not for int32"),
        ("float32", 65, Codes("dynamic8"), "at most 64 ranks"),
        ("int32", 2, Floats(), "wire floats is for float32, float16, bfloat16, not for int32"),
    ],
)
def test_sums_for_which_a_wire_is_not(dtype: str, ranks: int, wire: Wire, message: str) -> None:
    with pytest.raises(ValueError, match=rf"{message}(.|\n)*The array is unchanged"):
        require(wire, dtype, ranks)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Blocks(12), "bits is 12; it must be 8, 16 or 32"),
        (lambda: Integers(0), "bits is 0"),
        (lambda: Blocks(16, "up"), "rounding is 'up'"),  # type: ignore[arg-type]
        (lambda: Blocks(rounding="stochastic"), "is for bits of 16 or 8"),
        (lambda: Blocks(8, seed=4), 'seed=4 is for rounding="stochastic"'),
        (lambda: Blocks(8, "stochastic", -1), "seed is -1"),
        (lambda: Codes("natural8", 2**64), "seed is"),
        (lambda: Codes("other"), "codes are 'other'; they must be 'natural8' or 'dynamic8'"),  # type: ignore[arg-type]
        (lambda: Integers(bound=0), "bound is 0; it must be from 1"),
        (lambda: Integers(bound=2**31), "it must be from 1"),
    ],
)
def test_wires_that_cannot_be_made(make: Callable[[], Wire], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("value", [1.5, "8", True])
def test_arguments_that_are_not_integers(value: Any) -> None:
    for make in (Blocks, Integers, lambda bits: Blocks(8, "stochastic", bits), lambda bits: Integers(bound=bits)):
        with pytest.raises(TypeError, match="it must be an integer"):
            make(value)
    assert Blocks(np.int64(16)) == Blocks(16)
    assert type(Blocks(np.int64(16)).bits) is int


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it must begin with blocks, integers, codes, floats"),
        ("8", "it must begin with"),
        ("blocks:16", "blocks takes bits=, rounding=, seed=, not '16'"),
        ("blocks:width=16", "not 'width=16'"),
        ("blocks:bits=12", "bits is 12"),
        ("blocks:bits=many", "bits is many; it must be 8, 16 or 32"),
        ("codes", "codes need a name: name=natural8 or name=dynamic8"),
        ("codes:name=other", "codes are 'other'"),
        ("floats:bits=8", "floats takes no arguments, not 'bits=8'"),
    ],
)
def test_texts_of_no_wire(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"'{text}' is not a wire: .*{message}"):
        parse_wire(text)


def test_keywords_of_version_0_1_are_told_what_to_write() -> None:
    refuse_old_keywords("all_reduce", {})
    for name, instead in (("wire_bits", "wire=Blocks"), ("sparse", "skip_zeros="), ("arithmetic", r"wire=Floats\(\)")):
        with pytest.raises(TypeError, match=rf"all_reduce\(\) has no argument '{name}'; write {instead}"):
            refuse_old_keywords("all_reduce", {name: 8})
    with pytest.raises(TypeError, match=r"has no argument 'wires'$"):
        refuse_old_keywords("all_reduce", {"wires": 8})


def test_blocks_that_are_left_out() -> None:
    unknown: Any = "on"
    with pytest.raises(ValueError, match="skip_zeros is 'on'; it must be False, True or \"auto\""):
        checked_skipping(unknown, Blocks())
    for wire in (Floats(), Codes("natural8")):
        assert checked_skipping(False, wire) is False
        with pytest.raises(ValueError, match=f"a call over {wire} has no skip_zeros"):
            checked_skipping("auto", wire)


def test_a_call_says_which_wire_it_has() -> None:
    buffer = buffer_of(np.zeros(10, np.float32))
    wire = Blocks(8, "stochastic", 2**64 - 1)
    call = Call("all_reduce", "sum", buffer, wire=wire).described(8, EVERY_FORMAT)
    text = f"blocks:bits=8,rounding=stochastic,seed={2**64 - 1}"
    assert call.in_words(3) == f"all_reduce number 3 (sum of 10 float32 as {text})"
    wide = Call("all_reduce", "sum", buffer, skip_zeros="auto").described(8, EVERY_FORMAT)
    assert wide.in_words(4) == "all_reduce number 4 (sum of 10 float32 as blocks skip_zeros=auto)"
    assert Call("barrier").described(8, EVERY_FORMAT).in_words(5) == "barrier number 5"


def test_switches_that_cannot_sum_a_wire() -> None:
    buffer = buffer_of(np.zeros(10, np.float32))
    formats = 1 << _native.FORMAT_NATURAL8
    Call("all_reduce", "sum", buffer, wire=Codes("natural8")).described(8, formats)
    for wire, message in ((Codes("dynamic8"), "cannot sum dynamic8 codes"), (Floats(), "do not add floats")):
        with pytest.raises(ValueError, match=f"{message}.*use another wire, or none"):
            Call("all_reduce", "sum", buffer, wire=wire).described(8, formats)
