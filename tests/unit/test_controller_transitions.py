"""Transitions of a job into epochs: the order of the steps, and what is undone if one fails.

Store, agents' sessions, placement and the job's end are the controller's own. The switch and the agents' processes are
replaced: they record every step, and agents answer as the test says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from switchml.common.version import VERSION
from switchml.controller.admission.placement import AgentRooms
from switchml.controller.admission.request import JobRequest
from switchml.controller.admission.scopes import Scopes
from switchml.controller.admission.slots import SlotPools
from switchml.controller.agents import Agents
from switchml.controller.config import SwitchConfig
from switchml.controller.errors import AgentFailed
from switchml.controller.jobs.ending import JobEndings
from switchml.controller.jobs.epochs import Parts, target_phases
from switchml.controller.jobs.live import LiveJob
from switchml.controller.jobs.register import JobRegister
from switchml.controller.jobs.transitions import Transitions
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import Job, JobState, JobSwitch, OnFailure, RankState
from switchml.controller.store.database import Store
from switchml.controller.switches import ManagedSwitch, Switches
from switchml.dataplane.constants import PROTOCOL_VERSION
from switchml.dataplane.targets import SOFT
from tests.unit.recording_driver import ALL_SLOTS, RecordingDriver

SLOTS = 64


class Agent:
    """An agent that records the messages to it, and answers them at once, except those of the kind that it `holds`."""

    def __init__(self, world: World, name: str, max_ranks: int) -> None:
        self.world = world
        self.name = name
        self.holds = ""
        self.refuses = False
        self.phases: list[int] = [0] * SLOTS  # of each slot, which all its ranks hold
        self.udp_port = 40000
        self.received: list[pb.ControllerMessage] = []
        self.session = world.agents.register(
            pb.Register(
                version=VERSION,
                protocol_version=PROTOCOL_VERSION,
                name=name,
                host="here",
                address="127.0.0.1",
                mac="00:00:00:00:00:00",
                socket=f"/run/{name}.sock",
                switch_port=1,
                max_ranks=max_ranks,
                instance="i1",
            )
        )
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            message = await self.session.outgoing.get()
            self.received.append(message)
            kind = message.WhichOneof("message")
            fetching = " to fetch" if kind == "quiesce" and message.quiesce.targets else ""
            self.world.steps.append(f"{self.name} {kind} {getattr(message, kind).epoch}{fetching}")
            if kind != self.holds:
                self.answer(message)

    def answer(self, message: pb.ControllerMessage) -> None:
        """Answer a message to it, if it needs an answer."""
        transitions, live = self.world.transitions, self.world.live
        match message.WhichOneof("message"):
            case "assignment" if self.refuses:
                transitions.refused(live, self.name, "no sockets left")
            case "assignment":
                transitions.ready(live, self.name, self.endpoints(message.assignment.ranks))
            case "quiesce":
                numbers = [rank.rank for rank in live.job.ranks if rank.agent == self.name]
                self.phases = list(message.quiesce.targets) or self.phases
                ranks = [pb.RankPositions(rank=number, phases=self.phases) for number in numbers]
                positions = pb.Positions(fetched=bool(message.quiesce.targets), ranks=ranks)
                transitions.positions(live, self.name, positions)

    def endpoints(self, ranks: Sequence[int]) -> pb.AssignmentReady:
        return pb.AssignmentReady(
            endpoints=[pb.Endpoint(rank=rank, address="127.0.0.1", udp_port=self.udp_port + rank) for rank in ranks]
        )

    def answer_last(self) -> None:
        """Answer the last message, and hold no further ones."""
        self.holds = ""
        self.answer(self.received[-1])


class World:
    """The transitions of one job, with everything that they need."""

    def __init__(self, path: Path) -> None:
        self.steps: list[str] = []
        self.driver = RecordingDriver(self.steps)
        self.switch = ManagedSwitch(
            SwitchConfig(name="s1", target=SOFT, address="127.0.0.1", p4runtime="x:1"), self.driver
        )
        self.store = Store(path)
        switches = Switches([self.switch], self.store)
        self.agents = Agents(switches.get)
        self.jobs = JobRegister(self.store)
        self.pools = SlotPools()
        self.scopes = Scopes(switches, AgentRooms(self.agents, self.jobs.ranks_in_use), self.pools)
        self.endings = JobEndings(self.store, self.jobs, self.agents, self.pools)
        self.parts = Parts(self.store, switches, self.agents, self.scopes, self.pools, self.jobs)
        self.transitions = Transitions(self.parts, self.endings)
        self.by_name: dict[str, Agent] = {}
        self.live: LiveJob

    def agent(self, name: str, max_ranks: int = 8) -> Agent:
        """Add an agent."""
        self.by_name[name] = Agent(self, name, max_ranks)
        return self.by_name[name]

    def lose_agent(self, name: str) -> None:
        """End an agent's session, and report it as the controller does."""
        agent = self.by_name[name]
        agent.session.end("it is gone")
        lost = [rank for rank in self.live.job.ranks if rank.agent == name and not rank.ended]
        self.transitions.agent_lost(self.live, name, lost, f"agent {name} was lost")

    def admit(self, workers: int, on_failure: OnFailure) -> LiveJob:
        """Admit a job, which has not started yet."""
        base = self.pools.of(self.switch).allocate(SLOTS)
        request = JobRequest(pb.StartJobRequest(workers=workers))
        ranks = self.scopes.candidates(request)[0].place(workers).ranks()
        places = [JobSwitch("s1", epoch=1, slot_base=base, slots=SLOTS, group=1)]
        job = Job(0, 1, "job", workers, 64, 1.0, switches=places, ranks=ranks, on_failure=on_failure, secret=1)
        self.store.create_job(job)
        self.live = LiveJob(job, [self.switch])
        self.jobs.add(self.live)
        return self.live

    async def start(self, workers: int, on_failure: OnFailure = OnFailure.SHRINK) -> LiveJob:
        """Start a job and wait until nothing moves."""
        live = self.admit(workers, on_failure)
        self.transitions.start(live)
        await self.idle()
        return live

    async def running(self, workers: int, on_failure: OnFailure = OnFailure.SHRINK) -> LiveJob:
        """Start a job and attach its ranks; the steps until then are forgotten."""
        live = await self.start(workers, on_failure)
        for rank in live.job.ranks:
            rank.state = RankState.ATTACHED
        self.jobs.enter(live, JobState.RUNNING)
        self.steps.clear()
        return live

    def lose(self, number: int) -> None:
        """Report the loss of a rank."""
        self.transitions.ranks_lost(self.live, [self.live.job.ranks[number]], "its process has ended")

    async def idle(self) -> None:
        """Let all tasks run until each of them waits for the test; nothing here waits for other processes."""
        for _ in range(100):
            await asyncio.sleep(0)

    def steps_of(self, name: str) -> list[str]:
        """Return the steps of an agent or of the switch."""
        return [step.partition(" ")[2] for step in self.steps if step.startswith(f"{name} ")]

    def nothing_is_held(self) -> bool:
        """Return whether the job holds neither slots nor a place among the live jobs."""
        return self.pools.of(self.switch).free_slots == ALL_SLOTS and self.jobs.get(self.live.job) is None


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path / "store.sqlite")
    yield made
    for agent in made.by_name.values():
        agent.task.cancel()
    transition = made.live.transition
    if transition is not None:
        transition.task.cancel()
    await made.idle()
    made.store.close()


