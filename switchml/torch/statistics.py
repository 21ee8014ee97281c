"""Counters of this process, over all its process groups."""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import Final

__all__ = ["COUNTERS", "count", "statistics"]

COUNTERS: Final = {
    "network_calls": "collectives that went through the switch",
    "network_bytes": "bytes of the tensors of these collectives",
    "wire_bytes": "bytes of the values that this process put into packets for them, without headers and resends",
    "sparse_calls": "all-reduces in the network that sent only blocks with values",
    "gloo_calls": "collectives that went over Gloo, by the table of paths or after a fallback",
    "long_sums_over_gloo": "those of them that are sums of int64, which were slower in the network",
    "non_finite_results": "collectives in which some rank contributed NaN or infinity",
    "network_groups": "process groups that became a job of the switch",
    "gloo_groups": "process groups that could not become a job and use Gloo for everything",
    "fallbacks": "process groups that lost the network and continued over Gloo",
}
"""The names and meanings of the counters."""

_lock = threading.Lock()
_counts: Counter[str] = Counter()


def count(name: str, by: int = 1) -> None:
    """Raise a counter."""
    with _lock:
        _counts[name] += by


def statistics() -> dict[str, int]:
    """Return all counters of this process; `COUNTERS` explains them."""
    with _lock:
        return {name: _counts[name] for name in COUNTERS}


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()  # a thread of the parent may have held the old one


os.register_at_fork(after_in_child=_renew_lock)
