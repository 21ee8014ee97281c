"""Storms: several faults in the life of one job, on each kind of fabric and in PyTorch.

The ranks that a fault takes (their process or agent is killed) end or are restarted; all others must go on to the end
of the job with exact sums. Among the faults is always a controller that is killed and restarted, in some storms while a
rank ends. Groups of PyTorch cannot continue without a rank, so their ranks are only disturbed; in half of these storms
one is killed at last, and the others must name it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from unittest import mock

from switchml.controller.proto import switchml_pb2 as pb
from switchml.launch.fabric import start
from switchml.launch.kinds import Shaped
from switchml.launch.run_directory import RunDirectory
from switchml.topologies import shaped_links
from tests.chaos.fabric_under_fire import END_SECONDS, UP_SECONDS, FabricUnderFire, Shape
from tests.chaos.faults import EMBEDDED, FAULTS, LOST_RANK, NAMESPACES, Fault
from tests.chaos.outcome import Outcome
from tests.support.fabric_harness import runs, wait_until

AGGREGATOR_PORT: Final = 1
ENDLESS_STEPS: Final = 1_000_000
CALL_SECONDS: Final = 90.0
"""The timeout of each collective: longer than a controller is away whose start takes long on a busy machine."""
RESTARTS: Final = 100
JOB: Final = "storm"
LINKS: Final = shaped_links.Shape(10**9, 0.05)
"""The links between the hosts of aggregators."""
RACKS: Final = 2
CUT_SECONDS_BETWEEN_SWITCHES: Final = 0.3
"""A link between switches is dead when it has lost everything for half a second."""
SETTLED_STEPS: Final = 3
"""After this many steps since a rank was lost, its successor knows the state of the job."""


class Storm(FabricUnderFire):
    """A fabric whose job experiences several faults; `taken` are the workers whose process or agent was killed."""

    def __init__(self, directory: Path, shape: Shape, chance: random.Random) -> None:
        super().__init__(directory, shape, chance)
        self.faults: list[str] = []
        self.taken: set[int] = set()
        self.switches: list[str] = []  # of the job
        self.lossy = ""  # the switch that loses packets
        self._end = directory / "end"

    def up(self, *more: str) -> None:
        if not self.shape.aggregators:
            super().up(*more)
            return
        kind = Shaped(workers=self.shape.agents + 1, shape=LINKS, servers=True)  # the last host has no agent
        with mock.patch.dict(os.environ, self.ctl.environment):
            start(RunDirectory(self.ctl.run_dir), kind, keep=True)
        self.pids |= {process["pid"] for process in self.ctl.processes()}

    def start_job(self) -> None:
        """Start the job, and return when all of its ranks have reached its first steps."""
        more = ["--name", JOB]
        if self.shape.racks:
            more += ["--switch", "spine"]
        if self.shape.aggregators:
            servers = [switch["name"] for switch in self.fabric().switches[1:]]
            more += ["--aggregators", ",".join(self.chance.sample(servers, self.shape.aggregators))]
        if self.shape.policy == "restart":
            more += ["--restarts", str(RESTARTS)]
        self.job, self.words = self.begin_job(
            self.shape.workers, self.shape.policy, ENDLESS_STEPS, *more, call_seconds=CALL_SECONDS, until=self._end
        )
        self.words.wait_for_step(self.shape.step, self.job, UP_SECONDS)
        with self.client() as client:
            places = client.get_job(JOB).switches
        self.switches = [place.switch for place in places]
        self.lossy = self.chance.choice([place.switch for place in places if place.upstream] or self.switches)

    def rage(self) -> None:
        """Let the faults happen, one after another, the next one sometimes before the job has made a step."""
        loses_ranks = self.shape.policy != "abort"
        faults = DISTURB | TAKE if loses_ranks else DISTURB
        names = self.chance.choices(list(faults), k=self.chance.randint(2, 4))
        names.append(self.chance.choice([RESTARTED, WHILE_AWAY] if loses_ranks else [RESTARTED]))
        self.chance.shuffle(names)
        for name in names:
            self.go_on(self.chance.randrange(SETTLED_STEPS))
            self.let_happen(name, faults[name])
        self.go_on(SETTLED_STEPS)
        if not loses_ranks and self.chance.random() < 0.5:
            self.let_happen(KILLED, Storm.kill_worker)

    def let_happen(self, name: str, fault: Callable[[Storm], None]) -> None:
        """Let a fault happen, and record it if it has found a target."""
        before = self.hit
        fault(self)
        if self.hit != before:
            self.faults.append(name)

    def go_on(self, steps: int) -> None:
        """Wait until the job has made more steps."""
        self.words.wait_for_step(self.words.last_step + steps, self.job, END_SECONDS)

    def wait_end(self) -> None:
        self._end.touch()
        super().wait_end()

    def outcome(self, names: Sequence[str]) -> Outcome:
        outcome = super().outcome(names)
        outcome.noticed = []  # the ranks do not say of which fault
        outcome.faults = self.faults
        done = {worker for worker, said in self.words.said if "steps" in said}
        errors = {worker: said for worker, said in self.words.said if "error" in said}
        healthy = set(range(self.shape.workers)) - self.taken
        if self.taken and self.shape.policy == "abort":
            unaware = [worker for worker in healthy if set(errors.get(worker, {}).get("ranks", ())) != self.taken]
            outcome.wrong += [f"worker {worker} does not name {self.taken}: {errors.get(worker)}" for worker in unaware]
            return outcome
        due = healthy if self.shape.policy == "shrink" else healthy | self.taken
        stopped = (due - done) | (healthy & errors.keys())
        outcome.wrong += [f"healthy rank stopped: worker {worker}: {errors.get(worker)}" for worker in sorted(stopped)]
        if self.job.returncode:
            outcome.wrong.append(f"the job has ended with status {self.job.returncode}: {self.words.lines[-5:]}")
        return outcome

    # ---- targets ----

    def process(self, name: str) -> dict[str, Any]:
        return super().process(self.chance.choice(self.switches) if name == "switch" else name)

    def worker_pid(self) -> int:
        return self.chance.choice(sorted(self._processes_of_ranks().values()))

    def cut_links(self, seconds: float) -> None:
        """Cut the link of a host, or, on loopback, all links of one switch."""
        between_switches = self.shape.racks and not self.shape.in_namespaces
        super().cut_links(min(seconds, CUT_SECONDS_BETWEEN_SWITCHES) if between_switches else seconds)

    def lose(self, share: float) -> None:
        """Let one switch drop this fraction of the packets."""
        self.wait_whole()
        with self.client() as client:
            client.set_loss(self.lossy, [AGGREGATOR_PORT] if self.shape.aggregators else [], share, share)
        if share:
            self.struck()

    def lose_for_a_while(self) -> None:
        self.lose(0.05)
        self.go_on(SETTLED_STEPS)
        self.lose(0.0)

    def kill_worker(self) -> None:
        """Kill the process of a rank, if another rank is left that has the state of the job."""
        self.go_on(SETTLED_STEPS)
        found = self._processes_of_ranks()
        if len(found) > 1:
            worker = self.chance.choice(sorted(found))
            self.taken.add(worker)
            self.kill(found[worker])
            wait_until(lambda: not runs(found[worker]), f"worker {worker} has ended", 10)

    def kill_worker_while_controller_is_away(self) -> None:
        self.go_on(SETTLED_STEPS)
        self.kill_and_restart("controller", self.kill_worker)

    def restart_controller(self) -> None:
        """Kill and restart the controller, but not while the job changes its epoch, which would end the job."""
        self.go_on(SETTLED_STEPS)
        self.kill_and_restart("controller")

    def kill_agent(self) -> None:
        """Kill and restart an agent, unless all ranks are there."""
        self.go_on(SETTLED_STEPS)
        self.wait_whole()
        with self.client() as client:
            ranks = [rank for rank in client.get_job(JOB).ranks if rank.state != pb.RANK_STATE_LOST]
        workers = {agent: {rank.worker for rank in ranks if rank.agent == agent} for agent in {r.agent for r in ranks}}
        if len(workers) > 1:
            agent = self.chance.choice(sorted(workers))
            self.taken |= workers[agent]
            self.kill_and_restart(agent)

    def _processes_of_ranks(self) -> dict[int, int]:
        """Return the processes of the ranks by worker, under shrink without those that are about to end."""
        found = {}
        for child in Path(f"/proc/{self.job.pid}/task/{self.job.pid}/children").read_text().split():
            with contextlib.suppress(OSError):  # it has ended
                for variable in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                    if variable.startswith(b"RANK="):
                        found[int(variable[5:])] = int(child)
        gone = self.taken if self.shape.policy == "shrink" else set()
        return {worker: pid for worker, pid in found.items() if worker not in gone}


KILLED: Final = "worker killed"
RESTARTED: Final = "controller killed and restarted"
WHILE_AWAY: Final = "worker killed while the controller is away"
DISTURB: Final[dict[str, Callable[[Storm], None]]] = {
    **{
        name: FAULTS[name].strike
        for name in (
            "worker stopped",
            "agent stopped",
            "switch stopped",
            "controller stopped",
            "link cut and healed",
            "clocks jump",
        )
    },
    "5 % of packets lost": Storm.lose_for_a_while,
    RESTARTED: Storm.restart_controller,
}
"""The faults that take no rank."""
TAKE: Final[dict[str, Callable[[Storm], None]]] = {
    KILLED: Storm.kill_worker,
    WHILE_AWAY: Storm.kill_worker_while_controller_is_away,
    "agent killed and restarted": Storm.kill_agent,
}
"""The faults that end processes of ranks."""


def _rage(fire: FabricUnderFire) -> None:
    assert isinstance(fire, Storm)
    fire.rage()


_ON_AGGREGATORS: Final = NAMESPACES if shutil.which("tc") else ()
_IN_PYTORCH: Final = EMBEDDED + NAMESPACES if importlib.util.find_spec("torch") else ()
STORMS: Final[dict[str, Fault]] = {
    "storm on one switch": Fault(_rage, LOST_RANK, EMBEDDED + NAMESPACES),
    "storm on a tree": Fault(_rage, LOST_RANK, ("udp", *NAMESPACES)),
    "storm on aggregators": Fault(_rage, LOST_RANK, _ON_AGGREGATORS),
    "storm in PyTorch": Fault(_rage, LOST_RANK, _IN_PYTORCH),
}


def draw(name: str, chance: random.Random, kinds: Sequence[str]) -> Shape:
    """Choose the fabric and the job of a storm."""
    kind = chance.choice([kind for kind in STORMS[name].kinds if kind in kinds])
    workers = chance.randint(2, 4)
    agents = workers if kind in NAMESPACES else chance.randint(1, 2)
    shape = Shape(kind, chance.choice(["shrink", "restart"]), workers, agents, SETTLED_STEPS, size=200_000)
    if name == "storm on a tree":
        return dataclasses.replace(shape, agents=2 * RACKS, racks=RACKS)
    if name == "storm on aggregators":
        return dataclasses.replace(shape, aggregators=chance.randint(2, agents + 1))
    if name == "storm in PyTorch":
        return dataclasses.replace(shape, policy="abort", program="trains")
    return shape
