"""Start ten thousand jobs without a command, and stop each when it is READY: `python -m tests.soak.starts`.

They run on one fabric, four at a time (`--at-once`), with ranks over shared memory and over UDP. The switch's epochs
are set to run out during the run, so that the switch is emptied and they are counted from 1 again. The resources of
the processes are sampled. Once the store and the event log are full and delete their oldest entries, the resources
must be flat, and the CPU time of a start and a stop must be at most 1.5 times that of the first tenth. The elapsed
time is printed but not judged, because it depends on other load. At the end no table entry or slot of the switch may
be left, and no additional descriptor. The exit status is 1 if one of these conditions is violated.
"""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from switchml.benchmarks.workers.counters import of_processes
from switchml.controller.errors import NoRoom
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.switches import MAX_EPOCH
from tests.soak.fabric import SoakFabric, soak_fabric
from tests.soak.flatness import Allowance, judge
from tests.soak.run import check_idle, logs_of_failure, nothing_is_left, show
from tests.soak.sampling import ALLOWANCES, KIB, MIB, Holding, holding_of

_WORKERS = 4
_SLOTS = 16
_SAMPLES = 60
_WARM_UP = 0.7  # until then the event log is not full
_ALLOWANCES = ALLOWANCES | {"store": Allowance(0.25 * MIB)}
_LOGS_OF_A_JOB = 4 * KIB
_PATIENCE_SECONDS = 60.0
_MOST_SLOWER = 1.5


class Starts:
    """Starts jobs, several at a time, and takes samples between batches, when no job exists."""

    def __init__(self, fabric: SoakFabric, at_once: int) -> None:
        self._fabric = fabric
        self._at_once = at_once
        self._local = threading.local()
        self.starts: list[float] = []
        self.stops: list[float] = []
        self.refused = 0
        self.jobs: list[float] = []  # the number of jobs before each sample
        self.held: dict[str, list[Holding]] = {}
        self.store: list[float] = []
        self.logs: list[float] = []
        self.cpu_seconds: list[float] = []  # CPU seconds per job in each batch, of all processes of the fabric

    def run(self, count: int) -> None:
        """Start and stop this many jobs."""
        batch = max(1, count // _SAMPLES)
        with ThreadPoolExecutor(self._at_once) as pool:
            while len(self.starts) < count:
                begun, used = len(self.starts), self._used()
                for started, stopped in pool.map(self._one, range(min(batch, count - len(self.starts)))):
                    self.starts.append(started)
                    self.stops.append(stopped)
                self.cpu_seconds.append((self._used() - used) / (len(self.starts) - begun))
                self._sample()

    def _used(self) -> float:
        return of_processes(self._fabric.processes().values()).cpu_seconds

    def _one(self, _: int) -> tuple[float, float]:
        if not hasattr(self._local, "client"):
            self._local.client = self._fabric.client()
        client = self._local.client
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            begin = time.monotonic()
            try:
                job = client.start_job(pb.StartJobRequest(workers=_WORKERS, slots=_SLOTS))
                break
            except NoRoom as refusal:  # the epochs are used up, and other jobs have not yet ended
                if "epochs" not in str(refusal) or time.monotonic() > deadline:
                    raise
                self.refused += 1
                time.sleep(0.01)
        ready = time.monotonic()
        client.stop_job(job.id)
        return ready - begin, time.monotonic() - ready

    def _sample(self) -> None:
        self.jobs.append(len(self.starts))
        for name, pid in self._fabric.processes().items():
            found = holding_of(pid)
            if found is None:
                raise SystemExit(f"{name} has ended; see its log")
            self.held.setdefault(name, []).append(found)
        self.store.append(self._fabric.store_bytes())
        self.logs.append(self._fabric.log_bytes())


def use_up_epochs(fabric: SoakFabric, left: int) -> None:
    """Leave jobs of no tenant only this many epochs; the controller reads the last one from the store at each start.

    A tenant may use half of those that are left.
    """
    with contextlib.closing(sqlite3.connect(fabric.ctl.run_dir / "controller.sqlite", timeout=30)) as database:
        database.execute("UPDATE epochs SET last = ?", (MAX_EPOCH - 2 * left,))
        database.commit()


def main() -> int:
    """Return 0 if no condition was violated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=4)
    options = parser.parse_args()
    count, tenth = options.jobs, max(1, options.jobs // 10)
    with (
        tempfile.TemporaryDirectory(prefix="swml-") as name,
        soak_fabric(Path(name)) as fabric,
        logs_of_failure(fabric),
    ):
        with fabric.client() as client:  # create the objects that then remain
            for _ in range(10):
                client.stop_job(client.start_job(pb.StartJobRequest(workers=_WORKERS, slots=_SLOTS)).id)
        before = {name: held for name, pid in fabric.processes().items() if (held := holding_of(pid)) is not None}
        use_up_epochs(fabric, count // 3)
        starts = Starts(fabric, options.at_once)
        began = time.monotonic()
        starts.run(count)
        took = time.monotonic() - began
        wrong = nothing_is_left(fabric, before) + check_idle(fabric)
        with fabric.client() as client:
            last = client.start_job(pb.StartJobRequest(workers=_WORKERS, slots=_SLOTS))
            client.stop_job(last.id)
    series = {
        (name, quantity): [getattr(each, quantity) for each in held]
        for name, held in starts.held.items()
        for quantity in ALLOWANCES
    } | {("controller", "store"): starts.store}
    verdicts = {key: judge(starts.jobs, seen, _ALLOWANCES[key[1]], _WARM_UP) for key, seen in series.items()}
    show(verdicts)
    first, end = (statistics.median(part) * 1e3 for part in (starts.starts[:tenth], starts.starts[-tenth:]))
    stops = [statistics.median(part) * 1e3 for part in (starts.stops[:tenth], starts.stops[-tenth:])]
    print(
        f"{count} jobs of {_WORKERS} ranks, {options.at_once} at a time, in {took:.0f} s; start to READY {first:.1f} ms"
        f" (median of the first {tenth}), {end:.1f} ms (of the last), stop {stops[0]:.1f} ms, {stops[1]:.1f} ms;"
        f" store {starts.store[-1] / KIB:.0f} KiB, logs {starts.logs[-1] / KIB:.0f} KiB; last epoch {last.epoch};"
        f" {starts.refused} starts were refused and retried while the epochs restarted"
    )
    wrong += [f"{name}: {quantity} grows" for (name, quantity), verdict in verdicts.items() if not verdict.flat]
    if starts.logs[-1] > MIB + count * _LOGS_OF_A_JOB:
        wrong.append("the logs grow too fast")
    cpu_first, cpu_end = (statistics.median(part) * 1e3 for part in (starts.cpu_seconds[:6], starts.cpu_seconds[-6:]))
    print(f"CPU time of a job in all processes: {cpu_first:.1f} ms (first tenth), {cpu_end:.1f} ms (last tenth)")
    if cpu_end > _MOST_SLOWER * cpu_first:
        wrong.append("the CPU time of a start has grown")
    if not 0 < last.epoch <= count:
        wrong.append(f"the epochs did not restart: the last one is {last.epoch}")
    for what in wrong:
        print(what, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
