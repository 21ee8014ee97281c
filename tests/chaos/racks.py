"""Faults of jobs on trees of switches, one after another on the same fabric of several racks.

In each run a job is on the leaves of all racks and on the spine, and a second one, the bystander, on one leaf alone.
After the fault the first job's sums must be exact or all of its ranks must get an error that names the fault; the
bystander, which lasts until a fault hits it, must go on if the fault hit nothing that it uses. Then the lost process is
started again, or the link restored, as an operator would do, and the switches must hold nothing of ended jobs.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from switchml.topologies.namespaces import switch_interface
from tests.chaos.fabric_under_fire import FabricUnderFire, Shape, Words
from tests.chaos.faults import BMV2, LOST_RANK, NAMESPACES
from tests.chaos.outcome import Outcome, outcome_of
from tests.support.fabric_harness import runs, wait_until

STEPS: Final = 60
ENDLESS_STEPS: Final = 1_000_000
END_SECONDS: Final = 120.0
READY_SECONDS: Final = 120.0
ATTEMPTS: Final = 20
HOSTS_PER_RACK: Final = 2
KINDS: Final = ("udp", *NAMESPACES, *BMV2)
LINKS: Final = NAMESPACES + BMV2
"""The fabrics in which a separate link connects each leaf with the spine."""
TOP: Final = "spine"


@dataclass
class Stricken:
    """The parts of a fabric that a fault has hit, and how to repair them.

    `named` must be in the message of the error; the bystander is affected if it uses one of `parts`.
    """

    parts: set[str]
    named: str = ""
    silent: set[str] = field(default_factory=set)  # agents whose ranks hear nothing until the repair
    repair: Callable[[], None] = lambda: None


class Racks(FabricUnderFire):
    """A fabric of racks; `start_jobs` starts the next run's jobs."""

    bystander: subprocess.Popen[str]

    def up_in_time(self) -> None:
        """Start the fabric, again if the machine was too busy for that in the time that `up` has."""
        for attempt in range(ATTEMPTS):
            try:
                self.up()
                return
            except (AssertionError, subprocess.TimeoutExpired) as error:  # noqa: PERF203
                busy = "not ready in time" in str(error) or "timed out" in str(error)
                if not busy or attempt == ATTEMPTS - 1:
                    raise
                self.down()

    def start_jobs(self, shape: Shape, number: int) -> None:
        """Start the job, and the bystander if it has ended; return once the job has reached the step of the fault."""
        self.shape = shape
        self.notes.clear()
        name = f"tree-{number}"
        self.job, self.words = self.begin_job(shape.workers, shape.policy, STEPS, "--name", name, "--switch", TOP)
        if not hasattr(self, "bystander") or self.bystander.poll() is not None:
            self.alone_name = f"bystander-{number}"
            place = ("--name", self.alone_name, "--switch", self.chance.choice(self.leaves))
            self.bystander, self.bystander_words = self.begin_job(2, "abort", ENDLESS_STEPS, *place, pause=0.2)
        self.bystander_words.wait_for_step(0, self.bystander, READY_SECONDS)
        self.words.wait_for_step(shape.step, self.job, READY_SECONDS)
        with self.client() as client:
            self.tree, self.alone = client.get_job(name), client.get_job(self.alone_name)

    @property
    def leaves(self) -> list[str]:
        return [switch["name"] for switch in self.fabric().switches if switch["name"] != TOP]

    def uplink(self) -> tuple[str, int]:
        """Return a leaf of the job and its port that leads to the spine."""
        leaf = self.chance.choice([place.switch for place in self.tree.switches if place.upstream])
        [parent] = [switch["parent"] for switch in self.fabric().switches if switch["name"] == leaf]
        return leaf, parent["uplink"]

    def revive(self, name: str) -> Callable[[], None]:
        """Return the function that starts a process again which is about to be killed."""
        process = self.process(name)
        command = self._command(process)

        def start() -> None:
            wait_until(lambda: not runs(process["pid"]), f"{name} has ended", 10)
            self.begin_again(name, command)

        return start

    def wait_job(self) -> None:
        """Raise subprocess.TimeoutExpired if the job hangs."""
        self.job.wait(END_SECONDS)
        self.words.close()

    def close(self) -> None:
        try:
            if hasattr(self, "bystander"):
                self.bystander.kill()
                self.bystander.wait(10)
        finally:
            super().close()


# ---- the faults ------------------------------------------------------------------------------------------------------


def _kill_worker(fire: Racks) -> Stricken:
    fire.kill(fire.worker_pid())
    return Stricken(set())