# ---- the start ------------------------------------------------------------------------------------------------------


async def test_a_start_assigns_then_installs_then_activates(world: World) -> None:
    """Without a past no rank is stopped, and no tables are replaced."""
    world.agent("a1")
    world.agent("a2")
    live = await world.start(2)
    assert world.steps == [
        "a1 assignment 1",
        "a2 assignment 1",
        "switch install 1",
        "a1 activation 1",
        "a2 activation 1",
    ]
    assert [(rank.agent, rank.udp_port) for rank in live.job.ranks] == [("a1", 40000), ("a2", 40001)]
    assert (live.job.state, live.transition) == (JobState.READY, None)


async def test_tables_are_written_after_the_last_agent_has_answered(world: World) -> None:
    world.agent("a1")
    world.agent("a2").holds = "assignment"
    live = await world.start(2)
    assert (world.steps, live.job.state) == (["a1 assignment 1", "a2 assignment 1"], JobState.PENDING)
    world.by_name["a2"].answer_last()
    await world.idle()
    assert world.steps[2] == "switch install 1"
    assert live.job.state is JobState.READY


async def test_ranks_that_an_agent_refuses_go_to_another_one(world: World) -> None:
    """The agent is told to close what it may have opened, and the job begins in another epoch with another secret."""
    world.agent("a1").refuses = True
    world.agent("a2")
    world.agent("a3")
    live = await world.start(2)
    assert [rank.agent for rank in live.job.ranks] == ["a2", "a3"]
    assert world.steps_of("a1") == ["assignment 1", "revocation 1"]
    assert world.steps_of("a2") == ["assignment 1", "assignment 2", "activation 2"]
    assert world.steps_of("switch") == ["install 2"]
    assert live.job.secret != 1
    assert world.store.live_jobs() == [live.job]


