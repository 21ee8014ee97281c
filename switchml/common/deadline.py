"""Waiting for a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

__all__ = ["first_of", "within"]

T = TypeVar("T")


async def within(seconds: float, awaitable: Awaitable[T]) -> T:
    """Return the result of `awaitable`, which may take `seconds`.

    After a timeout or a cancellation of the caller, the awaitable has ended when this returns. Unlike with
    `asyncio.wait_for` before Python 3.12, a cancellation that comes just as the awaitable ends is not lost.

    Raises:
        asyncio.TimeoutError: it did not end in time, and was cancelled.

    """
    task = asyncio.ensure_future(awaitable)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done:
            raise asyncio.TimeoutError
    except BaseException:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    return task.result()


async def first_of(one: asyncio.Future[Any], other: asyncio.Future[Any], seconds: float) -> None:
    """Return when one of the two is done, or after `seconds` at the latest."""
    await asyncio.wait({one, other}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
