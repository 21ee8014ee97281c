"""Encodings of large groups: threads stand for ranks with equal tensors, and their contributions are added up here."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from switchml.client.calls import Call
from switchml.client.communicator import Communicator
from switchml.client.tensors import buffer_of
from switchml.client.wire import Wire
from switchml.torch.deadlines import Deadline
from switchml.torch.encodings import encode
from switchml.torch.options import Options
from switchml.torch.reductions import Reduction

RANKS = (2, 64, 65, 128, 129, 255, 256, 257, 1024, 4096)
DEADLINE = 60.0


class Adder:
    """Adds up the calls of threads, each of which stands for a number of ranks."""

    def __init__(self, counts: list[int]) -> None:
        self.ranks = sum(counts)
        self._counts = counts
        self._together = threading.Barrier(len(counts), timeout=DEADLINE)
        self._given: list[Tensor] = [torch.empty(0)] * len(counts)

    def add(self, thread: int, values: Tensor, wire: Wire | None) -> None:
        Call("all_reduce", "sum", buffer_of(values), wire=wire).described(self.ranks, 2**32 - 1)  # or raises
        bits = getattr(wire, "bits", 32)
        self._given[thread] = values.to(torch.int64)
        self._together.wait()
        total = torch.stack([count * given for count, given in zip(self._counts, self._given, strict=True)]).sum(0)
        self._together.wait()
        if bits < 32:
            assert -(2 ** (bits - 1)) <= int(total.min()) <= int(total.max()) < 2 ** (bits - 1)
        values.copy_(total if values.dtype != torch.bool else total != 0)


class OneOf:
    """The communicator of one thread."""

    def __init__(self, adder: Adder, thread: int) -> None:
        self._adder = adder
        self._thread = thread

    def all_reduce(self, values: Tensor, _op: str = "sum", wire: Wire | None = None, **_options: Any) -> None:
        self._adder.add(self._thread, values, wire)


def reduced(reduction: str, kinds: list[tuple[int, Tensor]]) -> Tensor:
    """Return the result over ranks of several kinds, each of them a number of ranks and the tensor that these have."""
    adder = Adder([count for count, _ in kinds])
    tensors = [tensor.clone() for _, tensor in kinds]

    def run(thread: int) -> None:
        encoding = encode(tensors[thread], Reduction(reduction), adder.ranks, Options())
        encoding.start(cast("Communicator", OneOf(adder, thread)), Deadline.after(timedelta(seconds=DEADLINE)))
        encoding.finish()

    threads = [threading.Thread(target=run, args=(thread,), daemon=True) for thread in range(len(kinds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert all(torch.equal(tensor.nan_to_num(7), tensors[0].nan_to_num(7)) for tensor in tensors)
    return tensors[0]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
def test_averages_of_integers_are_exact(dtype: torch.dtype, ranks: int) -> None:
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    one, others = torch.tensor([low, high, high, 3], dtype=dtype), torch.tensor([low, high, 0, 5], dtype=dtype)
    expected = [int((a + (ranks - 1) * b) / ranks) for a, b in zip(one.tolist(), others.tolist(), strict=True)]
    assert reduced("avg", [(1, one), (ranks - 1, others)]).tolist() == expected


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.bool])
def test_sums_fit_their_lanes(dtype: torch.dtype, ranks: int) -> None:
    largest = True if dtype == torch.bool else torch.iinfo(dtype).max
    one, others = torch.tensor([largest, 0], dtype=dtype), torch.full((2,), largest, dtype=dtype)
    found = reduced("sum", [(1, one), (ranks - 1, others)])
    sums = torch.tensor([ranks * int(largest), (ranks - 1) * int(largest)])
    assert torch.equal(found, (sums != 0) if dtype == torch.bool else sums.to(dtype))
