"""Jobs of up to 1,024 real ranks on this machine, and what they cost: `python -m tests.soak.many_ranks`.

Each job runs on a separate fabric: a spine, below it soft switches with up to 63 ranks each, an agent for each of
these, and a controller. The ranks use the client library, several in a process. They all-reduce 1 MiB of float32, and
every rank compares its result with the sum that numpy computes from the same seeds. Then one rank of the largest job
calls with another size, and one of a second job is killed: the errors at all others must name it.

The exit status is 1 if a result is wrong or an error names other ranks.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from switchml.benchmarks.workers.counters import of_processes
from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import PROTOCOL_MAX_WORKERS
from switchml.launch.fabric_state import PORT_KEEPER
from tests.soak.rank_group import contribution
from tests.soak.sampling import MIB
from tests.support.fabric_harness import Ctl, wait_until

BELOW_A_LEAF = PROTOCOL_MAX_WORKERS - 1  # a parent takes a bit of the bitmap
BYTES = MIB
GROUPS = 8
SIZES = (64, 256, 1024)
SHORT_SIZES = (130,)
_UP_SECONDS = 300.0
_DEADLINE = 300.0
_ANSWER_SECONDS = 600.0  # above the time limit of a call, whose error says more
_IDLE_SECONDS = 5.0


@dataclass
class Cost:
    """The measured cost of a job of `ranks` ranks on `leaves` leaves."""

    ranks: int
    leaves: int
    start: float = 0.0  # seconds of `job start`
    attached: float = 0.0  # seconds from the beginning of `job start` until all ranks are attached
    resident: dict[str, list[float]] = field(default_factory=dict)  # bytes of each process, by the program
    idle_cpu: dict[str, float] = field(default_factory=dict)  # CPU seconds per second of all processes of a program
    sums: list[float] = field(default_factory=list)  # seconds of each all-reduce


class Group:
    """A process with several ranks (rank_group.py)."""

    def __init__(self, log: Path, elements: int, total: Path) -> None:
        with log.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.rank_group", f"--elements={elements}", f"--total={total}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self._log = log

    def ask(self, do: str, **arguments: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        too_late = threading.Timer(_ANSWER_SECONDS, self.process.kill)
        too_late.start()
        try:
            line = self.process.stdout.readline()
        finally:
            too_late.cancel()
        if not line:
            log = self._log.read_text()
            raise SystemExit(f"a process with ranks has ended, or not answered within {_ANSWER_SECONDS:g} s:\n{log}")
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Groups:
    """The processes of all ranks of a job: GROUPS with as many as possible, and one that has only the last rank."""

    def __init__(self, ranks: int, directory: Path, elements: int, total: Path) -> None:
        parts = np.array_split(np.arange(ranks - 1), min(GROUPS, ranks - 1))
        self._ranks = [*(part.tolist() for part in parts), [ranks - 1]]
        self._members = [Group(directory / f"group-{n}.log", elements, total) for n in range(len(self._ranks))]
        self.answers()

    def attach(self, job: pb.Job) -> None:
        for group, ranks in zip(self._members, self._ranks, strict=True):
            group.ask("attach", job=job.name, sockets={rank: job.ranks[rank].agent_socket for rank in ranks})
        self.answers()

    def do(self, do: str, **arguments: object) -> list[dict[str, Any]]:
        """Let all processes do the same, and return their answers."""
        for group in self._members:
            group.ask(do, **arguments)
        return self.answers()

    def answers(self) -> list[dict[str, Any]]:
        return [group.answer() for group in self._members]

    def take_last_rank(self) -> Group:
        """Return the process of the last rank, which no longer belongs to the others."""
        return self._members.pop()

    def end(self) -> None:
        for group in self._members:
            group.end()


@contextlib.contextmanager
def fabric_with(leaves: int, directory: Path) -> Iterator[tuple[ControllerClient, dict[str, int]]]:
    """Run a fabric with a spine and leaves; yield a client of its controller, and its processes."""
    ctl = Ctl(directory / "run")
    try:
        ctl.run("up", "--racks", str(leaves), "--agents", str(leaves), timeout=_UP_SECONDS)
        state = json.loads((ctl.run_dir / "fabric.json").read_text())
        processes = {process["name"]: int(process["pid"]) for process in state["processes"]}
        del processes[PORT_KEEPER]
        with ControllerClient(state["controller"], timeout=_DEADLINE) as client:
            yield client, processes
    except BaseException:
        for log in sorted((ctl.run_dir / "logs").iterdir()):
            print(f"---- {log.name}", *log.read_text(errors="replace").splitlines()[-20:], sep="\n", file=sys.stderr)
        raise
    finally:
        ctl.run("down", timeout=_UP_SECONDS)


def by_program(processes: dict[str, int]) -> dict[str, list[int]]:
    """Return the process ids of each program of a fabric."""
    found: dict[str, list[int]] = {"controller": [], "agent": [], "switch": []}
    for name, pid in processes.items():
        found["controller" if name == "controller" else "agent" if name.startswith("agent") else "switch"].append(pid)
    return found


def resident(pid: int) -> float:
    """Return the resident memory of a process in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    [kib] = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return 1024 * int(kib)


