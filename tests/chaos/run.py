"""Run jobs on fabrics in which processes, links, files, packets or clocks fail.

After each run, all sums must be exact or an error must name the fault, every process must have ended, no resource may
be left, and another job must run. The seed and the number of the run determine the fault, its target and the step of
the job at which it happens: ``run.py --seed 7 --first 12 --runs 1`` repeats the thirteenth run of seed 7. With --racks
the faults are those of jobs on trees of switches (racks.py), one after another on the same fabric. With --storms each
job has several faults (storms.py).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from switchml.common.errors import StartError
from switchml.controller.errors import ControllerError
from tests.chaos import racks, storms
from tests.chaos.fabric_under_fire import STEPS, FabricUnderFire, Shape
from tests.chaos.faults import FAULTS, NAMESPACES, Fault
from tests.chaos.outcome import Outcome, table
from tests.chaos.racks import Racks
from tests.chaos.storms import STORMS, Storm

SHORT = ("worker killed", "switch killed and restarted", "controller killed and restarted", "link cut and healed")
"""The faults of the short form, which runs each of them once."""
SHORT_ON_RACKS = ("leaf killed", "worker killed", "uplink cut")
"""The faults of the short form on racks; that of a link needs namespaces."""
ALL_FAULTS = FAULTS | STORMS
"""The faults with a separate fabric for each run."""
RUNS_OF_A_FABRIC = 40
STANDSTILL_SECONDS = 1.5
ATTEMPTS = 3
DISK_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Run:
    """A run that is over."""

    name: str
    number: int
    shape: Shape
    outcome: Outcome


class Standstill:
    """Notices when the machine or all its processes were suspended, which makes all measured times meaningless."""

    def __init__(self) -> None:
        self.seen = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._over.wait(0.1):
            now = time.monotonic()
            self.seen = self.seen or now - before > STANDSTILL_SECONDS
            before = now

    def __enter__(self) -> Standstill:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def draw(fault: Fault, chance: random.Random, kinds: list[str]) -> Shape:
    """Choose the fabric and the job of one run."""
    kind = chance.choice([kind for kind in fault.kinds if kind in kinds])
    policy = chance.choice(["abort", "shrink", "restart"])
    workers, agents, step = chance.randint(2, 4), chance.randint(1, 2), chance.randrange(3, STEPS // 3)
    if kind in ("soft", "bmv2"):
        agents = workers
    if fault.up:
        step = 0
    return Shape(kind, policy, workers, agents, step, 2000 if kind == "bmv2" else 200_000)


def run_once(fault: Fault, fire: FabricUnderFire) -> Outcome:
    """Run a job with one fault; raises AssertionError or subprocess.TimeoutExpired if a condition is violated."""
    try:
        fire.up(*fault.up, *(["--seed", str(fire.chance.randrange(2**32))] if fault.up else []))
        fire.start_job()
        fault.strike(fire)
        fire.wait_end()
        ended = time.monotonic()
        fault.repair(fire)
        outcome = fire.outcome(fault.names)
        if fire.state() == "running":
            outcome.leaks += fire.leftovers()
        if fault.up:
            fire.down()  # the network was bad from the start: the next fabric has a good one
        fire.up()
        fire.ctl.run("job", "start", "--workers", "2", *fire.ctl.worker("sums", "--sizes", "1000"))
        outcome.usable = time.monotonic() - ended
        outcome.leaks += fire.leftovers()
        fire.down()
        outcome.leaks += fire.remains()
        outcome.wrong += outcome.leaks
        if outcome.wrong:
            keep_logs(fire.directory)
        return outcome
    except BaseException:
        keep_logs(fire.directory)
        raise
    finally:
        fire.close()


def keep_logs(directory: Path) -> None:
    """Keep the logs of the fabric's processes and of the ranks of a failed run."""
    kept = Path(tempfile.mkdtemp(prefix="swml-chaos-kept-"))
    for logs in ("logs", "jobs"):
        shutil.copytree(directory / "run" / logs, kept / logs, dirs_exist_ok=True)
    print(f"logs are in {kept}", file=sys.stderr)


@contextlib.contextmanager
def fabric_directory(small_disk: bool) -> Iterator[Path]:
    """Provide a directory, on a separate small disk if `small_disk`."""
    directory = Path(tempfile.mkdtemp(prefix="swml-chaos-"))
    if small_disk:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "swml-chaos", directory], check=True)
    try:
        yield directory
    finally:
        if small_disk:
            subprocess.run(["umount", "--lazy", directory], check=True)
        shutil.rmtree(directory)


def attempt(name: str, number: int, seed: int, kinds: list[str]) -> tuple[Shape, Outcome, bool]:
    """Do one run; the last value returned says whether the machine was suspended during it."""
    chance = random.Random(f"{seed}/{number}")
    fault = ALL_FAULTS[name]
    shape = storms.draw(name, chance, kinds) if name in STORMS else draw(fault, chance, kinds)
    with Standstill() as standstill, fabric_directory(fault.small_disk) as directory:
        try:
            outcome = run_once(fault, (Storm if name in STORMS else FabricUnderFire)(directory, shape, chance))
        except (AssertionError, StartError, OSError, subprocess.SubprocessError) as error:
            outcome = Outcome(wrong=[f"{type(error).__name__}: {error}"])
    return shape, outcome, standstill.seen


