"""The agent's part in jobs by rendezvous: waiting processes, and the messages to the controller about them."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import switchml
from switchml.common.version import VERSION
from switchml.controller.proto import switchml_pb2 as pb
from tests.loopback.agent_harness import RawProcess, RunningAgent, expect_event, in_thread, running_agent
from tests.loopback.agents_server import DEADLINE, AgentsServer, serving


def message(rank: int = 0, **changes: object) -> dict[str, object]:
    created = {"type": "attach", "version": VERSION, "job": "a key/0", "rank": rank, "world_size": 2, "pid": 1}
    return {**created, "create": True, "timeout": DEADLINE, "slots": 0, **changes}


async def announced(agent: RunningAgent, rank: int = 0, **changes: object) -> tuple[RawProcess, pb.RankAnnouncement]:
    """Return a process that waits, and the message to the controller about it."""
    process = await in_thread(lambda: RawProcess(agent.options.socket))
    await in_thread(lambda: process.send(message(rank, **changes)))
    return process, await agent.controller.next("rank_announcement")


async def begin(agent: RunningAgent, *announcements: pb.RankAnnouncement, **changes: Any) -> None:
    await agent.start_job(
        1,
        2,
        ranks=[one.rank for one in announcements],
        announcements=[one.announcement for one in announcements],
        **changes,
    )


async def test_processes_wait_until_their_job_begins(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        first, one = await announced(agent, 0, slots=64)
        assert (one.key, one.rank, one.world_size, one.slots) == ("a key/0", 0, 2, 64)
        assert DEADLINE / 3 < one.wait_seconds <= DEADLINE  # less by the time that the message took
        second, two = await announced(agent, 1)
        assert one.announcement != two.announcement
        assert not (await agent.controller.next_heartbeat()).ranks
        await begin(agent, one, two)
        for rank, process in enumerate((first, second)):
            answer = await in_thread(process.receive) or {}
            assert (answer["type"], answer["name"], answer["rank"]) == ("attached", "job-1", rank)
        for _ in range(2):
            assert (await agent.controller.next("rank_event")).kind == pb.RankEvent.KIND_ATTACHED
        # From here on it is an ordinary job.
        second.socket.close()
        await expect_event(agent.controller, pb.RankEvent.KIND_LOST, 1)
        await agent.revoke(pb.REVOCATION_REASON_WORKER_LOST, ranks=[1], message="rank 1 was lost")
        assert (await in_thread(first.receive) or {})["error"] == "WorkerLost"


async def test_a_process_that_goes_away_is_withdrawn(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        process, one = await announced(agent)
        process.socket.close()
        assert (await agent.controller.next("rank_withdrawal")).announcement == one.announcement
        # Earlier decisions of the controller are refused.
        await agent.controller.send(assignment=agent.assignment(ranks=[0], announcements=[one.announcement]))
        failed = await agent.controller.next("assignment_failed")
        assert "process of rank 0 of job job-1 no longer waits" in failed.reason


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ranks": [0], "announcements": [7]}, "no longer waits"),
        ({"ranks": [0], "announcements": [1, 1]}, "2 announcements for 1 ranks"),
        ({"ranks": [1], "announcements": [1]}, "not of rank 1 of 2"),
        ({"ranks": [0], "announcements": [1], "world_size": 3}, "not of rank 0 of 3"),
    ],
)
async def test_assignments_that_do_not_fit_those_who_wait(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    async with running_agent(tmp_path) as agent:
        process, one = await announced(agent)
        assert one.announcement == 1
        await agent.controller.send(assignment=agent.assignment(**changes))
        assert why in (await agent.controller.next("assignment_failed")).reason
        await begin(agent, one)  # it waits nevertheless
        assert (await in_thread(process.receive) or {})["type"] == "attached"


async def test_a_refusal_reaches_the_process(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        waiting = asyncio.create_task(
            in_thread(
                lambda: switchml.connect(
                    agent=agent.options.socket, job="k", rank=0, world_size=2, create=True, timeout=DEADLINE
                )
            )
        )
        one = await agent.controller.next("rank_announcement")
        for number in (one.announcement + 1, one.announcement):
            refusal = pb.RendezvousRefusal(announcement=number, error="NoRoom", message="no slots are left")
            await agent.controller.send(rendezvous_refusal=refusal)
        with pytest.raises(switchml.ConnectError, match="no slots are left") as raised:
            await waiting
        assert raised.value.reason == "NoRoom"


async def test_a_process_that_dies_while_its_job_starts_is_lost(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        process, one = await announced(agent, 0)
        other, two = await announced(agent, 1)
        await agent.assign(agent.assignment(ranks=[0, 1], announcements=[one.announcement, two.announcement]))
        process.socket.close()
        event = await expect_event(agent.controller, pb.RankEvent.KIND_LOST, 0)
        assert "went away while the job started" in event.detail
        await agent.revoke(pb.REVOCATION_REASON_WORKER_LOST, ranks=[0], message="rank 0 was lost")
        answer = await in_thread(other.receive) or {}
        assert (answer["type"], answer["error"], answer["message"]) == ("refused", "JobEnded", "rank 0 was lost")


async def test_a_rank_that_waits_cannot_be_taken_by_another(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        process, one = await announced(agent)
        await begin(agent, one)
        thief = await in_thread(lambda: RawProcess(agent.options.socket))
        answer = await in_thread(lambda: thief.attach(job="job-1", rank=0)) or {}
        assert answer["error"] == "RankTaken"
        assert (await in_thread(process.receive) or {})["type"] == "attached"


async def test_a_process_that_waits_has_nothing_to_say(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        process, one = await announced(agent)
        answer = await in_thread(lambda: process.ask({"type": "close"})) or {}
        assert answer["error"] == "BadRequest"
        assert (await agent.controller.next("rank_withdrawal")).announcement == one.announcement


async def test_another_controller_is_told_who_waits(tmp_path: Path) -> None:
    another = AgentsServer()
    async with running_agent(tmp_path) as agent:
        process, one = await announced(agent)
        gone, _ = await announced(agent, 1)
        await agent.stop_controller()
        gone.socket.close()
        async with serving(another, int(agent.options.controller.rpartition(":")[2])):
            again = await another.next("rank_announcement")
            assert (again.announcement, again.key, again.rank) == (one.announcement, one.key, 0)
            assert again.wait_seconds < one.wait_seconds
            refusal = pb.RendezvousRefusal(announcement=again.announcement, error="MissingRanks", message="rank 1")
            await another.send(rendezvous_refusal=refusal)
            assert (await in_thread(process.receive) or {})["error"] == "MissingRanks"
            assert not [m for m in another.messages if m.WhichOneof("message") == "rank_announcement"]


async def test_without_a_word_from_the_controller_nobody_waits_for_ever(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        process, one = await announced(agent, timeout=0.2)
        answer = await in_thread(process.receive) or {}
        assert answer["error"] == "ControllerUnavailable"
        assert "no answer from its controller within 0.2 s" in answer["message"]
        assert (await agent.controller.next("rank_withdrawal")).announcement == one.announcement


async def test_requests_that_no_job_can_have(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        for changes in ({"job": "k" * 201}, {"rank": 2}, {"timeout": 0}):
            process = await in_thread(lambda: RawProcess(agent.options.socket))
            answer = await in_thread(partial(process.ask, json.loads(json.dumps(message(**changes))))) or {}
            assert answer["error"] == "BadRequest"
        assert not agent.controller.messages