def start(client: ControllerClient, groups: Groups, ranks: int, cost: Cost | None = None) -> pb.Job:
    """Start a job, attach all its ranks, and wait until the controller knows that."""
    began = time.monotonic()
    job = client.start_job(pb.StartJobRequest(workers=ranks, switch="spine"))
    ready = time.monotonic()
    groups.attach(job)
    wait_until(lambda: _all_attached(client.get_job(job.id)), f"all ranks of job {job.name} are attached", _DEADLINE)
    if cost is not None:
        cost.start, cost.attached = ready - began, time.monotonic() - began
    return job


def _all_attached(job: pb.Job) -> bool:
    """Return whether all ranks are attached; SystemExit if the job has failed."""
    if job.failure:
        raise SystemExit(f"job {job.name} has failed: {job.failure}")
    return all(rank.state == pb.RANK_STATE_ATTACHED for rank in job.ranks)


def all_reduce(groups: Groups, step: int) -> float:
    """Make one all-reduce at all ranks; return its seconds from the first call to the last result."""
    answers = groups.do("sum", step=step)
    wrong = sorted(rank for answer in answers for rank in answer["wrong"])
    if wrong:
        raise SystemExit(
            f"all-reduce {step}: the result is wrong at {len(wrong)} ranks, the first of which is {wrong[0]}"
        )
    return float(max(answer["ended"] for answer in answers) - min(answer["began"] for answer in answers))


def measure(client: ControllerClient, processes: dict[str, int], groups: Groups, cost: Cost, calls: int) -> pb.Job:
    """Start a job, and measure it; it is left running."""
    job = start(client, groups, cost.ranks, cost)
    if len(job.switches) != cost.leaves + 1:
        raise SystemExit(f"job {job.name} is on {len(job.switches)} switches, not on {cost.leaves} leaves and a spine")
    cost.sums += [all_reduce(groups, step) for step in range(calls)]
    programs = by_program(processes)
    before = {program: of_processes(pids).cpu_seconds for program, pids in programs.items()}
    began = time.monotonic()
    time.sleep(_IDLE_SECONDS)  # what is measured is the heartbeats of this time
    seconds = time.monotonic() - began
    for program, pids in programs.items():
        cost.idle_cpu[program] = (of_processes(pids).cpu_seconds - before[program]) / seconds
        cost.resident[program] = [resident(pid) for pid in pids]
    return job


