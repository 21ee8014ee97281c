"""Ranks that close while others go on: no later call of those can end, and they are told so.

A rank that closes has the results of all its calls, and the switch keeps what the others still have to fetch. So they
complete the calls that it has made, and only what comes after them fails, at each rank, by the number of the call.
"""

from __future__ import annotations

import asyncio
from typing import Final

from switchml.controller.agents import Agents
from switchml.controller.jobs.live import LiveJob

__all__ = ["Closings"]

_TOGETHER_SECONDS: Final = 0.2  # ranks that close within this time need no message: it is how most jobs end


class Closings:
    """Tells the agents of a job which of its ranks have closed after the fewest calls."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    def closed(self, live: LiveJob, rank: int, calls: int) -> None:
        """Record that a rank has closed after this number of calls, and tell the ranks that go on."""
        fewest = min(live.closed_after.values(), default=calls + 1)
        live.closed_after[rank] = calls
        if calls < fewest:
            asyncio.get_running_loop().call_later(_TOGETHER_SECONDS, self._tell, live)

    def _tell(self, live: LiveJob) -> None:
        message = live.ranks_closed()
        if live.ending is None and message is not None:
            self._agents.tell({rank.agent for rank in live.job.ranks if not rank.ended}, message)
