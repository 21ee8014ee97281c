"""Jobs that begin when all ranks have announced themselves, on a real switch with agents that the test controls."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from switchml.controller.client import ControllerClient
from switchml.controller.jobs.rendezvous import MAX_KEYS_OF_AGENT, MAX_KEYS_OF_TENANT, job_name
from switchml.controller.proto import switchml_pb2 as pb
from tests.support.controller_harness import ScriptedAgent, configuration, running_controller, wait_until
from tests.support.soft_switch import SwitchProcess, running_switch

SLOTS = 1024


@pytest.fixture(scope="module")
def switches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SwitchProcess]]:
    with (
        running_switch(tmp_path_factory.mktemp("s1"), "--udp-port", "1=127.0.0.1:0") as first,
        running_switch(tmp_path_factory.mktemp("s2"), "--udp-port", "1=127.0.0.1:0") as second,
    ):
        yield [first, second]


@pytest.fixture(scope="module")
def running(switches: list[SwitchProcess], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerClient]:
    config = configuration(switches[0]) + configuration(switches[1], "s2")
    with running_controller(tmp_path_factory.mktemp("controller"), config) as (_, client):
        yield client


@pytest.fixture
def client(running: ControllerClient) -> Iterator[ControllerClient]:
    """Check that the test leaves the switches as it found them."""
    yield running
    for job in running.list_jobs():
        running.stop_job(job.id)
    wait_until(lambda: not any(agent.live for agent in running.list_agents()), "the agents are gone")
    wait_until(lambda: all(s.slots_free == SLOTS for s in running.list_switches()), "the slots are free")


class Agent(ScriptedAgent):
    """An agent that numbers its announcements from 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.numbers = itertools.count(1)
        self.switch = self.switch or "s1"

    def announce(
        self,
        rank: int,
        world_size: int = 2,
        key: str = "k",
        seconds: float = 90.0,
        slots: int = 0,
        priority: int = 0,
    ) -> int:
        number = next(self.numbers)
        fields: dict[str, object] = {"rank": rank, "world_size": world_size, "key": key, "slots": slots}
        self.announce_as(number, **fields, wait_seconds=seconds, priority=priority)
        return number

    def announce_as(self, number: int, **fields: object) -> None:
        announcement = pb.RankAnnouncement(announcement=number, **fields)  # type: ignore[arg-type]
        self.send(pb.AgentMessage(rank_announcement=announcement))

    def withdraw(self, number: int) -> None:
        self.send(pb.AgentMessage(rank_withdrawal=pb.RankWithdrawal(announcement=number)))

    def settle(self) -> None:
        """Wait until the controller has handled this agent's messages; other agents use other streams."""
        before = len(self.messages("rendezvous_refusal"))
        self.announce(0, 1, key="", seconds=0.0)
        self.wait_for("rendezvous_refusal", before + 1)
        self.received[:] = [m for m in self.received if m.rendezvous_refusal.error != "InvalidRequest"]

    def refusals(self, count: int = 1) -> list[pb.RendezvousRefusal]:
        self.wait_for("rendezvous_refusal", count)
        return self.messages("rendezvous_refusal")


@pytest.fixture
def agents(client: ControllerClient) -> Iterator[tuple[Agent, Agent]]:
    with Agent(client.address, "a1") as first, Agent(client.address, "a2") as second:
        yield first, second


def live_job(client: ControllerClient, key: str = "k") -> pb.Job:
    """Return the job of the key when it is READY."""
    wait_until(
        lambda: [j for j in client.list_jobs() if j.name == job_name(key) and j.state != pb.JOB_STATE_PENDING], "READY"
    )
    return client.get_job(job_name(key))


