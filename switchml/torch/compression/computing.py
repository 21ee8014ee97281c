"""The work of a method itself. Requests are answered at once, as if every rank had the same gradient."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from switchml.torch.compression.compressor import Compressor, Place
from switchml.torch.compression.memory import ErrorFeedback
from switchml.torch.compression.requests import Gather, Request, Sum
from switchml.torch.compression.sums import SharedTopK

__all__ = ["seconds_of_shared_topk", "timed_rounds"]


def seconds_of_shared_topk(elements: int) -> float:
    """Return the seconds in which this rank does its part of the shared Top-k of a gradient.

    All ranks call it at about the same time, as they compress in a step. Rank 0 is the leader, who searches.
    """
    ranks = dist.get_world_size()
    compressor, memory = SharedTopK(), ErrorFeedback()
    memory.attach({"gradient": elements})
    gradient = torch.randn(elements)
    seconds = 0.0
    for step in (0, ranks):  # of which rank 0 is the leader; the first time touches the memory
        begin = time.perf_counter()
        gradient.sum().isfinite()  # here and below, the passes of `compression_hook`
        whole = memory.begin("gradient", gradient)
        timed_rounds(compressor, whole, Place("gradient", step, dist.get_rank(), ranks))
        memory.end("gradient", whole)
        gradient.copy_(whole)
        seconds = time.perf_counter() - begin
    return seconds


def timed_rounds(compressor: Compressor, gradient: Tensor, place: Place) -> tuple[float, float]:
    """Return the seconds until the last request, and those after its answer."""
    rounds = compressor.rounds(gradient, place)
    parts: list[float] = []
    answer: Any = None
    with torch.no_grad():
        while True:
            begin = time.perf_counter()
            try:
                request = rounds.send(answer)
            except StopIteration:
                return sum(parts), time.perf_counter() - begin
            parts.append(time.perf_counter() - begin)
            answer = _answer(request, place.size)


def _answer(request: Request, size: int) -> Tensor:
    """Return the result of a request to which all ranks contribute the same values."""
    if isinstance(request, Sum):
        return request.values.to(torch.int32) * size
    if isinstance(request, Gather):
        return request.answer(request.values.repeat(size, 1))
    return request.values.clone()
