"""Turns of callers at one event loop: calls are served in pieces, and the caller that has used least time goes next.

A piece is what a call does between two turns: a request is read and answered, one message of a stream is handled, some
entries of a long list are made. One piece at most runs in each round of the loop, which also runs all other tasks that
are ready. So a task that needs no turn waits for one piece at most, however many callers there are.

Time is counted for each tenant and, within a tenant, for each caller, so that more connections or certificates give a
tenant no larger share. A caller that comes back after a pause has neither savings nor debts: it begins with the least
time of those that wait.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
import types
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from contextvars import ContextVar
from typing import Any, Final, Generic, TypeVar

__all__ = ["Account", "FairTurns", "become", "in_turns", "measured", "turn"]

_MOST_REMEMBERED: Final = 8192  # callers, and tenants
_PIECE_SECONDS: Final = 0.001  # of a long list


class _Share:
    """The time that a tenant, or a caller of it, has used."""

    def __init__(self) -> None:
        self.used = 0.0
        self.in_line = False


_S = TypeVar("_S", bound=_Share)
_K = TypeVar("_K")
_V = TypeVar("_V")


class _Line(Generic[_S]):
    """The shares that have work to do, the least used first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, _S]] = []
        self._numbers = itertools.count()
        self._floor = 0.0  # the time that the share which went last had used

    def __bool__(self) -> bool:
        return bool(self._heap)

    def join(self, share: _S) -> None:
        """Add a share, unless it is in the line already."""
        if not share.in_line:
            share.in_line = True
            share.used = max(share.used, self._floor)
            heapq.heappush(self._heap, (share.used, next(self._numbers), share))

    def pop(self) -> _S:
        """Remove and return the share that goes next."""
        self._floor, _, share = heapq.heappop(self._heap)
        share.in_line = False
        return share


class _Tenant(_Share):
    def __init__(self) -> None:
        super().__init__()
        self.callers: _Line[Account] = _Line()


class Account(_Share):
    """The time of one caller, and its calls that wait for their turn."""

    def __init__(self, turns: FairTurns, tenant: _Tenant) -> None:
        super().__init__()
        self.turns = turns
        self.tenant = tenant
        self.waiting: deque[asyncio.Future[None]] = deque()

    def charge(self, seconds: float) -> None:
        """Count time that was used for this caller."""
        self.used += seconds
        self.tenant.used += seconds


class FairTurns:
    """The turns at the running event loop."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()
        self._accounts: OrderedDict[tuple[str, str], Account] = OrderedDict()
        self._line: _Line[_Tenant] = _Line()
        self._last: Account | None = None  # has the turn in this round of the loop

    def account(self, tenant: str, caller: str) -> Account:
        """Return the account of a caller, which is the same for all of its calls."""
        of_tenant = _remember(self._tenants, tenant, _Tenant)
        return _remember(self._accounts, (tenant, caller), lambda: Account(self, of_tenant))

    async def wait(self, account: Account) -> None:
        """Wait for the turn of an account."""
        loop = asyncio.get_running_loop()
        if self._last is None:  # no other call wants this round
            self._last = account
            loop.call_soon(self._next)
            return
        future = loop.create_future()
        account.waiting.append(future)
        self._join(account)
        await future

    def _join(self, account: Account) -> None:
        if account.waiting:
            account.tenant.callers.join(account)
        if account.tenant.callers:
            self._line.join(account.tenant)

    def _next(self) -> None:
        """Let the next call continue; the time of the previous one has been counted."""
        assert self._last is not None, "it had the turn"
        self._join(self._last)
        self._last = None
        while self._last is None and self._line:
            account = self._line.pop().callers.pop()
            future = account.waiting.popleft()
            if future.done():  # the call was cancelled
                self._join(account)
            else:
                future.set_result(None)
                self._last = account
                asyncio.get_running_loop().call_soon(self._next)


def _remember(found: OrderedDict[_K, _V], key: _K, make: Callable[[], _V]) -> _V:
    """Return the value of a key, made if it is new, and forget the key that has not been asked for the longest time."""
    if key not in found:
        found[key] = make()
        if len(found) > _MOST_REMEMBERED:
            found.popitem(last=False)
    found.move_to_end(key)
    return found[key]


# ---- the turns of the current call -----------------------------------------------------------------------------------

_ACCOUNT: ContextVar[Account | None] = ContextVar("account", default=None)


def become(account: Account) -> None:
    """Let the current task, and those that it begins, take the turns of `account`."""
    _ACCOUNT.set(account)


async def turn() -> None:
    """Wait for the turn of the current call; call it before each piece of work. A task that is not a call goes on."""
    account = _ACCOUNT.get()
    if account is not None:
        await account.turns.wait(account)


async def in_turns(entries: Iterable[_V]) -> AsyncIterator[_V]:
    """Yield the entries of a list, in as many turns of the current call as what is done with them takes."""
    begun = time.perf_counter()
    for entry in entries:
        if time.perf_counter() - begun > _PIECE_SECONDS:
            await turn()
            begun = time.perf_counter()
        yield entry


@types.coroutine
def measured(work: Any) -> Generator[Any, Any, Any]:
    """Await a coroutine, or the next value of a generator, and count its time for the current call's caller."""
    account = _ACCOUNT.get()
    if account is None:
        return (yield from work.__await__())
    value, error = None, None
    while True:
        begun = time.perf_counter()
        try:
            awaited = work.send(value) if error is None else work.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            account.charge(time.perf_counter() - begun)
        value, error = None, None
        try:
            value = yield awaited
        except BaseException as raised:  # also CancelledError and GeneratorExit, which the work sees at its await
            error = raised
