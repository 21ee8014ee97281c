"""The machine as it is while something is measured: what it has, how busy it is, how near its processors are.

Virtual machines are moved between processors: the time of a cache line between two of them then changes by a factor
of five, and with it every figure of processes that share memory. So it is measured beside each turn.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

__all__ = ["Machine", "State", "look", "now"]

_PROBE_SECONDS: Final = 20
_AUTOGROUP: Final = Path("/proc/sys/kernel/sched_autogroup_enabled")


@dataclasses.dataclass(frozen=True)
class Machine:
    """What does not change during a benchmark."""

    processor: str
    processors: int
    memory_bytes: int
    kernel: str
    python: str
    autogroup: str  # enabled, disabled, absent
    receive_buffer_bytes: int  # the most that a socket is given: net.core.rmem_max


@dataclasses.dataclass(frozen=True)
class State:
    """What changes. `cache_line_ns` is a round trip between two processors; None where there is only one."""

    time: float
    load: float
    cache_line_ns: float | None
    share: bool  # whether the kernel lets us raise an autogroup's weight


def look() -> Machine:
    """The machine."""
    return Machine(
        processor=_field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        processors=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=platform.release(),
        python=platform.python_version(),
        autogroup={"1": "enabled", "0": "disabled"}.get(_text(_AUTOGROUP), "absent"),
        receive_buffer_bytes=int(_text(Path("/proc/sys/net/core/rmem_max")) or 0),
    )


def now() -> State:
    """The state now. The probe runs in a session of its own, with the weight that all processes measured have."""
    probe = subprocess.run(
        [sys.executable, "-m", "benchmarks.machine_state"],
        check=True,
        capture_output=True,
        text=True,
        timeout=_PROBE_SECONDS,
        start_new_session=True,
    )
    found: dict[str, Any] = json.loads(probe.stdout)
    return State(time.time(), os.getloadavg()[0], found["cache_line_ns"], found["share"])


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:  # the kernel was built without it
        return ""


def _probe() -> dict[str, Any]:
    from benchmarks import _probes
    from benchmarks.workers.counters import take_share

    share = take_share()
    first, second = _probes.two_processors()
    trips = _probes.cache_line_round_trips(first, second, 40, 1.0) if first >= 0 else []
    return {"share": share, "cache_line_ns": round(1e9 * trips[0], 1) if trips else None}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_probe()))
