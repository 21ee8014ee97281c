"""The profiles that the controller makes from the agents' answers, and its event log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from switchml.common.counter_table import PATH, PROCESS
from switchml.controller import errors
from switchml.controller.client import ControllerClient
from switchml.controller.errors import InvalidRequest
from switchml.controller.northbound.profiles import ANSWER_SECONDS
from switchml.controller.proto import switchml_pb2 as pb
from tests.support.controller_harness import ScriptedAgent, configuration, running_controller, wait_until
from tests.support.soft_switch import SwitchProcess, running_switch

HISTOGRAMS = [counter for counter in (*PROCESS, *PATH) if counter.is_histogram]


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SwitchProcess]:
    with running_switch(tmp_path_factory.mktemp("switch"), "--udp-port", "1=127.0.0.1:0") as process:
        yield process


@pytest.fixture(scope="module")
def controller(switch: SwitchProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerClient]:
    with running_controller(tmp_path_factory.mktemp("controller"), configuration(switch)) as (_, client):
        yield client


@pytest.fixture
def client(controller: ControllerClient) -> Iterator[ControllerClient]:
    yield controller
    for job in controller.list_jobs():
        controller.stop_job(job.id)
    wait_until(lambda: not any(agent.live for agent in controller.list_agents()), "the agents are gone")


def reply(agent: ScriptedAgent, answer: Any) -> None:
    """Answer the first order from another thread with `answer(order)`."""

    def run() -> None:
        order = agent.wait_for("profile_order")
        agent.send(pb.AgentMessage(rank_profiles=answer(order)))

    threading.Thread(target=run, daemon=True).start()


def test_ranks_whose_agent_does_not_answer_are_named(client: ControllerClient) -> None:
    with ScriptedAgent(client.address) as one, ScriptedAgent(client.address, "a2"):
        job = client.start_job(pb.StartJobRequest(workers=4, name="p"))
        mine = [rank.rank for rank in job.ranks if rank.agent == "a1"]
        other = [rank.rank for rank in job.ranks if rank.agent == "a2"]
        assert mine
        assert other

        def answer(order: pb.ProfileOrder) -> pb.RankProfiles:
            assert (order.job, order.epoch, order.calls) == (job.id, job.epoch, 63)
            ranks = [pb.RankProfile(rank=rank, calls=10 + rank, agent="somebody") for rank in mine]
            ranks[0].latest.extend(pb.CallProfile(sequence=n) for n in range(63))
            for counter in HISTOGRAMS:
                getattr(ranks[0], counter.name).extend(range(64))
            foreign = [pb.RankProfile(rank=rank) for rank in (*other, 99)]
            return pb.RankProfiles(number=order.number, ranks=ranks + foreign)

        reply(one, answer)
        began = time.monotonic()
        found = client.profile_job("p", calls=1000)
        assert time.monotonic() - began > ANSWER_SECONDS - 0.1
        assert (found.job, found.name, found.epoch) == (job.id, "p", job.epoch)
        assert [(rank.rank, rank.agent, rank.calls) for rank in found.ranks] == [(r, "a1", 10 + r) for r in mine]
        assert len(found.ranks[0].latest) == 63
        assert all(len(getattr(found.ranks[0], counter.name)) == 64 for counter in HISTOGRAMS)
        (missing,) = found.missing
        assert (missing.agent, list(missing.ranks)) == ("a2", other)
        assert f"no answer within {ANSWER_SECONDS:g} s" in missing.reason


def test_answers_that_nobody_waits_for_are_ignored(client: ControllerClient) -> None:
    with ScriptedAgent(client.address) as one, ScriptedAgent(client.address, "a2") as two:
        job = client.start_job(pb.StartJobRequest(workers=2, name="p"))
        ranks = {rank.agent: rank.rank for rank in job.ranks}
        one.send(pb.AgentMessage(rank_profiles=pb.RankProfiles(number=1, ranks=[pb.RankProfile(rank=ranks["a1"])])))

        def foreign(order: pb.ProfileOrder) -> pb.RankProfiles:
            # It first answers in the name of the other agent, then twice for itself.
            for number in range(order.number - 2, order.number + 3):
                if number != order.number and number >= 0:
                    wrong = pb.RankProfile(rank=ranks["a1"], calls=666)
                    two.send(pb.AgentMessage(rank_profiles=pb.RankProfiles(number=number, ranks=[wrong])))
            return pb.RankProfiles(number=order.number, ranks=[pb.RankProfile(rank=ranks["a2"], calls=2)])

        def own(order: pb.ProfileOrder) -> pb.RankProfiles:
            time.sleep(0.3)  # usually after the other's messages
            return pb.RankProfiles(number=order.number, ranks=[pb.RankProfile(rank=ranks["a1"], calls=1)])

        reply(two, foreign)
        reply(one, own)
        found = client.profile_job(job.id)
        assert {rank.agent: rank.calls for rank in found.ranks} == {"a1": 1, "a2": 2}
        assert not found.missing


def test_an_agent_that_is_lost_meanwhile_is_not_waited_for(
    client: ControllerClient, limit: Callable[[float], float]
) -> None:
    with ScriptedAgent(client.address) as agent:
        client.start_job(pb.StartJobRequest(workers=2, name="p"))

        def leave() -> None:
            agent.wait_for("profile_order")
            agent.disconnect()

        threading.Thread(target=leave, daemon=True).start()
        began = time.monotonic()
        found = client.profile_job("p")
        assert time.monotonic() - began < limit(2)
        assert [missing.reason for missing in found.missing] == ["it was lost"]
        assert list(found.missing[0].ranks) == [0, 1]


def test_a_job_that_has_ended_has_no_profile(client: ControllerClient) -> None:
    with ScriptedAgent(client.address):
        client.start_job(pb.StartJobRequest(workers=1, name="p"))
        client.stop_job("p")
        with pytest.raises(errors.JobEnded, match="STOPPED"):
            client.profile_job("p")
        with pytest.raises(errors.JobNotFound):
            client.profile_job("q")


# ---- the event log --------------------------------------------------------------------------------------------------


def test_what_happens_is_in_the_event_log(tmp_path: Path) -> None:
    with (
        running_switch(tmp_path, "--udp-port", "1=127.0.0.1:0") as switch,
        running_controller(tmp_path, configuration(switch)) as (process, client),
    ):
        with ScriptedAgent(client.address) as agent:
            job = client.start_job(pb.StartJobRequest(workers=1, name="e"))
            agent.event(job, 0, pb.RankEvent.KIND_ATTACHED)
            wait_until(lambda: client.get_job("e").state == pb.JOB_STATE_RUNNING, "the rank attached")
            with pytest.raises(errors.JobExists):
                client.start_job(pb.StartJobRequest(workers=1, name="e"))
            client.report_exit("e", 0, 3)
        wait_until(lambda: not client.list_agents()[0].live, "the agent is gone")
        client.set_loss(ports=[1], ingress=0.5)
        client.stop_job("e")
        before = list(client.read_events())
        kinds = [event.kind for event in before]
        assert kinds == [
            *("controller-started", "switch-connected", "agent-connected", "job-started", "job-ready"),
            *("rank-attached", "job-running", "job-refused", "rank-exited", "job-failed", "agent-lost", "loss-set"),
        ]
        by_kind = {event.kind: event for event in before}
        assert " at ipv4:127.0.0.1:" in by_kind["job-started"].actor
        assert by_kind["job-started"].actor == by_kind["job-ready"].actor
        assert "a live job has the name 'e'" in by_kind["job-refused"].detail
        assert (by_kind["job-failed"].detail, by_kind["job-failed"].level) == ("rank 0 exited with status 3", "error")
        assert [event.kind for event in client.read_events("e", latest=2)] == ["rank-exited", "job-failed"]
        since = by_kind["rank-attached"].time
        selected = client.read_events(since=since, kinds=["job-refused", "job-failed", "job-started"], level="error")
        assert [event.kind for event in selected] == ["job-failed"]
        with pytest.raises(InvalidRequest, match="events have no kind job-lost"):
            list(client.read_events(kinds=["job-lost"]))

        follower = client.read_events(after=before[-1].number, follow=True, timeout=20)
        client.set_loss(ports=[1], ingress=0)
        assert next(follower).kind == "loss-set"
        follower.close()  # type: ignore[attr-defined]
        process.stop()
        with process.start() as again:
            after = list(again.read_events())
            assert after[: len(before)] == before
            kinds = [event.kind for event in after[len(before) :]]
            assert kinds == ["loss-set", "controller-stopped", "controller-started", "switch-connected"]