def errors_of(answers: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return the error of each rank in the answers of all processes."""
    return {int(rank): error for answer in answers for rank, error in answer["errors"].items()}


def require_error(errors: dict[int, dict[str, Any]], ranks: int, name: str, named: str) -> str:
    """Check that this many ranks got an error of this name whose message has `named`; return one of the messages."""
    if len(errors) != ranks:
        raise SystemExit(f"{len(errors)} ranks failed, not {ranks}")
    others = [error for error in errors.values() if error["error"] != name or named not in error["message"]]
    if others:
        raise SystemExit(f"{len(others)} ranks got another error than {name} with {named!r}, for example {others[0]}")
    return str(errors[0]["message"])


def mismatch(groups: Groups, ranks: int, culprit: int) -> str:
    """Let a rank call with another size; return what all ranks are told."""
    groups.do("fail", shorter=culprit)
    return require_error(errors_of(groups.answers()), ranks, "CollectiveMismatch", f"rank {culprit}: call")


def lost_rank(groups: Groups, ranks: int) -> str:
    """Kill the process of the last rank, while the others wait for it; return what they are told."""
    last = groups.take_last_rank()
    groups.do("fail", shorter=-1)
    last.end()
    errors = errors_of(groups.answers())
    if any(error["ranks"] != [ranks - 1] for error in errors.values()):
        raise SystemExit(f"an error names other ranks than {ranks - 1}: {errors}")
    return require_error(errors, ranks - 1, "WorkerLost", f"rank {ranks - 1}")


def table(costs: Sequence[Cost]) -> Table:
    """Return the table of what the jobs cost."""
    found = Table(title=f"Cost of a job; all-reduces of {BYTES // MIB} MiB")
    found.add_column("")
    for cost in costs:
        found.add_column(f"{cost.ranks:,} ranks, {cost.leaves} leaves", justify="right")
    rows = {
        "`job start`, s": lambda cost: f"{cost.start:.2f}",
        "until all ranks are attached, s": lambda cost: f"{cost.attached:.2f}",
        "memory of the controller, MiB": lambda cost: _mib(cost.resident["controller"]),
        "of an agent, MiB": lambda cost: _mib(cost.resident["agent"]),
        "of a switch, MiB": lambda cost: _mib(cost.resident["switch"]),
        "heartbeats: CPU of the controller, ms/s": lambda cost: f"{1e3 * cost.idle_cpu['controller']:.1f}",
        "of all agents, ms/s": lambda cost: f"{1e3 * cost.idle_cpu['agent']:.1f}",
        "first all-reduce, s": lambda cost: f"{cost.sums[0]:.2f}",
        "following ones, median, s": lambda cost: f"{statistics.median(cost.sums[1:]):.2f}",
    }
    for name, cell in rows.items():
        found.add_row(name, *map(cell, costs))
    return found


def _mib(resident_bytes: Sequence[float]) -> str:
    return f"{statistics.mean(resident_bytes) / MIB:.0f}"


def run(ranks: int, leaves: int, calls: int, fail: bool) -> Cost:
    """Measure a job of this size on a new fabric; with `fail`, also let ranks fail."""
    elements = BYTES // 4
    cost = Cost(ranks, leaves)
    with tempfile.TemporaryDirectory(prefix="swml-") as name, contextlib.ExitStack() as stack:
        directory, total = Path(name), Path(name) / "total.npy"
        np.save(total, sum(contribution(rank, elements) for rank in range(ranks)))
        client, processes = stack.enter_context(fabric_with(leaves, directory))
        groups = Groups(ranks, directory, elements, total)
        stack.callback(groups.end)
        job = measure(client, processes, groups, cost, calls)
        say(f"{ranks} ranks: {calls} all-reduces are exact at every rank")
        if fail:
            say(f"all ranks: CollectiveMismatch: {mismatch(groups, ranks, ranks // 2)}")
            groups.do("close")
            job = start(client, groups, ranks)
            say(f"all other ranks: WorkerLost: {lost_rank(groups, ranks)}")
        else:
            groups.do("close")
        wait_until(
            lambda: all(switch.slots_free == switch.slots for switch in client.list_switches()),
            f"job {job.name} has ended and freed its slots",
            _DEADLINE,
        )
    return cost


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def main() -> int:
    """Return 0; SystemExit says what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, action="append", help="of a job; give it again for more jobs")
    parser.add_argument("--leaves", type=int, help=f"switches below the spine, with up to {BELOW_A_LEAF} ranks each")
    parser.add_argument("--calls", type=int, default=6, help="all-reduces of each job")
    parser.add_argument("--short", action="store_true", help="a single job, of 130 ranks on 3 leaves")
    options = parser.parse_args()
    sizes = options.ranks or (SHORT_SIZES if options.short else SIZES)
    costs = []
    for ranks in sizes:
        leaves = options.leaves or max(2, -(-ranks // BELOW_A_LEAF))
        if ranks > leaves * BELOW_A_LEAF:
            parser.error(f"{leaves} leaves have room for {leaves * BELOW_A_LEAF} ranks, not for {ranks}")
        costs.append(run(ranks, leaves, options.calls, fail=ranks == max(sizes)))
    Console(width=None if sys.stdout.isatty() else 100).print(table(costs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