def test_each_rank_goes_to_the_agent_that_announced_it(
    client: ControllerClient, agents: tuple[Agent, Agent], limit: Callable[[float], float]
) -> None:
    first, second = agents
    numbers = [first.announce(rank, 3, "run/7", slots=64, priority=4) for rank in (2, 0)]
    assert not client.list_jobs()
    other = second.announce(1, 3, "run/7", slots=64, priority=4)
    job = live_job(client, "run/7")
    assert job.name.startswith("run-7-")
    assert (job.state, job.workers) == (pb.JOB_STATE_READY, 3)
    assert [(place.switch, place.slots) for place in job.switches] == [("s1", 64)]
    assert [rank.agent for rank in job.ranks] == ["a1", "a2", "a1"]
    assert (job.priority, first.wait_for("assignment").priority) == (4, 4)
    mine, theirs = first.wait_for("assignment"), second.wait_for("assignment")
    assert (list(mine.ranks), list(mine.announcements)) == ([0, 2], numbers[::-1])
    assert (list(theirs.ranks), list(theirs.announcements)) == ([1], [other])
    for agent in agents:
        assert agent.wait_for("activation") == pb.Activation(job=job.id, epoch=job.epoch)
    tables = [entry.table for entry in client.show_switch("s1").entries]
    assert tables.count("worker_table") == 3
    # A lost rank then ends it like any other job.
    for rank in range(3):
        agents[rank % 2].event(job, rank, pb.RankEvent.KIND_ATTACHED)
    second.event(job, 1, pb.RankEvent.KIND_LOST, detail="its process was killed")
    revocation = first.wait_for("revocation", seconds=limit(2))
    assert (revocation.reason, list(revocation.ranks)) == (pb.REVOCATION_REASON_WORKER_LOST, [1])
    assert not first.messages("rendezvous_refusal")


def test_at_the_deadline_all_who_wait_are_told_who_is_missing(
    client: ControllerClient, agents: tuple[Agent, Agent]
) -> None:
    first, second = agents
    second.announce(1, 4)
    second.settle()
    numbers = {first.announce(0, 4), first.announce(3, 4, seconds=0.5)}
    refusals = [*first.refusals(2), *second.refusals()]
    assert {refusal.announcement for refusal in first.refusals()} == numbers
    assert {refusal.error for refusal in refusals} == {"MissingRanks"}
    assert all("rank 2 of 4 did not come in time" in refusal.message for refusal in refusals)
    assert not client.list_jobs(include_ended=False)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"world_size": 4}, "WrongWorldSize", "says that the job has 4 ranks, ranks 0, 1 said 3"),
        ({"rank": 1}, "RankTaken", "two processes are rank 1, at agent a1 and at agent a2"),
        ({"slots": 64}, "InvalidRequest", "asks for 64 slots, ranks 0, 1 for 0"),
        ({"priority": 3}, "InvalidRequest", "asks for priority 3, ranks 0, 1 for 0; give all ranks the same priority"),
    ],
)
def test_ranks_that_do_not_go_together(
    client: ControllerClient, agents: tuple[Agent, Agent], change: dict[str, Any], error: str, words: str
) -> None:
    first, second = agents
    for rank in (0, 1):
        first.announce(rank, 3)
    first.settle()
    second.announce(**{"rank": 2, "world_size": 3, **change})
    refusals = [*first.refusals(2), *second.refusals()]
    assert {refusal.error for refusal in refusals} == {error}
    assert all(words in refusal.message for refusal in refusals)
    # The key is free again.
    for rank in range(2):
        agents[rank].announce(rank)
    assert live_job(client).state == pb.JOB_STATE_READY


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"key": ""}, "1 to 200 printable"),
        ({"key": "a\nb"}, "1 to 200 printable"),
        ({"rank": 2}, "has no rank 2"),
        ({"world_size": 0}, "1 to 4096 workers"),
        ({"world_size": 4097}, "1 to 4096 workers"),
        ({"slots": 3}, "power of two"),
        ({"priority": 8}, "from 0 to 7"),
        ({"wait_seconds": float("nan")}, "waits at most"),
        ({"wait_seconds": float("inf")}, "waits at most"),
        ({"wait_seconds": 1e6}, "waits at most"),
    ],
)
def test_announcements_that_make_no_sense_are_refused_alone(
    client: ControllerClient, agents: tuple[Agent, Agent], fields: dict[str, object], words: str
) -> None:
    first, second = agents
    first.announce(0)
    second.announce_as(9, **{"rank": 1, "world_size": 2, "key": "k", "wait_seconds": 20.0, **fields})
    [refusal] = second.refusals()
    assert (refusal.announcement, refusal.error) == (9, "InvalidRequest")
    assert words in refusal.message
    second.announce(1)
    assert live_job(client).state == pb.JOB_STATE_READY
    assert not first.messages("rendezvous_refusal")