async def test_a_refusal_fails_the_start_if_no_other_agent_has_room(world: World) -> None:
    world.agent("a1", max_ranks=1)
    world.agent("a2", max_ranks=1).refuses = True
    live = world.admit(2, OnFailure.SHRINK)
    transition = world.transitions.start(live)
    await world.idle()
    assert isinstance(transition.error, AgentFailed)
    assert (live.job.state, live.job.failure) == (JobState.FAILED, "agent a2 refused its ranks: no sockets left")
    assert world.steps_of("a1") == ["assignment 1", "revocation 1"]
    assert world.steps_of("switch") == []
    assert world.nothing_is_held()


async def test_ranks_do_not_move_if_processes_wait_at_the_agent(world: World) -> None:
    world.agent("a1").refuses = True
    world.agent("a2")
    live = world.admit(1, OnFailure.SHRINK)
    live.announcements = {0: 1}
    world.transitions.start(live)
    await world.idle()
    assert live.job.state is JobState.FAILED
    assert world.steps_of("a2") == []


async def test_a_switch_that_refuses_the_tables_fails_the_start(world: World) -> None:
    """Some of the tables may be there, so they are removed; no rank is activated."""
    world.agent("a1")
    world.driver.refused = {"install"}
    live = await world.start(2)
    assert world.steps_of("a1") == ["assignment 1", "revocation 1"]
    assert world.steps_of("switch") == ["install 1", "remove 1"]
    assert (live.job.state, live.job.failure) == (JobState.FAILED, "the table is full")
    assert world.nothing_is_held()


async def test_a_loss_during_the_start_leads_to_another_epoch_after_it(world: World) -> None:
    world.agent("a1")
    world.agent("a2").holds = "assignment"
    live = await world.start(2)
    world.lose(0)
    await world.idle()
    assert world.steps_of("switch") == []
    world.by_name["a2"].answer_last()
    await world.idle()
    assert world.steps_of("switch") == ["install 1", "replace 1 by 2"]
    assert world.steps_of("a2") == ["assignment 1", "activation 1", "quiesce 1", "assignment 2", "activation 2"]
    assert [rank.worker for rank in live.job.ranks] == [1]


# ---- another epoch --------------------------------------------------------------------------------------------------


async def test_a_new_epoch_quiesces_assigns_replaces_and_activates(world: World) -> None:
    for name in ("a1", "a2", "a3"):
        world.agent(name)
    live = await world.running(3)
    reached: list[LiveJob] = []
    world.transitions.on_new_epoch = reached.append
    world.lose(1)
    await world.idle()
    assert world.steps == [
        *("a1 quiesce 1", "a3 quiesce 1", "a1 assignment 2", "a3 assignment 2", "switch replace 1 by 2"),
        *("a1 activation 2", "a3 activation 2", "a2 revocation 1"),
    ]
    job = live.job
    assert [(rank.rank, rank.worker, rank.state) for rank in job.ranks] == [
        (0, 0, RankState.ATTACHED),
        (1, 2, RankState.ATTACHED),
    ]
    [change] = job.epoch_changes
    assert (change.epoch, change.workers, change.lost, change.joined) == (2, 2, (1,), ())
    succession = world.by_name["a3"].received[-2].assignment.succession
    assert (succession.previous_epoch, [*succession.previous_ranks], [*succession.lost]) == (1, [2], [1])
    assert (job.epoch, job.generation, job.in_transition, live.transition) == (2, 1, False, None)
    assert reached == [live]
    assert world.store.live_jobs() == [job]


