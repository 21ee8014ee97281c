"""The controller's work for large jobs: what each rank causes must not grow with the number of ranks."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from switchml.common.job_numbers import seconds_to_open
from switchml.controller.admission.admission import Admission
from switchml.controller.admission.quotas import Quotas
from switchml.controller.agents import MAX_AGENTS, Agents
from switchml.controller.errors import NoRoom
from switchml.controller.jobs.closings import Closings
from switchml.controller.jobs.lifecycle import Lifecycle
from switchml.controller.jobs.rendezvous import Rendezvous
from switchml.controller.jobs.verdict import judge
from switchml.controller.northbound.agent_messages import AgentMessages
from switchml.controller.northbound.call_limits import CALLS_AT_ONCE, CALLS_OF_OTHERS
from switchml.controller.northbound.probes import Probes
from switchml.controller.northbound.profiles import Profiles
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import JobState, OnFailure, RankState
from switchml.controller.switches import Switches
from switchml.dataplane.constants import PROTOCOL_MAX_WORLD
from tests.unit.test_controller_agents import Switch, registration
from tests.unit.test_controller_transitions import World

RANKS = 32


class RowsWritten:
    """Notes the rows of ranks that the store writes from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with contextlib.closing(sqlite3.connect(path, timeout=10)) as database:
            database.executescript(
                "CREATE TABLE written (rank INTEGER);"
                "CREATE TRIGGER note AFTER INSERT ON ranks BEGIN INSERT INTO written VALUES (NEW.rank); END;"
            )

    def written(self) -> list[int]:
        """Return the number of the rank in each row, in order."""
        with contextlib.closing(sqlite3.connect(self._path, timeout=10)) as database:
            return [rank for (rank,) in database.execute("SELECT rank FROM written ORDER BY rowid")]


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


def lifecycle_of(world: World) -> Lifecycle:
    switches = Switches([world.switch], world.store)
    admission = Admission(world.store, switches, world.jobs, Quotas(()), world.pools, world.scopes)
    return Lifecycle(world.store, world.jobs, admission, world.transitions, world.endings, Closings(world.agents))


async def test_an_event_of_a_rank_writes_that_rank_alone(world: World) -> None:
    world.agent("a1", max_ranks=RANKS)
    live = await world.start(RANKS)
    lifecycle = lifecycle_of(world)
    lifecycle.rank_reached(live, live.job.ranks[0], RankState.ATTACHED)  # which the job's state is written for
    rows = RowsWritten(world.store.path)
    lifecycle.rank_reached(live, live.job.ranks[5], RankState.ATTACHED)
    lifecycle.rank_reached(live, live.job.ranks[6], RankState.ATTACHED)
    assert rows.written() == [5, 6]
    lifecycle.report_exit(live.job, 6, 1)
    assert rows.written() == [5, 6, 6]
    read = world.store.job_of_name("job")
    assert read is not None
    found = [(rank.state, rank.exit_code) for rank in read.ranks[4:7]]
    assert found == [(RankState.ASSIGNED, None), (RankState.ATTACHED, None), (RankState.LOST, 1)]


class Looked(dict[int, pb.Call]):
    """Counts how often each rank's call is looked at."""

    def __init__(self, calls: dict[int, pb.Call]) -> None:
        super().__init__(calls)
        self.times: Counter[int] = Counter()

    def __getitem__(self, rank: int) -> pb.Call:
        self.times[rank] += 1
        return super().__getitem__(rank)


@pytest.mark.parametrize("reason", [pb.REVOCATION_REASON_INTEGRITY, pb.REVOCATION_REASON_CALL_MISMATCH])
def test_a_failed_check_compares_no_pairs(reason: pb.RevocationReason) -> None:
    usual = pb.Call(sequence=5, operation="all_reduce", dtype="float32", elements=100)
    calls = dict.fromkeys(range(PROTOCOL_MAX_WORLD), usual)
    if reason == pb.REVOCATION_REASON_CALL_MISMATCH:
        calls[PROTOCOL_MAX_WORLD - 1] = pb.Call(sequence=5, operation="all_reduce", dtype="float32", elements=99)
    looked = Looked(calls)
    judgement = judge(looked, [], dict.fromkeys(calls, 7), range(64))
    assert judgement.reason == reason
    assert max(looked.times.values(), default=0) < 5


async def test_a_live_job_is_found_without_its_ranks_in_the_store(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.agent("a1", max_ranks=RANKS)
    live = await world.start(RANKS)
    for method in ("job_of_id", "job_of_name"):
        monkeypatch.setattr(world.store, method, None)
    assert world.jobs.find("job") is world.jobs.find(live.job.id) is live.job


async def test_the_agents_of_one_host_share_the_time_to_open_ranks(world: World) -> None:
    world.agent("a1", max_ranks=RANKS)
    world.agent("a2", max_ranks=RANKS)
    live = world.admit(2 * RANKS, OnFailure.ABORT)
    assert live.seconds_to_open() == seconds_to_open(2 * RANKS, live.job.slots, live.job.values_per_packet)


async def test_each_rank_of_the_largest_job_can_have_an_agent() -> None:
    agents = Agents(lambda _: Switch("soft"))
    for number in range(PROTOCOL_MAX_WORLD):
        agents.register(registration(name=f"a{number}"))
    assert PROTOCOL_MAX_WORLD <= MAX_AGENTS
    for number in range(PROTOCOL_MAX_WORLD, MAX_AGENTS):
        agents.register(registration(name=f"a{number}"))
    with pytest.raises(NoRoom, match=f"there are {MAX_AGENTS} live agents"):
        agents.register(registration(name="one-more"))
    assert MAX_AGENTS + CALLS_OF_OTHERS < CALLS_AT_ONCE, "each session is a call"


async def test_a_mismatch_is_found_though_the_rank_at_fault_reports_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller waits as long as reports come; a turn of the event loop takes the place of each second."""
    monkeypatch.setattr("switchml.controller.northbound.agent_messages.CHECK_SECONDS", 0)
    agent = world.agent("a1", max_ranks=RANKS)
    live = await world.start(RANKS)
    lifecycle = lifecycle_of(world)
    rendezvous = Rendezvous(world.jobs, lifecycle, world.transitions, world.endings, world.store.events)
    profiles, probes = Profiles(world.agents), Probes(world.agents, world.jobs)
    messages = AgentMessages(world.parts, lifecycle, world.transitions, world.endings, rendezvous, profiles, probes)
    for rank in range(4):  # the others report nothing
        call = pb.Call(sequence=5, operation="all_reduce", dtype="float32", elements=100 if rank < 3 else 99)
        event = pb.RankEvent(job=1, epoch=1, rank=rank, kind=pb.RankEvent.KIND_CHECK_FAILED, call=call, position=7)
        messages.take(agent.session, pb.AgentMessage(rank_event=event))
        await asyncio.sleep(0)
    await world.idle()
    assert live.job.state is JobState.FAILED
    assert "the ranks call differently: ranks 0, 1, 2: call 5" in live.job.failure
    revocation = agent.received[-1].revocation
    assert (revocation.reason, list(revocation.ranks)) == (pb.REVOCATION_REASON_CALL_MISMATCH, [3])
