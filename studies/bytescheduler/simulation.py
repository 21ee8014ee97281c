"""A training step in which the next forward pass starts before all gradients are averaged.

The step begins with the backward pass and ends with the next forward pass, which starts a layer as soon as that layer's
gradients are averaged. The policies are those of `switchml.torch.scheduling`.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from switchml.client.schedules import Policy, Segment, plan

__all__ = ["Layer", "step_time", "vgg_like"]

_SHARES: Final = (2, 2, 4, 8, 8, 16, 24, 40)  # of the bytes: most are in the last layers, as in VGG
_WORK: Final = (2, 2, 2, 2, 2, 2, 1, 1)  # shares of the computing: most is in the first layers
_BACKWARD: Final = 2.0  # times as long as forward: it computes the gradients of inputs and of parameters


@dataclasses.dataclass(frozen=True)
class Layer:
    """The times that a layer computes in the two passes, and the size of its gradients in bytes."""

    forward: float
    backward: float
    size: int


def vgg_like(size: int, seconds: float, grain: int = 1) -> list[Layer]:
    """Return eight layers with about `size` bytes, whose forward passes together take `seconds`.

    The size of each layer is a multiple of `grain`.
    """
    return [
        Layer(
            forward=seconds * work / sum(_WORK),
            backward=_BACKWARD * seconds * work / sum(_WORK),
            size=max(1, round(size * share / sum(_SHARES) / grain)) * grain,
        )
        for share, work in zip(_SHARES, _WORK, strict=True)
    ]


@dataclasses.dataclass
class _Transfer:
    segment: Segment
    left: float  # the time that the link still needs for it


def step_time(
    layers: Sequence[Layer],
    policy: Policy,
    bytes_per_second: float = 1.0,
    overhead: float = 0.0,
    streams: bool = False,
    grain: int = 1,
) -> float:
    """Return the time of a step.

    Args:
        layers: the layers, in the order of the forward pass; layers of size 0 have no gradients.
        policy: the policy. "tic" and "tac" are the order of the layers: TicTac's orders of a chain.
        bytes_per_second: the rate of the link.
        overhead: the seconds that the link needs for a segment in addition.
        streams: False: the link sends what was started first, and the credit is common to all classes, as in
            ByteScheduler. True: the link always sends a part of the most urgent class, and a class is given credit
            without regard to less urgent ones, as `ScheduledOptimizer` does on streams with priorities.
        grain: buckets are cut at multiples of this number of bytes.

    """
    used = [number for number, layer in enumerate(layers) if layer.size]
    sizes = [layers[number].size for number in used]
    order = list(range(len(used)))
    ready = _ready_times(layers, used)
    link = _Link(plan(policy, sizes, order[::-1], order, grain), policy.credit, streams)
    arrived = link.run(ready, lambda segment: segment.size / bytes_per_second + overhead)
    now = sum(layer.backward for layer in layers)
    of_layer = dict(zip(used, arrived, strict=True))
    for number, layer in enumerate(layers):
        now = max(now, of_layer.get(number, 0.0)) + layer.forward
    return now


def _ready_times(layers: Sequence[Layer], used: Sequence[int]) -> list[float]:
    """Return the times at which the backward pass has made the gradients of the layers `used`."""
    now, times = 0.0, {}
    for number in reversed(range(len(layers))):
        now += layers[number].backward
        times[number] = now
    return [times[number] for number in used]


class _Link:
    """The segments that wait, by class, and the transfers that were started."""

    def __init__(self, classes: Sequence[Sequence[Segment]], credit: int | None, streams: bool) -> None:
        self._waiting = [deque(segments) for segments in classes]
        self._started: list[_Transfer] = []
        self._credit = float("inf") if credit is None else credit
        self._streams = streams

    def run(self, ready: Sequence[float], seconds_of: Callable[[Segment], float]) -> list[float]:
        """Return the time at which each bucket has arrived.

        Args:
            ready: the time at which each bucket is ready.
            seconds_of: a function that returns the time of a segment on the link.

        """
        arrived = [0.0] * len(ready)
        now = 0.0
        while any(self._waiting) or self._started:
            self._start(now, ready, seconds_of)
            coming = min((time for time in ready if time > now), default=float("inf"))
            if not self._started:
                now = coming
                continue
            transfer = min(self._started, key=lambda one: one.segment.priority) if self._streams else self._started[0]
            if now + transfer.left > coming:
                transfer.left -= coming - now
                now = coming
                continue
            now += transfer.left
            self._started.remove(transfer)
            arrived[transfer.segment.bucket] = now  # the last of its segments counts
        return arrived

    def _start(self, now: float, ready: Sequence[float], seconds_of: Callable[[Segment], float]) -> None:
        for priority, waiting in enumerate(self._waiting):
            while waiting and ready[waiting[0].bucket] <= now and self._in_flight(priority) < self._credit:
                segment = waiting.popleft()
                self._started.append(_Transfer(segment, seconds_of(segment)))

    def _in_flight(self, priority: int) -> int:
        counted = (one.segment for one in self._started if not self._streams or one.segment.priority <= priority)
        return sum(segment.size for segment in counted)
