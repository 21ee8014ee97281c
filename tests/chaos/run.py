"""Jobs on a fabric to which something happens: a process is killed or stopped, or packets are lost.

After each run the sums that were made are exact or an error has named the fault, nothing hangs, no process or socket is
left, and another job runs. What is done, when and to whom follows from the seed and the number of the run:
``run.py --seed 7 --first 12 --runs 1`` repeats the thirteenth run of seed 7, but for the moment at which it hits.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "fabric"))

from fabric_harness import Ctl, runs, wait_until

END_SECONDS = 40.0
"""By then a job has ended, one way or the other."""
NAMED = ("WorkerLost", "AgentLost", "SwitchLost", "JobEnded", "CollectiveTimeout")


@dataclass
class Run:
    """One fabric with one job; `hit` is when the fault struck, on the machine's monotonic clock."""

    ctl: Ctl
    chance: random.Random
    policy: str
    workers: int
    job: subprocess.Popen[str]
    hit: float = 0.0

    def worker_pid(self) -> int:
        """A worker of the job."""
        children = Path(f"/proc/{self.job.pid}/task/{self.job.pid}/children").read_text().split()
        return int(self.chance.choice(sorted(children)))

    def process_pid(self, name: str) -> int:
        """A process of the fabric whose name begins so."""
        found = [process["pid"] for process in self.ctl.processes() if process["name"].startswith(name)]
        return int(self.chance.choice(found))

    def kill(self, pid: int) -> None:
        self.hit = time.monotonic()
        os.kill(pid, signal.SIGKILL)

    def stop(self, pid: int) -> None:
        """Stop a process for less than it takes to be taken for dead."""
        self.hit = time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.chance.uniform(0.1, 2.0))
        os.kill(pid, signal.SIGCONT)

    def lose_packets(self) -> None:
        self.hit = time.monotonic()
        self.ctl.run("switch", "loss", "--ingress", "0.05", "--egress", "0.05")


FAULTS: dict[str, Callable[[Run], None]] = {
    "worker killed": lambda run: run.kill(run.worker_pid()),
    "worker stopped": lambda run: run.stop(run.worker_pid()),
    "agent killed": lambda run: run.kill(run.process_pid("agent")),
    "agent stopped": lambda run: run.stop(run.process_pid("agent")),
    "switch killed": lambda run: run.kill(run.process_pid("switch")),
    "switch stopped": lambda run: run.stop(run.process_pid("switch")),
    "controller stopped": lambda run: run.stop(run.process_pid("controller")),
    "packets lost": Run.lose_packets,
}


@dataclass
class Outcome:
    """What became of the ranks of one run; `noticed` is after how many seconds each rank heard of the fault."""

    completed: int = 0
    went_on: int = 0
    errors: list[str] = field(default_factory=list)
    noticed: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def outcome_of(run: Run, stderr: str) -> Outcome:
    """Read what the ranks said."""
    outcome = Outcome()
    for line in stderr.splitlines():
        if "a wrong sum" in line:
            outcome.wrong.append(line)
        if not (line.startswith("[") and "] {" in line):
            continue
        said = json.loads(line.split("] ", 1)[1])
        outcome.completed += "steps" in said
        outcome.went_on += "changed" in said
        for key in ("error_at", "changed"):
            if key in said:
                outcome.noticed.append(said[key] - run.hit)
        if "error" in said:
            outcome.errors.append(said["error"].split(":")[0])
            if not said["error"].startswith(NAMED):
                outcome.wrong.append(f"an error that names no fault: {said['error']}")
    return outcome


def jobs(ctl: Ctl) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ctl.json("job", "list")["jobs"]
    return found


def run_once(fault: str, chance: random.Random, directory: Path) -> Outcome:
    """Raise AssertionError or subprocess.TimeoutExpired where something is not as it must be."""
    ctl = Ctl(directory / "run")
    transport = chance.choice(["shm", "udp"])
    policy = chance.choice(["abort", "shrink", "restart"])
    workers, agents = chance.randint(2, 4), chance.choice(["1", "2"])
    ctl.run("up", "--transport", transport, "--agents", agents)
    processes = [process["pid"] for process in ctl.processes()]
    worker = ctl.worker("survives", "--size", "200000", "--steps", "60", "--pause", "0.02", "--timeout", "15")
    job = ctl.start("job", "start", "--workers", str(workers), "--on-failure", policy, *worker)
    run = Run(ctl, chance, policy, workers, job)
    try:
        wait_until(lambda: any(job["state"] == "RUNNING" for job in jobs(ctl)), "the job runs", END_SECONDS)
        time.sleep(chance.uniform(0, 0.3))  # the fault comes at any moment
        FAULTS[fault](run)
        _, stderr = job.communicate(timeout=END_SECONDS)
    finally:
        job.kill()
    outcome = outcome_of(run, stderr)
    if not outcome.completed and not outcome.errors:
        outcome.wrong.append(f"no rank came to an end or to an error: {stderr[-500:]}")
    if fault == "packets lost":
        ctl.run("switch", "loss", "--off")
    ctl.run("up", "--transport", transport, "--agents", agents)
    processes += [process["pid"] for process in ctl.processes()]
    ctl.run("job", "start", "--workers", "2", *ctl.worker("sums", "--sizes", "1000"))
    ctl.run("down")
    outcome.wrong += [f"process {pid} is left" for pid in processes if runs(pid)]
    outcome.wrong += [f"{path} is left" for path in ctl.run_dir.iterdir() if path.is_socket()]
    return outcome


def show(outcomes: dict[str, list[Outcome]]) -> None:
    """Print a row for each fault."""
    print("| fault | runs | ranks completed | went on | errors | noticed after, median and longest | wrong |")
    print("|---|---|---|---|---|---|---|")
    for fault, found in outcomes.items():
        errors = sorted({name for outcome in found for name in outcome.errors})
        noticed = [seconds for outcome in found for seconds in outcome.noticed]
        times = f"{statistics.median(noticed):.2f} s, {max(noticed):.2f} s" if noticed else ""
        completed, went_on = sum(o.completed for o in found), sum(o.went_on for o in found)
        wrong = sum(bool(o.wrong) for o in found)
        print(f"| {fault} | {len(found)} | {completed} | {went_on} | {', '.join(errors)} | {times} | {wrong} |")


def main() -> int:
    """Return 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    options = parser.parse_args()
    outcomes: dict[str, list[Outcome]] = defaultdict(list)
    for number in range(options.first, options.first + options.runs):
        fault = list(FAULTS)[number % len(FAULTS)]
        directory = Path(tempfile.mkdtemp(prefix="swml-"))
        try:
            outcome = run_once(fault, random.Random(f"{options.seed}/{number}"), directory)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            outcome = Outcome(wrong=[str(error)])
        finally:
            Ctl(directory / "run").run("down")
            shutil.rmtree(directory)
        outcomes[fault].append(outcome)
        for what in outcome.wrong:
            print(f"run {number} of seed {options.seed}, {fault}: {what}", file=sys.stderr)
    show(outcomes)
    return int(any(outcome.wrong for found in outcomes.values() for outcome in found))


if __name__ == "__main__":
    sys.exit(main())
