"""A deadline for what is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["within"]

Result = TypeVar("Result")


async def within(seconds: float, awaitable: Awaitable[Result]) -> Result:
    """Return what an awaitable yields; cancel it after ``seconds`` and raise asyncio.TimeoutError.

    asyncio.wait_for does the same, but before Python 3.12 it forgets that it was cancelled when the awaitable ends at
    that moment: a driver that was told to end would go on for ever.
    """
    task = asyncio.ensure_future(awaitable)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if done:
            return task.result()
    finally:
        task.cancel()
    await asyncio.wait({task})
    raise asyncio.TimeoutError
