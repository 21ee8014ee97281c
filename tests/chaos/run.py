"""Run jobs on fabrics in which processes, links, files, packets or clocks fail.

After each run, all sums must be exact or an error must name the fault, every process must have ended, no resource may
be left, and another job must run. The seed and the number of the run determine the fault, its target and the step of
the job at which it happens: ``run.py --seed 7 --first 12 --runs 1`` repeats the thirteenth run of seed 7.
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
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "fabric"))

from fabric_under_fire import STEPS, FabricUnderFire, Shape
from faults import FAULTS, Fault
from outcome import Outcome, outcome_of, table

from switchml.common.errors import StartError

SHORT = ("worker killed", "switch killed and restarted", "controller killed and restarted", "link cut and healed")
"""The faults of the short form, which runs each of them once."""
STANDSTILL_SECONDS = 1.5
ATTEMPTS = 3
DISK_BYTES = 64 * 2**20


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


def run_once(fault: Fault, chance: random.Random, shape: Shape, directory: Path) -> Outcome:
    """Run a job with one fault; raises AssertionError or subprocess.TimeoutExpired if a condition is violated."""
    fire = FabricUnderFire(directory, shape, chance)
    try:
        fire.up(*fault.up, *(["--seed", str(chance.randrange(2**32))] if fault.up else []))
        fire.start_job()
        fault.strike(fire)
        fire.wait_end()
        ended = time.monotonic()
        fault.repair(fire)
        outcome = outcome_of(fire, fault)
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
            keep_logs(directory)
        return outcome
    except BaseException:
        keep_logs(directory)
        raise
    finally:
        fire.close()


def keep_logs(directory: Path) -> None:
    """Keep the logs of the fabric's processes of a failed run."""
    kept = Path(tempfile.mkdtemp(prefix="swml-chaos-kept-"))
    shutil.copytree(directory / "run" / "logs", kept / "logs", dirs_exist_ok=True)
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
    fault = FAULTS[name]
    shape = draw(fault, chance, kinds)
    with Standstill() as standstill, fabric_directory(fault.small_disk) as directory:
        try:
            outcome = run_once(fault, chance, shape, directory)
        except (AssertionError, StartError, OSError, subprocess.SubprocessError) as error:
            outcome = Outcome(wrong=[f"{type(error).__name__}: {error}"])
    return shape, outcome, standstill.seen


def main() -> int:
    """Return 0 if no run violated a condition."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2 * len(FAULTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--fault", action="append", choices=list(FAULTS), help="only this fault; may be repeated")
    parser.add_argument("--kind", action="append", choices=["shm", "udp", "soft", "bmv2"], help="only such fabrics")
    parser.add_argument("--short", action="store_true", help="a short form of less than a minute")
    parser.add_argument("--record", type=Path, help="append each run to this file, one JSON object per line")
    options = parser.parse_args()
    kinds = options.kind or (["shm", "udp"] if options.short else ["shm", "udp", "soft", "bmv2"])
    names = options.fault or list(SHORT if options.short else FAULTS)
    names = [name for name in names if set(FAULTS[name].kinds) & set(kinds)]
    if not names:
        parser.error("none of these faults can be caused here: they may need root, ip, nft or simple_switch_grpc")
    runs = len(names) if options.short else options.runs
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that all processes of the run are stopped
    outcomes: list[tuple[str, Outcome]] = []
    for number in range(options.first, options.first + runs):
        name = names[number % len(names)]
        for _ in range(ATTEMPTS):
            shape, outcome, disturbed = attempt(name, number, options.seed, kinds)
            if not disturbed:
                break
        outcomes.append((name, outcome))
        words = f"run {number} of seed {options.seed}, {name} ({shape})"
        for what in outcome.wrong:
            print(f"{words}: {what}", file=sys.stderr)
        print(f"{words}: {'WRONG' if outcome.wrong else 'right'}", flush=True)
        if options.record is not None:
            with options.record.open("a") as file:
                print(json.dumps({"fault": name, "number": number, **asdict(shape), **asdict(outcome)}), file=file)
    print("\n".join(table(outcomes)))
    return int(any(outcome.wrong for _, outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
