"""The rates that `top` computes from two samples of a fabric."""

from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

import pytest

from switchml.controller.client import ControllerClient
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.retry import Retry
from switchml.ops.top import Snapshot, watch


def job(*positions: int, sent: int = 0, again: int = 0, key: int = 1) -> pb.Job:
    counters = pb.RankCounters(sent=sent, retransmissions=again, fast_retransmissions=0)
    ranks = [pb.Rank(rank=r, agent="a1", position=p, counters=counters) for r, p in enumerate(positions)]
    return pb.Job(
        key=key, id=key, name="j", workers=len(ranks), values_per_packet=256, state=pb.JOB_STATE_RUNNING, ranks=ranks
    )


def agent(heartbeat: float, live: bool = True) -> pb.Agent:
    return pb.Agent(name="a1", registration=pb.Register(name="a1"), live=live, last_heartbeat=heartbeat)


def look(jobs: list[list[pb.Job]], agents: list[list[pb.Agent]]) -> list[Snapshot]:
    jobs_now, agents_now = iter(jobs), iter(agents)
    client: Any = SimpleNamespace(
        list_jobs=lambda: next(jobs_now),
        list_agents=lambda: next(agents_now),
        list_switches=lambda: [pb.Switch(name="s1", connected=True, slots=8, slots_free=4)],
        retry=Retry,
    )
    return list(islice(watch(cast(ControllerClient, client), 0.001), len(jobs) - 1))


def test_rates_are_between_heartbeats() -> None:
    (seen,) = look([[job(100, 90, sent=200)], [job(400, 190, sent=600, again=40)]], [[agent(10.0)], [agent(12.0)]])
    (found,) = seen.jobs
    assert [rank.chunks_per_second for rank in found.ranks] == [150, 50]
    assert found.bytes_per_second == 50 * 1024
    assert [rank.per_second["sent"] for rank in found.ranks] == [200, 200]
    assert found.retransmitted_share == pytest.approx(0.1)
    assert found.straggler == 1
    assert [rank.behind for rank in found.ranks] == [0, 210]
    assert (seen.agents_live, seen.agents_gone) == (1, ())
    assert seen.as_dict()["switches"][0]["slots_free"] == 4


def test_no_heartbeat_no_rate() -> None:
    first, second = look([[job(5)], [job(5)], [job(1)]], [[agent(10.0)], [agent(10.0)], [agent(9.0, live=False)]])
    assert first.jobs[0].bytes_per_second == second.jobs[0].bytes_per_second == 0
    assert first.jobs[0].straggler is None
    assert second.agents_gone == ("a1",)


def test_rates_stay_until_the_next_heartbeat() -> None:
    jobs = [[job(100)], [job(300)], [job(300)], [job(300)], [job(900)]]
    beats = [[agent(10.0)], [agent(11.0)], [agent(11.0)], [agent(11.0, live=False)], [agent(12.0)]]
    assert [seen.jobs[0].ranks[0].chunks_per_second for seen in look(jobs, beats)] == [200, 200, 0, 600]


def test_a_job_that_is_new() -> None:
    (seen,) = look([[], [job(500, sent=9)]], [[agent(1.0)], [agent(2.0)]])
    assert seen.jobs[0].bytes_per_second == 0
