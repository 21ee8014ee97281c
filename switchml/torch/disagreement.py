"""Names the calls of ranks that wait for each other because they call differently, one in the network, one over Gloo.

The switch compares the calls in the network. But if one rank asks for a sum and another for the maximum, which goes
over Gloo, each waits on another path until its time is over. Then each writes into the store what it has waited for.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Final

__all__ = ["other_calls"]

_WAIT_SECONDS: Final = 2.0  # for the others, whose time may be over a little later
_LOOK_SECONDS: Final = 0.02


def other_calls(store: Any, rank: int, size: int, call: str) -> str:
    """Publish the `call` of this rank that is out of time, and return a sentence if other ranks made other ones.

    Args:
        store: the group's store; if it does not answer, an empty string is returned.
        rank: this rank.
        size: the number of ranks.
        call: the call, in words.

    """
    calls: dict[int, str] = {}
    # An operation of the store takes as long as its process does not answer.
    thread = threading.Thread(target=_exchange, args=(store, rank, size, call, calls), daemon=True)
    thread.start()
    thread.join(_WAIT_SECONDS + 1)
    if set(calls.values()) <= {call}:
        return ""
    said = "; ".join(f"rank {number}: {other}" for number, other in sorted(calls.items()))
    return f"The ranks call differently: {said}."


def _exchange(store: Any, rank: int, size: int, call: str, calls: dict[int, str]) -> None:
    """Write the call of this rank, and wait for those of the others (thread)."""
    keys = {number: f"out of time/{number}" for number in range(size)}
    end = time.monotonic() + _WAIT_SECONDS
    with contextlib.suppress(Exception):  # of a store whose process has ended
        store.set(keys[rank], call)
        while True:
            here = [number for number, key in keys.items() if store.check([key])]
            if len(here) == size or time.monotonic() >= end:
                break
            time.sleep(_LOOK_SECONDS)
        calls.update({number: store.get(keys[number]).decode() for number in here})
