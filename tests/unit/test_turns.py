"""The turns of callers at an event loop: fair by tenant and by caller, one piece in each round of the loop."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable

import pytest

from switchml.common.shared_readings import SharedReadings
from switchml.common.turns import FairTurns, become, in_turns, measured, turn


async def rounds_until(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("not within 10,000 rounds of the loop")


class Work:
    """Calls of several callers, whose pieces take times that the test gives; `order` has the caller of each piece."""

    def __init__(self) -> None:
        self.turns = FairTurns()
        self.order: list[str] = []

    async def call(self, tenant: str, caller: str, pieces: int, seconds: float) -> None:
        account = self.turns.account(tenant, caller)
        become(account)
        for _ in range(pieces):
            await turn()
            self.order.append(caller)
            account.charge(seconds)

    async def run(self, *calls: tuple[str, str, int, float]) -> list[str]:
        await asyncio.gather(*(asyncio.create_task(self.call(*one)) for one in calls))
        return self.order


async def test_a_caller_with_many_calls_gets_the_share_of_one() -> None:
    order = await Work().run(*[("t", "many", 10, 1.0)] * 250, ("t", "one", 20, 1.0))
    assert Counter(order[:41]) == pytest.approx({"many": 20, "one": 20}, abs=1)


async def test_a_tenant_with_many_callers_gets_the_share_of_one_tenant() -> None:
    crowd = [("crowd", f"c{number}", 10, 1.0) for number in range(100)]
    order = await Work().run(*crowd, ("other", "one", 20, 1.0))
    assert order[:41].count("one") == pytest.approx(20, abs=1)


async def test_long_pieces_are_paid_for() -> None:
    order = await Work().run(*[("t", "long", 10, 1.0)] * 10, ("t", "short", 100, 0.01))
    assert order.index("short") <= 2
    before = order[: len(order) - order[::-1].index("short")]
    assert before.count("long") <= 3


async def test_a_caller_that_comes_later_waits_for_one_piece_only() -> None:
    work = Work()
    flood = asyncio.gather(*(asyncio.create_task(work.call("t", "flood", 20, 1.0)) for _ in range(100)))
    await rounds_until(lambda: len(work.order) >= 500)
    began = len(work.order)
    await work.call("t", "late", 1, 0.001)
    assert work.order.index("late") - began <= 2
    await flood


async def test_other_tasks_run_between_two_pieces() -> None:
    work, rounds = Work(), 0
    flood = asyncio.gather(*(asyncio.create_task(work.call("t", "flood", 5, 1.0)) for _ in range(50)))
    while not flood.done():
        before = len(work.order)
        await asyncio.sleep(0)
        rounds += 1
        assert len(work.order) - before <= 1
    assert rounds >= 250
    await flood


async def test_a_caller_saves_up_no_time() -> None:
    work = Work()
    await work.run(("t", "busy", 50, 1.0))
    order = await work.run(*[("t", "busy", 10, 1.0)] * 2, *[("t", "idle", 40, 1.0)] * 2)
    assert Counter(order[50:90]) == pytest.approx({"busy": 20, "idle": 20}, abs=2)


async def test_cancelled_calls_lose_their_turns() -> None:
    work = Work()
    tasks = [asyncio.create_task(work.call("t", f"c{number % 3}", 3, 1.0)) for number in range(30)]
    await asyncio.sleep(0)
    for task in tasks[:20]:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(one, asyncio.CancelledError) for one in outcomes) == 20
    await work.run(("t", "next", 3, 1.0))
    assert work.order[-3:] == ["next"] * 3


async def test_a_task_that_is_not_a_call_needs_no_turn() -> None:
    await turn()
    assert [entry async for entry in in_turns(range(3))] == [0, 1, 2]

    async def answer() -> int:
        return 7

    assert await measured(answer()) == 7


async def test_the_time_of_each_step_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("switchml.common.turns.time.perf_counter", lambda: now)
    account = FairTurns().account("t", "c")
    become(account)

    def use(seconds: float) -> None:
        nonlocal now
        now += seconds

    async def work() -> str:
        use(1.0)
        await asyncio.sleep(0)  # time that other tasks use here is not counted
        use(2.0)
        with pytest.raises(ZeroDivisionError):
            await fails()
        return "done"

    async def fails() -> None:
        await asyncio.sleep(0)
        use(4.0)
        raise ZeroDivisionError

    assert await measured(work()) == "done"
    assert account.used == account.tenant.used == 7.0


async def test_a_cancelled_step_ends_its_work() -> None:
    become(FairTurns().account("t", "c"))
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def call() -> None:
        await measured(work())

    task = asyncio.create_task(call())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_readings_are_shared_and_never_older_than_the_question() -> None:
    readings: SharedReadings[int] = SharedReadings()
    begun = 0
    go_on = asyncio.Event()

    async def read() -> int:
        nonlocal begun
        begun += 1
        mine = begun
        await go_on.wait()
        return mine

    first = asyncio.create_task(readings.get("key", read))
    await rounds_until(lambda: begun == 1)
    later = [asyncio.create_task(readings.get("key", read)) for _ in range(50)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert begun == 1
    go_on.set()
    assert await first == 1
    assert await asyncio.gather(*later) == [2] * 50
    assert await readings.get("key", read) == 3


async def test_an_error_reaches_all_who_asked(caplog: pytest.LogCaptureFixture) -> None:
    readings: SharedReadings[int] = SharedReadings()

    async def fails() -> int:
        raise ZeroDivisionError

    outcomes = await asyncio.gather(*(readings.get("key", fails) for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in outcomes] == [ZeroDivisionError] * 3
    asking = asyncio.create_task(readings.get("key", fails))
    await asyncio.sleep(0)
    asking.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()
    assert not caplog.records