async def test_ranks_fetch_only_if_they_hold_different_phases(world: World) -> None:
    """All ranks fetch up to the largest number of each slot, before any of them is assigned again."""
    world.agent("a1").phases[0] = 5
    world.agent("a2").phases[1] = 7
    world.agent("a3")
    await world.running(3)
    world.lose(2)
    await world.idle()
    assert world.steps[:5] == [
        *("a1 quiesce 1", "a2 quiesce 1", "a1 quiesce 1 to fetch", "a2 quiesce 1 to fetch"),
        "a1 assignment 2",
    ]
    assert world.by_name["a2"].phases == [5, 7, *[0] * (SLOTS - 2)]


def test_target_phases_are_the_largest_of_each_slot() -> None:
    assert target_phases([[1, 0, 4], [0, 0, 5]]) == [1, 0, 5]


@pytest.mark.parametrize("held", ["quiesce", "assignment"])
async def test_another_loss_begins_again_with_the_plan(world: World, held: str) -> None:
    """One change has all losses; the epoch of the attempt that was given up is not used again."""
    for name in ("a1", "a2", "a3"):
        world.agent(name)
    live = await world.running(3)
    world.by_name["a3"].holds = held
    world.lose(0)
    await world.idle()
    assert world.steps_of("a3")[-1].startswith(held)
    assert world.steps_of("switch") == []
    world.lose_agent("a3")
    await world.idle()
    assert world.steps_of("a2")[-3:] == ["quiesce 1", "assignment 3", "activation 3"]
    assert world.steps_of("switch") == ["replace 1 by 3"]
    [change] = live.job.epoch_changes
    assert (change.epoch, change.lost) == (3, (0, 2))
    assert change.reason == "rank 0 was lost: its process has ended; rank 2 was lost: agent a3 was lost"


async def test_ranks_of_a_silent_agent_are_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchml.controller.jobs.epochs.ANSWER_SECONDS", 0.0)
    for name in ("a1", "a2", "a3"):
        world.agent(name)
    live = await world.running(3)
    world.by_name["a2"].holds = "quiesce"
    world.lose(0)
    await world.idle()
    [change] = live.job.epoch_changes
    assert change.lost == (0, 1)
    assert "agent a2 did not answer within 0 s" in change.reason
    assert [rank.agent for rank in live.job.ranks] == ["a3"]


async def test_positions_that_do_not_have_every_slot_fail_the_job(world: World) -> None:
    world.agent("a1").phases.pop()
    world.agent("a2")
    live = await world.running(2)
    world.lose(1)
    await world.idle()
    assert live.job.state is JobState.FAILED
    assert "agent a1 did not report the position of rank 0" in live.job.failure
    assert world.steps_of("a1") == ["quiesce 1", "revocation 1"]
    assert world.steps_of("switch") == ["remove 1"]
    assert world.nothing_is_held()


async def test_a_switch_that_refuses_the_new_tables_fails_the_job(world: World) -> None:
    """Ranks are not activated; the switch is compared with the store, because it may have tables of both epochs."""
    world.agent("a1")
    world.agent("a2")
    live = await world.running(2)
    world.driver.refused = {"replace"}
    world.lose(1)
    await world.idle()
    assert live.job.state is JobState.FAILED
    assert live.job.failure == (
        "rank 1 was lost: its process has ended; and the job could not continue: the table is full"
    )
    assert world.steps_of("a1") == ["quiesce 1", "assignment 2", "revocation 1"]
    assert world.steps_of("switch") == ["replace 1 by 2", "remove 2"]
    assert world.driver.prepared_again
    assert world.nothing_is_held()


