"""Notice at once that a switch that shares memory with ranks has ended: its end of their connections closes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from switchml.host_agent._engine import Engine

__all__ = ["SwitchWatch"]


class SwitchWatch:
    """The connections of all ranks to the switch. It belongs to one event loop.

    The switch sends only answers there, which the requester reads, and closes a rank's connection only when it ends.
    Ranks over UDP have no such connection.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, handle: int, gone: Callable[[], None]) -> None:
        """Call `gone`, once, when the switch of the rank with this handle has ended."""
        descriptor = self._engine.switch_socket(handle)
        if descriptor >= 0:
            asyncio.get_running_loop().add_reader(descriptor, self._gone, handle, gone)

    def end(self, handle: int) -> None:
        """Forget the rank; must be called before it is closed."""
        descriptor = self._engine.switch_socket(handle)
        if descriptor >= 0:
            asyncio.get_running_loop().remove_reader(descriptor)

    def _gone(self, handle: int, gone: Callable[[], None]) -> None:
        if self._engine.switch_ended(handle):
            self.end(handle)
            gone()
