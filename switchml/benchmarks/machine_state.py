"""The machine during a benchmark: its hardware, its load, and the distance between its CPUs.

Virtual machines are moved between CPUs: the time of a cache line between two of them then changes by a factor of five,
and with it the results of all processes that share memory. It is therefore measured with each turn.
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
_COPIED_BYTES: Final = 64 << 20  # by each CPU
_MOST_BYTES: Final = 2 << 30  # by all CPUs
_COPYING_SECONDS: Final = 0.3
_AUTOGROUP: Final = Path("/proc/sys/kernel/sched_autogroup_enabled")


@dataclasses.dataclass(frozen=True)
class Machine:
    """The properties that do not change during a benchmark."""

    processor: str
    processors: int
    memory_bytes: int
    memory_bytes_per_second: float  # memory bandwidth of all CPUs together
    kernel: str
    python: str
    autogroup: str  # enabled, disabled or absent
    receive_buffer_bytes: int  # the largest buffer that a socket is given: net.core.rmem_max


@dataclasses.dataclass(frozen=True)
class State:
    """The properties that change. `cache_line_ns` is a round trip between two CPUs; None if there is only one."""

    time: float
    load: float
    cache_line_ns: float | None
    share: bool  # whether the kernel allows this process to raise an autogroup's weight


def look() -> Machine:
    """Return the machine's properties."""
    return Machine(
        processor=_field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        processors=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        memory_bytes_per_second=float(_probe("memory")),
        kernel=platform.release(),
        python=platform.python_version(),
        autogroup={"1": "enabled", "0": "disabled"}.get(_text(_AUTOGROUP), "absent"),
        receive_buffer_bytes=int(_text(Path("/proc/sys/net/core/rmem_max")) or 0),
    )


def now() -> State:
    """Return the current state."""
    nanoseconds, share = _probe("state")
    return State(time.time(), os.getloadavg()[0], nanoseconds, share)


def _probe(what: str) -> Any:
    """Ask the CPUs, in a new session with the same weight as all measured processes."""
    probe = subprocess.run(
        [sys.executable, "-m", "switchml.benchmarks.machine_state", what],
        check=True,
        capture_output=True,
        text=True,
        timeout=_PROBE_SECONDS,
        start_new_session=True,
    )
    return json.loads(probe.stdout)


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


def _answer(what: str) -> Any:
    from switchml.benchmarks import _probes
    from switchml.benchmarks.workers.counters import take_share

    share = take_share()
    if what == "memory":
        processors = len(os.sched_getaffinity(0))
        return _probes.memory_traffic(processors, min(_COPIED_BYTES, _MOST_BYTES // processors), _COPYING_SECONDS)
    first, second = _probes.two_cpus()
    trips = _probes.cache_line_round_trips(first, second, 40, 1.0) if first >= 0 else []
    return (round(1e9 * trips[0], 1) if trips else None), share


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_answer(sys.argv[1])))
