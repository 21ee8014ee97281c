"""Runs the communication hook of a DDP model for one bucket at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["InOrder"]

_Hook = Callable[[Any, dist.GradBucket], torch.futures.Future[torch.Tensor]]


class InOrder:
    """The state of `hooks.in_order_hook` for one DDP model: another hook, with that hook's own state.

    If a hook makes a second collective in a callback of its first one, the time of that call is the time at which the
    callback runs. With several buckets in flight the ranks then call in different orders, which no backend can match.
    So the hook is called for a bucket only after its future for the previous bucket is complete; buckets do not
    overlap.

    Args:
        state: the hook's first argument.
        hook: any DDP communication hook, for example `powerSGD_hook.powerSGD_hook`.

    """

    def __init__(self, state: Any, hook: _Hook) -> None:
        self._state = state
        self._hook = hook
        self._latest: torch.futures.Future[torch.Tensor] | None = None  # of the current or the last pass

    def submit(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Return the future of the hook's result for `bucket`. It fails with the error of this or an earlier bucket."""
        # DDP numbers the buckets of each backward pass from 0, in the order in which it calls the hook.
        before = self._latest if bucket.index() else None
        tensor = bucket.buffer()
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future(
            devices=[tensor.device] if tensor.is_cuda else None
        )
        # DDP reads a future's error in C++, which gets the message only if a callback raised the error.
        self._latest = done.then(_value)
        if before is None:
            self._call_hook(bucket, done)
        else:
            before.then(lambda future: self._call_hook_after(future, bucket, done))
        return self._latest

    def _call_hook_after(
        self,
        before: torch.futures.Future[torch.Tensor],
        bucket: dist.GradBucket,
        done: torch.futures.Future[torch.Tensor],
    ) -> None:
        try:
            before.value()
        except Exception as error:
            done.set_exception(error)
            return
        self._call_hook(bucket, done)

    def _call_hook(self, bucket: dist.GradBucket, done: torch.futures.Future[torch.Tensor]) -> None:
        try:
            future = self._hook(self._state, bucket)
        except Exception as error:
            done.set_exception(error)
            return
        future.then(lambda result: _hand_on(result, done))


def _hand_on(result: torch.futures.Future[torch.Tensor], done: torch.futures.Future[torch.Tensor]) -> None:
    try:
        value = result.value()
    except Exception as error:
        done.set_exception(error)
        return
    done.set_result(value)


def _value(done: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
    return done.value()
