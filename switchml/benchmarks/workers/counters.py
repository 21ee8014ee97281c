"""The resources that processes have used so far: CPU time, wake-ups and preemptions, as the kernel reports them."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Usage", "of_processes", "own", "take_share"]

_CPUCLOCK_SCHED = 2  # <linux/posix-timers.h>: the exact run time of all threads of a process


@dataclass(frozen=True)
class Usage:
    """CPU seconds, the number of times that a thread slept and was woken, and the number of preemptions."""

    cpu_seconds: float = 0.0
    wake_ups: int = 0
    preemptions: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.cpu_seconds + other.cpu_seconds,
            self.wake_ups + other.wake_ups,
            self.preemptions + other.preemptions,
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            self.cpu_seconds - other.cpu_seconds,
            self.wake_ups - other.wake_ups,
            self.preemptions - other.preemptions,
        )


def own() -> Usage:
    """Return the usage of this process since its start."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Usage(time.process_time(), used.ru_nvcsw, used.ru_nivcsw)


def of_processes(pids: Iterable[int]) -> Usage:
    """Return the usage of these processes together; one that has ended counts nothing."""
    total = Usage()
    for pid in pids:
        with contextlib.suppress(OSError):
            total += _of_process(pid)
    return total


def _of_process(pid: int) -> Usage:
    # clock_getcpuclockid(3) composes the clock of a process like this; Python does not offer it.
    cpu_seconds = time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)
    wake_ups = preemptions = 0
    for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  (names are enough)
        with contextlib.suppress(OSError):  # the thread may have ended
            for line in Path(f"/proc/{pid}/task/{thread}/status").read_text(encoding="ascii").splitlines():
                if line.startswith("voluntary_ctxt_switches:"):
                    wake_ups += int(line.split()[1])
                elif line.startswith("nonvoluntary_ctxt_switches:"):
                    preemptions += int(line.split()[1])
    return Usage(cpu_seconds, wake_ups, preemptions)


def take_share(pid: int | None = None) -> bool:
    """Give the autogroup of a process (default: this one) the highest weight; return whether the kernel allowed it.

    With kernel.sched_autogroup_enabled every session is scheduled as one unit, and a nice value counts only within it:
    a compiler at nice 19 in another session would take half of each core (sched(7), the autogroup feature).
    """
    try:
        Path(f"/proc/{pid or 'self'}/autogroup").write_text("-20", encoding="ascii")
    except OSError:  # no such feature, or not permitted; the machine's state says which
        return False
    return True