async def test_the_last_rank_cannot_be_left_out(world: World) -> None:
    world.agent("a1")
    live = await world.running(1)
    world.lose(0)
    await world.idle()
    assert live.job.failure.endswith("the job could not continue: no rank is left")
    assert world.steps_of("a1") == ["revocation 1"]


async def test_a_job_that_aborts_does_not_leave_its_epoch(world: World) -> None:
    world.agent("a1")
    world.agent("a2")
    live = await world.running(2, OnFailure.ABORT)
    world.lose(1)
    await world.idle()
    assert (live.job.state, live.job.failure) == (JobState.FAILED, "rank 1 was lost: its process has ended")
    assert sorted(world.steps) == ["a1 revocation 1", "a2 revocation 1", "switch remove 1"]


async def test_an_epoch_is_renewed_without_a_loss(world: World) -> None:
    world.agent("a1")
    live = await world.running(2)
    world.transitions.renew(live, "a slot was used often")
    world.transitions.renew(live, "another one too")  # the job is in transition already
    await world.idle()
    assert world.steps == ["a1 quiesce 1", "a1 assignment 2", "switch replace 1 by 2", "a1 activation 2"]
    assert [(change.lost, change.reason) for change in live.job.epoch_changes] == [((), "a slot was used often")]


# ---- new processes for lost ranks -----------------------------------------------------------------------------------


async def test_a_lost_agents_rank_is_replaced_at_another_one(world: World) -> None:
    """The first agent that is asked refuses: it is told to close its rank, and another one is asked."""
    world.agent("a1", max_ranks=1)
    world.agent("a2", max_ranks=1)
    live = await world.running(2, OnFailure.RESTART)
    world.agent("a3").refuses = True
    world.agent("a4")
    world.lose_agent("a2")
    await world.idle()
    assert world.steps_of("a3") == ["assignment 2", "revocation 2"]
    assert world.steps_of("a4") == ["assignment 3", "activation 3"]
    assert world.steps_of("switch") == ["replace 1 by 3"]
    assert [(rank.agent, rank.state) for rank in live.job.ranks] == [
        ("a1", RankState.ATTACHED),
        ("a4", RankState.ASSIGNED),
    ]
    succession = world.by_name["a4"].received[0].assignment.succession
    assert ([*succession.previous_ranks], [*succession.joined]) == ([-1], [1])
    assert live.vacant(1) is live.job.ranks[1]


async def test_a_job_fails_if_no_process_takes_the_place_of_a_lost_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchml.controller.jobs.transitions.RETURN_SECONDS", 0.0)
    world.agent("a1")
    live = await world.running(2, OnFailure.RESTART)
    world.lose(1)
    await world.idle()
    assert live.job.failure.endswith("no process has taken the place of rank 1 within 0 s")
    assert world.steps_of("switch") == ["replace 1 by 2", "remove 2"]


# ---- after a restart of the controller ------------------------------------------------------------------------------


async def test_a_job_is_recovered_when_its_agents_are_back(world: World) -> None:
    """Ranks and tables are there still, so nothing is changed."""
    for name in ("a1", "a2"):
        world.agent(name)
    live = await world.running(2)
    world.transitions.recover(live)
    await world.idle()
    assert (live.leaves_epoch, live.transition is None) == (False, False)
    for number, name in enumerate(("a1", "a2")):
        world.transitions.returned(live, name, world.by_name[name].endpoints([number]))
    await world.idle()
    assert world.steps == ["a1 activation 1", "a2 activation 1"]
    assert (live.transition, live.job.epoch_changes) == (None, [])


async def test_ranks_of_an_agent_with_other_sockets_are_lost(world: World) -> None:
    for name in ("a1", "a2"):
        world.agent(name)
    live = await world.running(2)
    world.transitions.recover(live)
    await world.idle()
    world.by_name["a2"].udp_port += 1
    world.transitions.returned(live, "a2", world.by_name["a2"].endpoints([1]))
    world.transitions.returned(live, "a1", world.by_name["a1"].endpoints([0]))
    await world.idle()
    assert world.steps_of("switch") == ["replace 1 by 2"]
    assert [rank.agent for rank in live.job.ranks] == ["a1"]