def _kill_agent(fire: Racks) -> Stricken:
    agent = fire.chance.choice([rank.agent for rank in fire.tree.ranks])
    repair = fire.revive(agent)
    fire.kill(fire.process(agent)["pid"])
    return Stricken({agent}, agent, repair=repair)


def _silence_host(fire: Racks) -> Stricken:
    """Stop an agent until the others have heard of it, as a host that has crashed."""
    agent = fire.chance.choice([rank.agent for rank in fire.tree.ranks])
    pid = fire.process(agent)["pid"]
    fire.struck()
    os.kill(pid, signal.SIGSTOP)
    return Stricken({agent}, agent, {agent}, lambda: os.kill(pid, signal.SIGCONT))


def _kill_switch(which: Callable[[Racks], str]) -> Callable[[Racks], Stricken]:
    def strike(fire: Racks) -> Stricken:
        name = which(fire)
        repair = fire.revive(name)
        fire.kill(fire.process(name)["pid"])
        return Stricken({name}, f"switch {name} ", repair=repair)

    return strike


def _cut_uplink(fire: Racks) -> Stricken:
    """Take the link of a leaf and the spine down, or let both ends drop all packets that they send over it.

    The latter for BMv2, which receives nothing on any of its ports while one of its interfaces is down.
    """
    leaf, port = fire.uplink()
    [parent] = [switch["parent"] for switch in fire.fabric().switches if switch["name"] == leaf]
    ends = [switch_interface(leaf, port), switch_interface(TOP, parent["port"])]

    def set_link(works: bool) -> None:
        if fire.shape.kind != "bmv2":
            fire.set_link(ends[0], "up" if works else "down")
            return
        for interface in ends:
            fire.drop_sent(interface, not works)

    fire.struck()
    set_link(False)
    return Stricken({f"{leaf} - {TOP}"}, f"link {leaf} -> {TOP}", repair=lambda: set_link(True))


def _lose(direction: str) -> Callable[[Racks], Stricken]:
    """Let a leaf lose all packets that it receives from the spine, or all that it sends there."""

    def strike(fire: Racks) -> Stricken:
        leaf, port = fire.uplink()

        def set_loss(share: float) -> None:
            with fire.client() as client:
                client.set_loss(leaf, [port], **{direction: share})

        fire.struck()
        set_loss(1.0)
        link = f"{leaf} -> {TOP}" if direction == "egress" else f"{TOP} -> {leaf}"
        return Stricken({f"{leaf} - {TOP}"}, f"link {link}", repair=lambda: set_loss(0.0))

    return strike


def _stop_switch(which: Callable[[Racks], str]) -> Callable[[Racks], Stricken]:
    def strike(fire: Racks) -> Stricken:
        fire.stop(fire.process(which(fire))["pid"])
        return Stricken(set())

    return strike


def _cut_briefly(fire: Racks) -> Stricken:
    stricken = _cut_uplink(fire)
    time.sleep(fire.chance.uniform(0.05, 0.4))
    stricken.repair()
    return Stricken(set())


def _restart_controller(fire: Racks) -> Stricken:
    fire.kill_and_restart("controller")
    return Stricken(set())


def _a_leaf(fire: Racks) -> str:
    return fire.chance.choice([place.switch for place in fire.tree.switches if place.upstream])


def _the_spine(_: Racks) -> str:
    return TOP


@dataclass(frozen=True)
class RackFault:
    """A fault, the errors that report it, the seconds until it must be named, and the fabrics that can have it."""

    strike: Callable[[Racks], Stricken]
    names: tuple[str, ...] = ()
    seconds: float = 2.0
    kinds: tuple[str, ...] = KINDS


LOST: Final = (*LOST_RANK, "JobEnded")
RACK_FAULTS: Final[dict[str, RackFault]] = {
    "worker killed": RackFault(_kill_worker, LOST),
    "leaf killed": RackFault(_kill_switch(_a_leaf), ("SwitchLost",)),
    "spine killed": RackFault(_kill_switch(_the_spine), ("SwitchLost",)),
    "uplink cut": RackFault(_cut_uplink, ("SwitchLost",), kinds=LINKS),
    "uplink loses sums": RackFault(_lose("egress"), ("SwitchLost",), kinds=LINKS),
    "uplink loses results": RackFault(_lose("ingress"), ("SwitchLost",), kinds=LINKS),
    "agent killed": RackFault(_kill_agent, LOST),
    "host silent": RackFault(_silence_host, LOST, seconds=5.0),
    "uplink cut and healed": RackFault(_cut_briefly, kinds=LINKS),
    "leaf stopped": RackFault(_stop_switch(_a_leaf)),
    "spine stopped": RackFault(_stop_switch(_the_spine)),
    "controller killed and restarted": RackFault(_restart_controller),
}


