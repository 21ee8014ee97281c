"""A job whose switch the controller cannot reach sends nothing to that switch's address, and continues when it can."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import switchml
from switchml.controller.proto import switchml_pb2 as pb
from switchml.dataplane.constants import Verdict
from tests.loopback.agent_harness import RunningAgent, expect_event, in_thread, running_agent


async def ranks(agent: RunningAgent, job: int) -> list[switchml.Communicator]:
    await agent.start_job(job)
    found = [await agent.connect(rank, job) for rank in (0, 1)]
    for rank in (0, 1):
        await expect_event(agent.controller, pb.RankEvent.KIND_ATTACHED, rank)
    return found


def submit(comms: list[switchml.Communicator]) -> list[tuple[np.ndarray, switchml.Work]]:
    arrays = [np.full(100_000, comm.rank + 1, np.int32) for comm in comms]
    return [(array, comm.all_reduce(array, async_op=True)) for comm, array in zip(comms, arrays, strict=True)]


async def complete(calls: list[tuple[np.ndarray, switchml.Work]]) -> None:
    for array, work in calls:
        await in_thread(work.wait)
        assert (array == 3).all()


def packets_of(agent: RunningAgent, job: int) -> int:
    """Return the packets of a job that the switch has received."""
    return sum(agent.switch.read_job_counter(job << 4 | verdict)[0] for verdict in Verdict)


async def pause(agent: RunningAgent, job: int, epoch: int, paused: bool) -> None:
    """Pause a job; return when the agent has done so, because it acts on messages in order."""
    await agent.controller.send(pause=pb.Pause(job=job, epoch=epoch, paused=paused))
    await agent.controller.send(profile_order=pb.ProfileOrder(job=job, epoch=epoch, number=1))
    await agent.controller.next("rank_profiles")


@pytest.mark.parametrize("threads", [1, 2])
async def test_a_paused_job_sends_nothing_until_it_may_continue(tmp_path: Path, threads: int) -> None:
    async with running_agent(tmp_path, threads=threads) as agent:
        paused, other = await ranks(agent, 1), await ranks(agent, 2)
        await complete(submit(paused))
        await pause(agent, 1, 1, True)
        before = packets_of(agent, 1)
        calls = submit(paused)
        await complete(submit(other))  # the same threads of the agent serve it
        await complete(submit(other))
        assert packets_of(agent, 1) == before
        await pause(agent, 1, 1, False)
        await complete(calls)
        assert packets_of(agent, 1) > before


async def test_only_the_epoch_that_is_named_is_paused(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        comms = await ranks(agent, 1)
        await pause(agent, 1, 2, True)
        await pause(agent, 7, 1, True)
        await complete(submit(comms))


async def test_a_paused_job_can_end(tmp_path: Path) -> None:
    async with running_agent(tmp_path) as agent:
        comms = await ranks(agent, 1)
        await pause(agent, 1, 1, True)
        calls = submit(comms)
        await agent.revoke(pb.REVOCATION_REASON_SWITCH_LOST)
        for _, work in calls:
            with pytest.raises(switchml.SwitchLost):
                await in_thread(work.wait)