def test_what_admission_refuses(client: ControllerClient, agents: tuple[Agent, Agent]) -> None:
    for rank, agent in enumerate(agents):
        agent.announce(rank, slots=2 * SLOTS)
    for agent in agents:
        [refusal] = agent.refusals()
        assert (refusal.error, "2048 slots asked" in refusal.message) == ("NoRoom", True)
    for rank in range(9):
        agents[0].announce(rank, 9)
    refusal = agents[0].refusals(10)[-1]
    assert refusal.error == "NoAgent"
    assert "9 ranks wait at agent a1, which has room for 8" in refusal.message
    with Agent(client.address, "a3", switch="s2") as elsewhere:
        agents[0].announce(0)
        elsewhere.announce(1)
        [refusal] = elsewhere.refusals()
        assert refusal.error == "InvalidRequest"
        assert "agent a1 to switch s1 and agent a3 to switch s2" in refusal.message
    assert not client.list_jobs()


def test_a_rank_that_withdraws_may_come_again(client: ControllerClient, agents: tuple[Agent, Agent]) -> None:
    first, second = agents
    number = first.announce(0)
    first.settle()
    second.withdraw(number)  # the same number, but of another agent
    second.announce(1, key="sentinel", seconds=0.0)
    second.refusals()
    first.withdraw(number)
    first.settle()
    second.announce(1)
    second.announce(0)  # now at another agent
    job = live_job(client)
    assert [rank.agent for rank in job.ranks] == ["a2", "a2"]
    assert not first.messages("assignment")


def test_ranks_at_an_agent_that_goes_away_are_missing(client: ControllerClient, agents: tuple[Agent, Agent]) -> None:
    with Agent(client.address, "a3") as third:
        third.announce(0, 3)
        third.settle()
        agents[1].announce(2, 3)
        agents[1].settle()
        third.disconnect()
        wait_until(lambda: len([one for one in client.list_agents() if one.live]) == 2, "it is gone")
        agents[0].announce(1, 3, seconds=0.5)
    assert "rank 0 of 3 did not come" in agents[1].refusals()[0].message


def test_an_agent_that_comes_back_announces_again(client: ControllerClient, agents: tuple[Agent, Agent]) -> None:
    with Agent(client.address, "a3", instance="i") as before:
        number = before.announce(0)
        before.disconnect()
    with Agent(client.address, "a3", instance="i") as after:
        fields = {"rank": 0, "world_size": 2, "key": "k", "wait_seconds": 20.0}
        after.announce_as(number, **fields)
        after.announce_as(number, **fields)  # a repeated announcement counts once
        agents[0].announce(1)
        assert [rank.agent for rank in live_job(client).ranks] == ["a3", "a1"]


