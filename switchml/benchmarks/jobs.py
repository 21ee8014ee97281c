"""`bench jobs`: the time that the control plane takes for a job, and what grows with the number of jobs."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from switchml.benchmarks import machine_state
from switchml.benchmarks.figures import percentile
from switchml.benchmarks.footprint import Footprint, footprints
from switchml.benchmarks.record import Record, Reporter
from switchml.benchmarks.results import BenchmarkResult
from switchml.benchmarks.systems import SwitchML, own_fabric, work_directory
from switchml.common.progress import Progress
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from switchml.launch.fabric_state import PORT_KEEPER
from switchml.launch.kinds import Embedded

__all__ = ["JobsOptions", "JobsSample", "run"]

_RANKS_OF_AN_AGENT: Final = 64  # an agent's default (--max-ranks)
_MANY_WORKERS: Final = 2  # workers per job where the number of jobs is varied
_STEPS: Final = 10  # number of samples over the jobs that are started one after the other


@dataclasses.dataclass(frozen=True)
class JobsOptions:
    """Options: `starts` jobs of each number of workers, `jobs` one after the other, `at_once` at the same time."""

    workers: list[int]
    starts: int
    jobs: int
    at_once: int
    transport: str


@dataclasses.dataclass(frozen=True)
class JobsSample:
    """Some jobs of a kind: the seconds from request to READY and of the stop, and the processes' footprint then.

    `kind` is "start", "sequence" or "at once"; `jobs` is the number of jobs of this kind so far; `elapsed` is the time
    for all jobs of the sample.
    """

    kind: str
    workers: int
    jobs: int
    starts: list[float]
    stops: list[float]
    elapsed: float
    footprints: list[Footprint]
    store_bytes: int


@dataclasses.dataclass(frozen=True)
class JobsRow:
    """Statistics of a sample; times in seconds."""

    kind: str
    workers: int
    jobs: int
    start_median: float
    start_p99: float
    stop_median: float
    elapsed: float
    footprints: list[Footprint]
    store_bytes: int


def run(options: JobsOptions, report: Reporter, progress: Progress) -> BenchmarkResult:
    """Measure. Raises BenchmarkError, what starting a fabric raises and what ControllerClient raises."""
    agents = -(-options.at_once * _MANY_WORKERS // _RANKS_OF_AN_AGENT)
    record = Record(report, states=[machine_state.now()])
    with (
        work_directory() as directory,
        own_fabric(options.transport, directory, Embedded(agents=agents)) as system,
        system.client() as client,
    ):
        fabric = _Measured(system, client)
        # Warm up: what is created once then exists.
        client.stop_job(client.start_job(pb.StartJobRequest(workers=_MANY_WORKERS)).id)
        record.samples.append(fabric.sample("idle", 0, 0, (), (), 0.0))
        progress.expect(options.starts * sum(options.workers) + _MANY_WORKERS * (options.jobs + options.at_once))
        for workers in options.workers:
            report(f"{options.starts} jobs of {workers} workers")
            record.samples.append(fabric.sequence("start", workers, options.starts, 0))
            progress.did(options.starts * workers)
        report(f"{options.jobs} jobs of {_MANY_WORKERS} workers, one after the other")
        step = -(-options.jobs // _STEPS)
        for done in range(0, options.jobs, step):
            count = min(step, options.jobs - done)
            record.samples.append(fabric.sequence("sequence", _MANY_WORKERS, count, done))
            progress.did(_MANY_WORKERS * count)
        report(f"{options.at_once} jobs of {_MANY_WORKERS} workers at once")
        record.samples += fabric.at_once(options.at_once)
        progress.did(_MANY_WORKERS * options.at_once)
        record.systems[system.name] = system.description
    return BenchmarkResult.of("jobs", options, map(_row, record.samples), record)


class _Measured:
    """A fabric whose jobs are timed."""

    def __init__(self, system: SwitchML, client: ControllerClient) -> None:
        self._processes = [process for process in system.fabric.processes if process.name != PORT_KEEPER]
        self._store = system.fabric.run_directory.path
        self._client = client

    def sample(
        self, kind: str, workers: int, jobs: int, starts: Iterable[float], stops: Iterable[float], elapsed: float
    ) -> JobsSample:
        """Return a sample, with the processes' current footprint."""
        store = sum(path.stat().st_size for path in self._store.glob("controller.sqlite*"))
        found = footprints(self._processes)
        return JobsSample(kind, workers, jobs, list(starts), list(stops), elapsed, found, store)

    def sequence(self, kind: str, workers: int, count: int, done: int) -> JobsSample:
        """Start and stop `count` jobs, after `done` of the same kind."""
        request = pb.StartJobRequest(workers=workers)
        starts, stops = [], []
        began = time.monotonic()
        for _ in range(count):
            begin = time.monotonic()
            job = self._client.start_job(request)
            ready = time.monotonic()
            self._client.stop_job(job.id)
            starts.append(ready - begin)
            stops.append(time.monotonic() - ready)
        return self.sample(kind, workers, done + count, starts, stops, time.monotonic() - began)

    def at_once(self, count: int) -> list[JobsSample]:
        """Start `count` jobs at the same time, then stop them likewise; return the samples in between and after."""
        [switch] = self._client.list_switches()
        slots = 1 << (switch.slots // count).bit_length() - 1
        request = pb.StartJobRequest(workers=_MANY_WORKERS, slots=slots)

        def begin(_: int) -> tuple[int, float]:
            began = time.monotonic()
            return self._client.start_job(request).id, time.monotonic() - began

        def end(job: int) -> float:
            began = time.monotonic()
            self._client.stop_job(job)
            return time.monotonic() - began

        with ThreadPoolExecutor(count) as pool:
            began = time.monotonic()
            started: Sequence[tuple[int, float]] = list(pool.map(begin, range(count)))
            elapsed = time.monotonic() - began
            live = self.sample("at once", _MANY_WORKERS, count, [seconds for _, seconds in started], (), elapsed)
            began = time.monotonic()
            stops = list(pool.map(end, [job for job, _ in started]))
            return [live, self.sample("stopped", _MANY_WORKERS, count, (), stops, time.monotonic() - began)]


def _row(sample: JobsSample) -> JobsRow:
    return JobsRow(
        kind=sample.kind,
        workers=sample.workers,
        jobs=sample.jobs,
        start_median=statistics.median(sample.starts) if sample.starts else 0.0,
        start_p99=percentile(sample.starts, 0.99) if sample.starts else 0.0,
        stop_median=statistics.median(sample.stops) if sample.stops else 0.0,
        elapsed=sample.elapsed,
        footprints=sample.footprints,
        store_bytes=sample.store_bytes,
    )
