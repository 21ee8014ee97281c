"""Limits on the calls in progress, so that agents and administrators can always make calls."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Final, TypeVar

from switchml.common.grpc_connections import BusyPeers
from switchml.common.role import Role
from switchml.controller.agents import MAX_AGENTS
from switchml.controller.errors import TooManyCalls

__all__ = ["CALLS_AT_ONCE", "CALLS_OF_A_CALLER", "CALLS_OF_OTHERS", "CallLimits"]

CALLS_OF_A_CALLER: Final = 256
"""The limit for one name in an organization with a role, unless it is an administrator's."""
CALLS_OF_OTHERS: Final = 1024
"""The limit for all callers that are neither agents nor administrators."""
CALLS_AT_ONCE: Final = 2 * MAX_AGENTS
"""The limit for all callers together; each agent's session is a call, and each `job watch` and `events --follow`."""

_Key = TypeVar("_Key")
_OTHERS: Final = "the group of all viewers and operators"


class CallLimits:
    """Counts the calls in progress, by caller and by connection. Callers without a certificate have no limit."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self.peers = BusyPeers()

    def begin(self, grpc_peer: str, name: str = "", role: Role = Role.ADMIN) -> contextlib.ExitStack:
        """Count a call until the returned context ends; `name` is the full name in the caller's certificate.

        Raises:
            TooManyCalls: the caller, or its group of callers, has reached its limit.

        """
        limits = {} if role is Role.ADMIN else {f"{role.value} {name}": CALLS_OF_A_CALLER}
        if role not in (Role.ADMIN, Role.AGENT):
            limits[_OTHERS] = CALLS_OF_OTHERS
        for who, most in limits.items():
            if self._calls[who] >= most:
                raise TooManyCalls(
                    f"{who} has {most} calls under way, and may have no more; end some of them", calls=most
                )
        ended = contextlib.ExitStack()
        for who in limits:
            _count(self._calls, who, ended)
        ended.enter_context(self.peers.call(grpc_peer))
        return ended


def _count(calls: Counter[_Key], key: _Key, ended: contextlib.ExitStack) -> None:
    calls[key] += 1
    ended.callback(_uncount, calls, key)


def _uncount(calls: Counter[_Key], key: _Key) -> None:
    calls[key] -= 1
    if not calls[key]:
        del calls[key]