# ---- one run ---------------------------------------------------------------------------------------------------------


def draw(chance: random.Random, kind: str, racks: int) -> Shape:
    """Choose the jobs of one run on a fabric of this kind."""
    policy = chance.choice(["abort", "shrink", "restart"])
    workers = chance.randint(racks, HOSTS_PER_RACK * racks)
    size = 2000 if kind == "bmv2" else 50_000
    return Shape(kind, policy, workers, HOSTS_PER_RACK * racks, chance.randrange(1, STEPS // 3), size, racks)


def run_once(fire: Racks, fault: RackFault, shape: Shape, number: int) -> Outcome:
    """Run both jobs with one fault; raises AssertionError or subprocess.TimeoutExpired if a condition is violated."""
    fire.start_jobs(shape, number)
    time.sleep(fire.chance.uniform(0, 0.2))  # so that faults also strike within steps
    stricken = fault.strike(fire)
    if stricken.silent:
        others = {r.worker for r in fire.tree.ranks if r.agent not in stricken.silent}
        wait_until(lambda: others <= _heard(fire.words), "the other ranks hear of it", 20)
        stricken.repair()
    fire.wait_job()
    outcome = outcome_of(fire.words, fire.hit, fault.names)
    outcome.noticed = _noticed(fire, stricken)
    outcome.late = sum(seconds > fault.seconds for seconds in outcome.noticed)
    outcome.wrong += _unnamed(fire, fault, stricken)
    outcome.wrong += _unheard(fire, outcome)
    outcome.wrong += _disturbed_bystander(fire, fault, stricken)
    ended = time.monotonic()
    if not stricken.silent:
        stricken.repair()
    fire.wait_whole()
    outcome.leaks += fire.leftovers()
    outcome.usable = time.monotonic() - ended
    outcome.wrong += outcome.leaks
    return outcome


def _heard(words: Words) -> set[int]:
    return {worker for worker, said in words.said if "error_at" in said or "changed" in said}


def _noticed(fire: Racks, stricken: Stricken) -> list[float]:
    """Return the seconds after which each rank learnt of the fault first, except those at an agent that is silent."""
    silent = {rank.worker for rank in fire.tree.ranks if rank.agent in stricken.silent}
    first: dict[int, float] = {}
    for worker, said in fire.words.said:
        for key in ("error_at", "changed"):
            if key in said and worker not in silent:
                first.setdefault(worker, said[key] - fire.hit)
    return list(first.values())


def _unnamed(fire: Racks, fault: RackFault, stricken: Stricken) -> list[str]:
    """Return the errors of the tree's ranks that do not say what was lost."""
    errors = [said["error"] for _, said in fire.words.said if "error" in said]
    return [
        f"an error that does not say {stricken.named!r}: {error}"
        for error in errors
        if "SwitchLost" in fault.names and stricken.named not in error
    ]


def _unheard(fire: Racks, outcome: Outcome) -> list[str]:
    """Return the workers of the tree that neither completed nor got an error; a killed one cannot say anything."""
    spoke = {worker for worker, said in fire.words.said if "error" in said or "steps" in said}
    absent = {rank.worker for rank in fire.tree.ranks} - spoke
    if len(absent) > 1 or (absent and not outcome.noticed):
        return [f"workers {sorted(absent)} neither completed nor got an error: {fire.words.lines[-5:]}"]
    return []


def _disturbed_bystander(fire: Racks, fault: RackFault, stricken: Stricken) -> list[str]:
    """Return what is wrong with the bystander, which must go on if the fault hit nothing that it uses."""
    words, job = fire.bystander_words, fire.bystander
    uses = {place.switch for place in fire.alone.switches} | {rank.agent for rank in fire.alone.ranks}
    if uses & stricken.parts:
        job.wait(END_SECONDS)
        words.close()
        wrong = outcome_of(words, fire.hit, fault.names).wrong
    else:
        words.wait_for_step(words.last_step + 2, job, END_SECONDS)
        wrong = [said["error"] for _, said in list(words.said) if "error" in said]
    return [f"bystander on {fire.alone.switches[0].switch}: {what}" for what in wrong]


@contextlib.contextmanager
def racks_up(directory: Path, kind: str, racks: int, chance: random.Random) -> Iterator[Racks]:
    """Start a fabric of this kind, and stop it at the end."""
    fire = Racks(directory, draw(chance, kind, racks), chance)
    try:
        fire.up_in_time()
        yield fire
    finally:
        fire.close()
