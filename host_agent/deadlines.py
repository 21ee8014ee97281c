"""Waiting for a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["first_of", "within"]

T = TypeVar("T")


async def within(seconds: float, coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what `coroutine` returns.

    Unlike `asyncio.wait_for` before Python 3.12, it never loses a cancellation that comes just as the coroutine ends.

    Raises:
        asyncio.TimeoutError: it did not end in time, and was cancelled.

    """
    task = asyncio.ensure_future(coroutine)
    try:
        done, _ = await asyncio.wait([task], timeout=seconds)
        if not done:
            raise asyncio.TimeoutError
    except BaseException:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    return task.result()


async def first_of(one: asyncio.Future[Any], other: asyncio.Future[Any], seconds: float) -> None:
    """Return when one of the two is done, and at the latest after `seconds`."""
    await asyncio.wait({one, other}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
