"""The rates that the live page shows of a job after its end."""

from types import SimpleNamespace
from typing import Any

from switchml.controller.proto import switchml_pb2 as pb
from switchml.ops.live_page.reading import PageReader


def job(position: int, state: pb.JobState, ended: float = 0.0) -> pb.Job:
    ranks = [pb.Rank(agent="a1", position=position, counters=pb.RankCounters(sent=position))]
    return pb.Job(key=1, id=1, name="j", workers=1, values_per_packet=256, state=state, ended=ended, ranks=ranks)


def fabric(jobs: list[pb.Job], heartbeat: float, ended: pb.Job | None = None) -> Any:
    return SimpleNamespace(
        list_agents=lambda: [pb.Agent(name="a1", live=True, last_heartbeat=heartbeat)],
        list_jobs=lambda: jobs,
        list_switches=list,
        get_job=lambda _: ended,
        read_events=lambda **_: iter([]),
    )


def test_a_job_that_ends_between_two_heartbeats_keeps_no_rates() -> None:
    client = fabric([job(1000, pb.JOB_STATE_RUNNING)], heartbeat=10.0)
    reader = PageReader(client)
    reader.read()
    vars(client).update(vars(fabric([job(2000, pb.JOB_STATE_RUNNING)], heartbeat=11.0)))
    assert reader.read()["jobs"][0]["rate"] == 1000 * 1024
    vars(client).update(vars(fabric([], heartbeat=11.0, ended=job(2500, pb.JOB_STATE_COMPLETED, ended=11.5))))
    for _ in range(2):
        (shown,) = reader.read()["jobs"]
        assert (shown["state"], shown["rate"]) == ("COMPLETED", 0)
        assert shown["ranks"][0][5:7] == (0, 0)
