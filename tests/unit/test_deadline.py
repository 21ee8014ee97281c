"""Deadlines of awaited operations."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from switchml.common.deadline import within


async def test_what_ends_in_time() -> None:
    async def answer() -> int:
        await asyncio.sleep(0)
        return 7

    assert await within(10, answer()) == 7


async def test_what_fails_in_time() -> None:
    async def fail() -> None:
        raise KeyError("why")

    with pytest.raises(KeyError, match="why"):
        await within(10, fail())


async def test_what_is_late_is_cancelled() -> None:
    ended = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    with pytest.raises(asyncio.TimeoutError):
        await within(0.01, wait())
    assert ended.is_set()


async def test_a_cancelled_wait_ends_after_what_it_waited_for() -> None:
    ended = asyncio.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            ended.set()

    task = asyncio.create_task(within(10, wait()))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


@pytest.mark.parametrize("fails", [True, False])
async def test_a_cancellation_is_not_lost_when_the_awaited_ends_at_the_same_moment(fails: bool) -> None:
    awaited = asyncio.get_running_loop().create_future()
    went_on = False

    async def waits() -> None:
        nonlocal went_on
        with contextlib.suppress(KeyError):
            await within(10, awaited)
        went_on = True

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    if fails:
        awaited.set_exception(KeyError("why"))
    else:
        awaited.set_result(None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not went_on
    awaited.exception()