def test_a_key_is_used_again_when_its_job_has_ended(client: ControllerClient, agents: tuple[Agent, Agent]) -> None:
    for rank, agent in enumerate(agents):
        agent.announce(rank, slots=SLOTS)
    before = live_job(client)
    for rank, agent in enumerate(agents):
        agent.announce(rank, slots=SLOTS)  # these are all slots, which the first job still holds
    for rank, agent in enumerate(agents):
        agent.event(before, rank, pb.RankEvent.KIND_ATTACHED)
    assert [job.id for job in client.list_jobs()] == [before.id]
    agents[0].event(before, 0, pb.RankEvent.KIND_LOST)
    wait_until(lambda: client.get_job(job_name("k")).epoch > before.epoch, "another job of the key")
    after = live_job(client)
    assert after.state == pb.JOB_STATE_READY
    assert after.key > before.key
    assert agents[0].wait_for("assignment", 2).epoch == after.epoch


def test_a_job_that_does_not_end_holds_its_key(client: ControllerClient, agents: tuple[Agent, Agent]) -> None:
    for rank, agent in enumerate(agents):
        agent.announce(rank)
    name = live_job(client).name
    agents[0].announce(0)
    agents[0].settle()
    agents[1].announce(1, seconds=0.5)
    for agent in agents:
        [refusal] = agent.refusals()
        assert refusal.error == "JobExists"
        assert f"switchml-ctl job stop {name}" in refusal.message


def test_a_rank_that_is_lost_while_the_job_starts(
    client: ControllerClient, agents: tuple[Agent, Agent], limit: Callable[[float], float]
) -> None:
    first, second = agents
    second.answer = lambda _: None
    first.announce(0)
    second.announce(1)
    assignment = second.wait_for("assignment")
    job = pb.Job(id=assignment.job, epoch=assignment.epoch)
    second.event(job, 1, pb.RankEvent.KIND_LOST, detail="it went away")
    revocation = first.wait_for("revocation", seconds=limit(2))
    assert (revocation.reason, list(revocation.ranks)) == (pb.REVOCATION_REASON_WORKER_LOST, [1])
    assert client.get_job(job_name("k")).failure.endswith("says: it went away")
    assert "rank 1 was lost" in first.refusals()[0].message


def test_an_agent_that_refuses_its_ranks(client: ControllerClient, agents: tuple[Agent, Agent]) -> None:
    first, second = agents

    def refuse(assignment: pb.Assignment) -> pb.AgentMessage:
        reason = "the process of rank 1 does not wait any more"
        failed = pb.AssignmentFailed(job=assignment.job, epoch=assignment.epoch, reason=reason)
        return pb.AgentMessage(assignment_failed=failed)

    second.answer = refuse
    first.announce(0)
    second.announce(1)
    [refusal] = first.refusals()
    assert (refusal.error, "does not wait any more" in refusal.message) == ("AgentFailed", True)


def test_one_agent_does_not_use_up_the_keys(client: ControllerClient, agents: tuple[Agent, Agent]) -> None:
    first, second = agents
    for number in range(MAX_KEYS_OF_AGENT + 1):
        first.announce(0, key=f"key {number}")
    [refusal] = first.refusals()
    assert (refusal.announcement, refusal.error) == (MAX_KEYS_OF_AGENT + 1, "NoRoom")
    assert f"ranks of {MAX_KEYS_OF_AGENT} jobs of agent a1 wait for others already" in refusal.message
    second.announce(0, key="another")
    second.settle()
    first.announce(1, key="another")  # begun by the other agent
    assert live_job(client, "another").state == pb.JOB_STATE_READY


def test_the_keys_of_a_tenant_are_limited(client: ControllerClient, agents: tuple[Agent, Agent]) -> None:
    with contextlib.ExitStack() as stack:
        several = [stack.enter_context(Agent(client.address, f"b{number}")) for number in range(4)]
        for agent in several:
            for number in range(MAX_KEYS_OF_TENANT // len(several)):
                agent.announce(0, key=f"key {agent.name} {number}")
            agent.settle()
            assert not agent.messages("rendezvous_refusal")
        agents[0].announce(0)
        [refusal] = agents[0].refusals()
    assert refusal.error == "NoRoom"
    assert "ranks of 1024 jobs of agents of no tenant wait for others already" in refusal.message
