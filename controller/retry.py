"""Repeat a request while the controller is away, as agents do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from switchml.controller.errors import (
    ConfigError,
    ControllerError,
    ControllerUnavailable,
    DeadlineExceeded,
    InternalError,
    StoreError,
    TooManyCalls,
)

__all__ = ["ABSENCE_SECONDS", "Retry", "ask"]

ABSENCE_SECONDS: Final = 60.0
"""The time for which a program that only watches asks again for a controller that has answered before."""

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 1.0

# After these, the same request may get an answer: the controller restarts, stalls, is busy, or has no room on its disk,
# or a certificate is just being replaced.
_NO_ANSWER: Final = (ControllerUnavailable, DeadlineExceeded, TooManyCalls, InternalError, StoreError, ConfigError)

T = TypeVar("T")


class Retry:
    """The attempts of a request that may be repeated.

    They end when `give_up` returns true, or the controller has not answered for `seconds`. `notice` is called when an
    absence begins and ends.
    """

    def __init__(
        self,
        seconds: float = float("inf"),
        *,
        give_up: Callable[[], bool] = lambda: False,
        notice: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._seconds = seconds
        self._give_up = give_up
        self._notice = notice
        self._since: float | None = None  # the beginning of the absence
        self._pause = _FIRST_PAUSE

    @property
    def away(self) -> bool:
        """True if the latest attempt has failed."""
        return self._since is not None

    def answered(self) -> None:
        """Record that the controller has answered."""
        if self.away:
            self._notice("the controller answers again")
        self._since, self._pause = None, _FIRST_PAUSE

    def failed(self, error: ControllerError) -> None:
        """Pause before the next attempt; raise `error` if it is the controller's answer or the attempts are over."""
        if not isinstance(error, _NO_ANSWER):
            raise error
        now = time.monotonic()
        if not self.away:
            self._since = now
        assert self._since is not None
        if self._give_up() or now - self._since >= self._seconds:
            raise error
        if self._since == now:
            self._notice(f"{error}; asking again")
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


def ask(request: Callable[[], T], retry: Retry) -> T:
    """Return the answer to a request that may be repeated. Raises what `request` raises when the attempts are over."""
    while True:
        try:
            answer = request()
        except ControllerError as error:  # noqa: PERF203
            retry.failed(error)
        else:
            retry.answered()
            return answer