async def lose_rank_1_before_its_agent_is_back(world: World, live: LiveJob) -> None:
    """Restart the controller, lose rank 1, and let only the agent of rank 0 come back."""
    world.transitions.recover(live)
    await world.idle()
    world.lose(1)
    world.transitions.returned(live, "a1", world.by_name["a1"].endpoints([0]))
    await world.idle()
    assert world.steps == ["a1 activation 1"]


async def test_a_loss_is_heeded_when_the_agents_of_the_other_ranks_are_back(world: World) -> None:
    """Agents that have not returned yet would not hear that their ranks must stop."""
    for name in ("a1", "a2", "a3"):
        world.agent(name)
    live = await world.running(3)
    await lose_rank_1_before_its_agent_is_back(world, live)
    world.transitions.returned(live, "a3", world.by_name["a3"].endpoints([2]))
    await world.idle()
    assert world.steps_of("switch") == ["replace 1 by 2"]
    assert [rank.agent for rank in live.job.ranks] == ["a1", "a3"]
    [change] = live.job.epoch_changes
    assert change.lost == (1,)


@pytest.mark.parametrize("returns", ["its agent", "its agent, restarted", "nothing"])
async def test_a_lost_rank_has_a_place_when_its_agent_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch, returns: str
) -> None:
    """The agent of a rank that ended while the controller was away may be the last one that comes back."""
    if returns == "nothing":
        monkeypatch.setattr("switchml.controller.jobs.epochs.RECOVERY_SECONDS", 0.1)
    for name in ("a1", "a2"):
        world.agent(name, max_ranks=1)
    live = await world.running(2, OnFailure.RESTART)
    world.by_name["a2"].session.end("the controller was killed")
    await lose_rank_1_before_its_agent_is_back(world, live)
    assert live.transition is not None
    if returns == "nothing":
        await live.transition.task
        await world.idle()
        assert "agent a2 is gone or refuses" in live.job.failure
        return
    world.by_name["a2"].task.cancel()
    endpoints = world.by_name["a2"].endpoints([1])
    world.agent("a2", max_ranks=1)
    if returns == "its agent":
        world.transitions.returned(live, "a2", endpoints)
    else:
        world.transitions.agent_restarted(live, "a2", [])
    await world.idle()
    assert world.steps_of("switch") == ["replace 1 by 2"]
    assert live.vacant(1) is live.job.ranks[1]


@pytest.mark.parametrize("returns", [True, False])
async def test_a_loss_waits_for_a_switch_that_is_not_connected_yet(
    world: World, monkeypatch: pytest.MonkeyPatch, returns: bool
) -> None:
    if not returns:
        monkeypatch.setattr("switchml.controller.jobs.epochs.RECOVERY_SECONDS", 0.1)
    world.agent("a1")
    live = await world.running(2)
    world.driver.connected = False
    world.lose(1)
    await world.idle()
    assert world.steps == []
    assert not live.job.in_transition  # a controller that takes over now can continue the job
    world.driver.connected = returns
    assert live.transition is not None
    await live.transition.task
    assert world.steps_of("switch") == ["replace 1 by 2"]


async def test_ranks_of_agents_that_do_not_return_are_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchml.controller.jobs.epochs.RECOVERY_SECONDS", 0.0)
    for name in ("a1", "a2"):
        world.agent(name)
    live = await world.running(2)
    world.transitions.recover(live)
    await asyncio.sleep(0)  # the transition begins to wait; its time is over when this test waits again
    world.transitions.returned(live, "a1", world.by_name["a1"].endpoints([0]))
    await world.idle()
    [change] = live.job.epoch_changes
    assert change.reason.endswith("agent a2 did not come back within 0 s of the controller's start")
    assert [rank.agent for rank in live.job.ranks] == ["a1"]