def attempt_on_racks(fire: Racks, name: str, number: int, seed: int, kind: str) -> tuple[Shape, Outcome, bool]:
    """Do one run on a fabric of racks; the last value returned says whether the machine was suspended during it."""
    fire.chance = random.Random(f"{seed}/{number}/{name}")
    shape = racks.draw(fire.chance, kind, fire.shape.racks)
    with Standstill() as standstill:
        try:
            outcome = racks.run_once(fire, racks.RACK_FAULTS[name], shape, number)
        except (AssertionError, ControllerError, StartError, OSError, subprocess.SubprocessError) as error:
            outcome = Outcome(wrong=[f"{type(error).__name__}: {error}"])
    if standstill.seen:
        outcome.noticed, outcome.stood_still, outcome.late = [], [], 0  # times mean nothing then
    return shape, outcome, standstill.seen


def runs_on_racks(options: argparse.Namespace, names: list[str], kinds: list[str], runs: int) -> Iterator[Run]:
    """Yield runs on fabrics of racks, each of which is used for several runs, until one of them is wrong."""
    number, end = options.first, options.first + runs
    while number < end:
        kind = kinds[number // RUNS_OF_A_FABRIC % len(kinds)]
        usable = [name for name in names if kind in racks.RACK_FAULTS[name].kinds]
        chance = random.Random(f"{options.seed}/{number}")
        with fabric_directory(False) as directory, racks.racks_up(directory, kind, options.racks, chance) as fire:
            last = min(end, (number // RUNS_OF_A_FABRIC + 1) * RUNS_OF_A_FABRIC)
            fit = True
            while fit and number < last:
                name = usable[number % len(usable)]
                shape, outcome, disturbed = attempt_on_racks(fire, name, number, options.seed, kind)
                if outcome.wrong:
                    keep_logs(directory)
                if disturbed and outcome.wrong:
                    print(f"run {number} does not count, the machine stood still: {outcome.wrong}", file=sys.stderr)
                else:
                    yield Run(name, number, shape, outcome)
                fit = not outcome.wrong  # otherwise the next run has another fabric
                number += 1


def runs_on_fabrics(options: argparse.Namespace, names: list[str], kinds: list[str], runs: int) -> Iterator[Run]:
    """Yield runs that each have a separate fabric."""
    for number in range(options.first, options.first + runs):
        name = names[number % len(names)]
        for _ in range(ATTEMPTS):
            shape, outcome, disturbed = attempt(name, number, options.seed, kinds)
            if not disturbed:
                break
        yield Run(name, number, shape, outcome)


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    every = list(dict.fromkeys((*ALL_FAULTS, *racks.RACK_FAULTS)))
    parser.add_argument("--runs", type=int, help="default: two for each fault")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--fault", action="append", choices=every, help="only this fault; may be repeated")
    parser.add_argument("--kind", action="append", choices=["shm", "udp", "soft", "bmv2"], help="only such fabrics")
    parser.add_argument("--racks", type=int, default=0, help="faults of jobs on this many racks below a spine")
    parser.add_argument("--storms", action="store_true", help="several faults of each job")
    parser.add_argument("--short", action="store_true", help="a short form of about a minute, with and without racks")
    parser.add_argument("--record", type=Path, help="append each run to this file, one JSON object per line")
    return parser.parse_args()


def chosen_runs(options: argparse.Namespace) -> Iterator[Run]:
    """Yield the runs that the options ask for."""
    if options.racks:
        kinds = [kind for kind in options.kind or racks.KINDS if kind in racks.KINDS]
        names = [name for name in options.fault or racks.RACK_FAULTS if name in racks.RACK_FAULTS]
        names = [name for name in names if set(racks.RACK_FAULTS[name].kinds) & set(kinds)]
        kinds = [kind for kind in kinds if any(kind in racks.RACK_FAULTS[name].kinds for name in names)]
        start = runs_on_racks
    else:
        kinds = options.kind or ["shm", "udp", "soft", "bmv2"]
        faults = STORMS if options.storms else FAULTS
        names = [name for name in options.fault or faults if name in faults and set(faults[name].kinds) & set(kinds)]
        start = runs_on_fabrics
    if not names:
        raise SystemExit("none of these faults can be caused here: they may need root, ip, nft or simple_switch_grpc")
    return start(options, names, kinds, options.runs or 2 * len(names))


def short_runs(options: argparse.Namespace) -> Iterator[Run]:
    """Yield the runs of the short form: some faults of one switch, and some on racks."""
    yield from runs_on_fabrics(options, list(SHORT), options.kind or ["shm", "udp"], len(SHORT))
    options.racks, [kind] = 2, NAMESPACES or ("udp",)
    names = [name for name in SHORT_ON_RACKS if kind in racks.RACK_FAULTS[name].kinds]
    yield from runs_on_racks(options, names, [kind], len(names))


def main() -> int:
    """Return 0 if no run violated a condition."""
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that all processes of the run are stopped
    outcomes: list[tuple[str, Outcome]] = []
    for run in short_runs(options) if options.short else chosen_runs(options):
        outcomes.append((run.name, run.outcome))
        words = f"run {run.number} of seed {options.seed}, {run.name} ({run.shape})"
        for what in run.outcome.wrong:
            print(f"{words}: {what}", file=sys.stderr)
        print(f"{words}: {'WRONG' if run.outcome.wrong else 'right'}", flush=True)
        if options.record is not None:
            with options.record.open("a") as file:
                record = {"fault": run.name, "number": run.number, **asdict(run.shape), **asdict(run.outcome)}
                print(json.dumps(record), file=file)
    print("\n".join(table(outcomes)))
    return int(any(outcome.wrong for _, outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
