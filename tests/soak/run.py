"""Sixteen jobs at once, 64 ranks in all, for an hour: `python -m tests.soak.run`, `--minutes 1` for a short form.

A quarter of the jobs lasts as long as the run; the others end and are replaced: most end in order, some because a rank
is killed, some because they are stopped. They run over shared memory, over UDP, or over both. Every rank checks every
sum. Memory, descriptors and threads of the processes are sampled. After a warm-up they must be flat, as judged by
flatness.py, and when no job is left, they must be as before the first. The exit status is 1 if one of these conditions
is violated, a sum is wrong, or a job ends unexpectedly.

Jobs that are lost because the machine was suspended, or an agent got no CPU time for seconds, are counted separately.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.store.events import EVENTS_KEPT
from switchml.launch.settings import EMBEDDED_VALUES
from tests.soak.fabric import SHM_AGENTS, SLOTS, SoakFabric, soak_fabric
from tests.soak.flatness import Verdict, judge
from tests.soak.sampling import ALLOWANCES, KIB, MIB, Holding, Sample, holding_of, mean
from tests.support.fabric_harness import wait_until

JOBS = 16
RANKS = 64
LASTING_JOBS = JOBS // 4
SIZES = (2, 3, 4, 4, 6, 5, 4, 4) * (JOBS // 8)
assert sum(SIZES) == RANKS
_ELEMENTS = (1_000, 20_000, 100_000)
_TICK_SECONDS = 0.25
_STANDSTILL_SECONDS = 3.0  # this process did not run for longer than this
_AFTER_STANDSTILL = 30.0  # a job that ends within this time was lost because of it
_WAIT_SECONDS = 180.0
_LEAST_SAMPLES = 24
_LONG_SECONDS = 600.0  # in shorter runs the event log hardly grows
_STARVED = "no heartbeat for"  # on an overloaded machine the job must end
_ENDINGS = ("in order", "in order", "in order", "in order", "a rank is killed", "stopped")
_GRPC_THREADS = 2  # that gRPC may have started: it uses more of them under load
_OF_AN_ENDED_JOB = {"store": 24 * KIB, "logs": 16 * KIB}  # bytes that it may leave behind
_FILES_BYTES = 6 * MIB  # allowed at once: the store's write-ahead log is checkpointed at 4 MiB


class Job:
    """One job of the soak and its ranks' processes."""

    def __init__(self, fabric: SoakFabric, number: int, place: int, ending: str):
        self.key = f"soak-{number}"
        self.size = SIZES[place]
        self.ending = ending
        elements = _ELEMENTS[place % len(_ELEMENTS)]
        shm, udp = fabric.sockets[:SHM_AGENTS], fabric.sockets[SHM_AGENTS:]
        sockets = (shm, udp, shm, shm + udp)[place % 4]
        self.output = tempfile.TemporaryFile("w+", dir=fabric.directory)  # noqa: SIM115 - closed by take
        self.ranks = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.soak.rank",
                    self.key,
                    str(rank),
                    str(self.size),
                    f"--elements={elements}",
                ],
                env=fabric.ctl.environment | {"SWITCHML_AGENT": str(sockets[rank * len(sockets) // self.size])},
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=self.output,
            )
            for rank in range(self.size)
        ]

    def end(self, client: ControllerClient, chance: random.Random) -> None:
        """End the job in the intended way; all its ranks have attached."""
        if self.ending == "in order":
            self.ranks[0].terminate()
        elif self.ending == "a rank is killed":
            chance.choice(self.ranks).kill()
        else:
            [name] = [job.name for job in client.list_jobs() if job.name.startswith(f"{self.key}-")]
            client.stop_job(name)

    @property
    def ended(self) -> bool:
        return all(process.poll() is not None for process in self.ranks)

    def take(self) -> tuple[int, list[str]]:
        """Return the number of right sums at all its ranks, and what was wrong."""
        self.output.seek(0)
        text = self.output.read()
        self.output.close()
        said = []
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                said.append(json.loads(line))
        statuses = sorted(process.returncode for process in self.ranks)
        expected = {
            "in order": [0] * self.size,
            "a rank is killed": [-signal.SIGKILL] + [3] * (self.size - 1),
            "stopped": [3] * self.size,
        }[self.ending]
        wrong = []
        if statuses != expected:
            wrong.append(f"{self.key}, which should end {self.ending}, ended with {statuses}: {text[-1500:]}")
        return sum(rank["sums"] for rank in said), wrong

    def kill(self) -> None:
        for process in self.ranks:
            process.kill()
            process.wait()


class Soak:
    """The jobs and samples of the run so far."""

    def __init__(self, fabric: SoakFabric, client: ControllerClient, chance: random.Random) -> None:
        self._fabric = fabric
        self._client = client
        self._chance = chance
        self._began = self._last = time.monotonic()
        self._hit = 0.0
        self.jobs: dict[int, Job] = {}  # by place
        self.samples: list[Sample] = []
        self.begun = 0
        self.ended: Counter[str] = Counter()
        self.sums = 0
        self.wrong: list[str] = []
        self.standstills: list[float] = []

    def run(self, seconds: float, every: float) -> None:
        """Repeatedly sample when all jobs run with all their ranks, and replace some jobs; finally end all jobs."""
        self._fill()
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(self.samples) < _LEAST_SAMPLES:
            due = time.monotonic() + every
            self._wait(lambda due=due: time.monotonic() >= due, "the next sample is due", every + _WAIT_SECONDS)  # type: ignore[misc]
            self._fill()
            self.samples.append(self._sample())
            self._end(self._chance.sample(range(LASTING_JOBS, JOBS), self._chance.randint(1, 3)))
            self._fill()
        self._end(list(self.jobs))

    def _fill(self) -> None:
        """Start missing jobs, one after the other, until all jobs run with all their ranks."""
        while True:
            for place, job in list(self.jobs.items()):
                if job.ended:
                    self._take(place)
            missing = [place for place in range(JOBS) if place not in self.jobs]
            if missing:
                place = missing[0]
                ending = "in order" if place < LASTING_JOBS else self._chance.choice(_ENDINGS)
                self.jobs[place] = Job(self._fabric, self.begun, place, ending)
                self.begun += 1
            self._wait(lambda: self._all_run() or any(job.ended for job in self.jobs.values()), "all jobs run")
            if len(self.jobs) == JOBS and self._all_run():
                return

    def _all_run(self) -> bool:
        live = self._client.list_jobs()
        attached = all(rank.state == pb.RANK_STATE_ATTACHED for job in live for rank in job.ranks)
        return attached and len(live) == len(self.jobs)

    def _end(self, places: list[int]) -> None:
        ending = {place: self.jobs[place] for place in places}
        for job in ending.values():
            if not job.ended:
                job.end(self._client, self._chance)
        self._wait(lambda: all(job.ended for job in ending.values()), "jobs end")
        for place in places:
            self._take(place)

    def _take(self, place: int) -> None:
        """Record how a job has ended."""
        job = self.jobs.pop(place)
        sums, wrong = job.take()
        self.sums += sums
        if wrong and time.monotonic() < self._hit:
            self.ended["lost by a suspension"] += 1
            return
        if wrong and all(_STARVED in what for what in wrong):
            self.ended["whose agent had no CPU for 4 s"] += 1
            return
        self.ended[job.ending] += 1
        self.wrong += wrong
        for what in wrong:
            print(what, file=sys.stderr, flush=True)

    def _wait(self, condition: Callable[[], bool], what: str, seconds: float = _WAIT_SECONDS) -> None:
        """Wait for a condition; the time of suspensions does not count."""
        waited = 0.0
        while not condition():
            if waited > seconds:
                raise SystemExit(f"{what}: not within {seconds:g} s; jobs {[job.key for job in self.jobs.values()]}")
            time.sleep(_TICK_SECONDS)
            now = time.monotonic()
            if now - self._last > _STANDSTILL_SECONDS:
                self.standstills.append(now - self._last)
                self._hit = now + _AFTER_STANDSTILL
            else:
                waited += now - self._last
            self._last = now

    def _sample(self) -> Sample:
        holdings: dict[str, Holding] = {}
        for name, pid in self._fabric.processes().items():
            found = holding_of(pid)
            if found is None:
                raise SystemExit(f"{name} has ended; see its log in {self._fabric.ctl.run_dir / 'logs'}")
            holdings[name] = found
        others = []
        for place, job in self.jobs.items():
            ranks = [found for process in job.ranks if (found := holding_of(process.pid)) is not None]
            if place < LASTING_JOBS and ranks:
                holdings[f"ranks of lasting job {place}, each"] = mean(ranks)
            else:
                others += ranks
        if others:
            holdings["ranks of the other jobs, each"] = mean(others)
        moment = time.monotonic() - self._began
        return Sample(moment, self.ended.total(), holdings, self._fabric.store_bytes(), self._fabric.log_bytes())


def judge_all(samples: list[Sample]) -> dict[tuple[str, str], Verdict]:
    """Judge each quantity of each process that ran all the time."""
    verdicts = {}
    for name in sorted({name for sample in samples for name in sample.holdings}):
        seen = [(sample.time, sample.holdings[name]) for sample in samples if name in sample.holdings]
        for quantity, allowance in ALLOWANCES.items():
            values = [getattr(holding, quantity) for _, holding in seen]
            verdicts[name, quantity] = judge([moment for moment, _ in seen], values, allowance)
    return verdicts


def show(verdicts: dict[tuple[str, str], Verdict]) -> None:
    """Print a row for each verdict."""
    print("| process | what | after the warm-up | at the end | growth | allowed | |")
    print("|---|---|---|---|---|---|---|")
    for (name, quantity), verdict in verdicts.items():
        scale, unit = (MIB, " MiB") if quantity in ("private", "shared") else (1, "")
        numbers = [verdict.first, verdict.last, verdict.growth, verdict.allowed]
        cells = " | ".join(f"{number / scale:.2f}{unit}" for number in numbers)
        print(f"| {name} | {quantity} | {cells} | {'flat' if verdict.flat else 'GROWS'} |")


def check_files(samples: list[Sample]) -> list[str]:
    """Return the violated limits on the growth of store and logs, to which each ended job adds a bounded amount."""
    first, last = samples[len(samples) // 3], samples[-1]
    jobs = max(1, last.jobs - first.jobs)
    wrong = []
    for name, most in _OF_AN_ENDED_JOB.items():
        grown = getattr(last, name) - getattr(first, name)
        print(f"{name}: {getattr(last, name) / KIB:.0f} KiB, {grown / jobs / KIB:.1f} KiB more for each of {jobs} jobs")
        if grown > jobs * most + _FILES_BYTES:
            wrong.append(f"the {name} grow too fast")
    return wrong


def nothing_is_left(fabric: SoakFabric, before: dict[str, Holding]) -> list[str]:
    """Wait until no job holds resources, and return those that processes hold in addition to the start."""
    with fabric.client() as client:
        wait_until(lambda: not client.list_jobs(), "no job lives", 60)
        wait_until(
            lambda: all(s.jobs == 0 and s.slots_free == s.slots for s in client.list_switches()), "slots are free", 60
        )

    def more() -> list[str]:
        found = []
        for name, pid in fabric.processes().items():
            held = holding_of(pid)
            if held is None:
                return [f"{name} has ended"]
            for quantity, allowed in (("descriptors", 0), ("threads", _GRPC_THREADS)):
                now, then = getattr(held, quantity), getattr(before[name], quantity)
                if now > then + allowed:
                    found.append(f"{name} holds {now:.0f} {quantity}, {then:.0f} before the first job")
        return found

    with contextlib.suppress(AssertionError):
        wait_until(lambda: not more(), "all resources are released", 30)
    return more()


def check_idle(fabric: SoakFabric) -> list[str]:
    """Return the entries in the switch's tables that are left without a job."""
    with fabric.client() as client:
        detail = client.show_switch()
    entries = [entry for entry in detail.entries if entry.table != "switch_address_table"]
    found = [f"{len(entries)} table entries are left: {entries[:3]}"] if entries else []
    return found + ([f"{len(detail.groups)} multicast groups are left"] if detail.groups else [])


def use_all_slots(fabric: SoakFabric) -> None:
    """Let a job over UDP use both halves of all slots, because their values become resident at first use."""
    elements = 2 * SLOTS * EMBEDDED_VALUES
    socket = str(fabric.sockets[SHM_AGENTS])
    environment = fabric.ctl.environment | {"SWITCHML_AGENT": socket, "SWITCHML_SLOTS": str(SLOTS)}
    command = [sys.executable, "-m", "tests.soak.rank", "all-slots"]
    ranks = [
        subprocess.Popen([*command, str(rank), "2", f"--elements={elements}", "--pause=0"], env=environment)
        for rank in range(2)
    ]
    try:
        with fabric.client() as client:
            wait_until(
                lambda: any(job.state == pb.JOB_STATE_RUNNING for job in client.list_jobs()), "all slots are used", 60
            )
        ranks[0].terminate()  # it continues to the end of its first step
        if any(rank.wait(_WAIT_SECONDS) != 0 for rank in ranks):
            raise SystemExit("the job that uses all slots failed")
    finally:
        for rank in ranks:
            rank.kill()


def fill_event_log(client: ControllerClient) -> None:
    """Fill the controller's event log, because its memory grows with it until it is full."""
    for number in range(EVENTS_KEPT):
        client.drain_switch("", number % 2 == 0)


@contextlib.contextmanager
def logs_of_failure(fabric: SoakFabric) -> Iterator[None]:
    """Show the ends of all logs if the context raises an exception."""
    try:
        yield
    except BaseException:
        for log in sorted((fabric.ctl.run_dir / "logs").iterdir()):
            print(f"---- {log.name}", *log.read_text(errors="replace").splitlines()[-20:], sep="\n", file=sys.stderr)
        raise


def main() -> int:
    """Return 0 if no condition was violated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--samples", type=Path, help="write them to this file, one JSON object a line")
    options = parser.parse_args()
    seconds = 60 * options.minutes
    with (
        tempfile.TemporaryDirectory(prefix="swml-") as name,
        soak_fabric(Path(name)) as fabric,
        logs_of_failure(fabric),
    ):
        with fabric.client() as client:  # create the objects that then remain
            for _ in range(3):
                client.stop_job(client.start_job(pb.StartJobRequest(workers=8)).id)
            if seconds >= _LONG_SECONDS:
                fill_event_log(client)
        use_all_slots(fabric)
        held = {process: holding_of(pid) for process, pid in fabric.processes().items()}
        before = {process: holding for process, holding in held.items() if holding is not None}
        with fabric.client() as client:
            soak = Soak(fabric, client, random.Random(options.seed))
            try:
                soak.run(seconds, every=min(8.0, seconds / 60))
            finally:
                for job in soak.jobs.values():
                    job.kill()
                if options.samples is not None:
                    lines = [json.dumps(dataclasses.asdict(sample)) + "\n" for sample in soak.samples]
                    options.samples.write_text("".join(lines))
        wrong = soak.wrong + nothing_is_left(fabric, before) + check_idle(fabric)
    verdicts = judge_all(soak.samples)
    show(verdicts)
    wrong += check_files(soak.samples)
    wrong += [f"{name}: {quantity} grows" for (name, quantity), verdict in verdicts.items() if not verdict.flat]
    endings = ", ".join(f"{count} {ending}" for ending, count in sorted(soak.ended.items()))
    print(f"{soak.begun} jobs ({endings}), {soak.sums} sums at ranks, all right unless stated below")
    if soak.standstills:
        print(f"{len(soak.standstills)} suspensions of this machine, the longest of {max(soak.standstills):.0f} s")
    for what in wrong:
        print(what, file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
