"""The conditions under which a switch counts as lost, with a clock that the test sets."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from switchml.controller.jobs.lost_switches import ANSWER_SECONDS, LostSwitches, all_wait
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import Job, JobState, JobSwitch, Rank, RankState
from switchml.dataplane.targets import BMV2, SOFT


def job_of(*ranks: tuple[int, int], state: JobState = JobState.RUNNING) -> Job:
    """Return a job whose ranks have sent and received the given numbers of contributions and results."""
    job = Job(
        key=1, id=1, name="job", workers=len(ranks), values_per_packet=64, created=0.0, state=state,
        switches=[JobSwitch("s1", epoch=1, slot_base=0, slots=64, group=1)],
    )  # fmt: skip
    for number, (position, received) in enumerate(ranks):
        rank = Rank(number, "a", "i", "h", "/s", 1, "00:00:00:00:00:00", "s1", position=position)
        rank.state = RankState.ATTACHED
        rank.counters = pb.RankCounters(received=received)
        job.ranks.append(rank)
    return job


class Watched:
    """A job and the watch over its switch, which replaces the controller's records."""

    def __init__(self, job: Job) -> None:
        self.now = 100.0
        self.connected = False
        self.ended: list[tuple[int, str]] = []
        self.pauses: list[tuple[list[str], pb.Pause]] = []
        self.switch: Any = SimpleNamespace(
            name="s1",
            driver=SimpleNamespace(connected=False, ended=False, failure="closed"),
            config=SimpleNamespace(control="h:9559", target=SOFT),
        )
        self.live: Any = SimpleNamespace(job=job, switches=[self.switch], leaves_epoch=False)
        self.watch = LostSwitches(self, self, self, lambda: self.now)  # type: ignore[arg-type]

    def live_jobs(self) -> list[Any]:
        return [] if self.ended else [self.live]

    def tell(self, agents: Iterable[str], message: pb.ControllerMessage) -> None:
        self.pauses.append((list(agents), message.pause))

    def connect(self, connected: bool, failure: str = "") -> None:
        self.switch.driver.connected, self.switch.driver.failure = connected, failure
        self.watch.connection_changed(self.switch)

    def end(self, _live: Any, _state: JobState, why: str, reason: int) -> None:
        self.ended.append((reason, why))

    def pass_time(self, seconds: float, step: float = 0.25) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += step
            self.watch.check()


def test_a_switch_that_is_gone_fails_the_job_that_waits_for_it() -> None:
    watched = Watched(job_of((10, 9), (12, 9)))
    watched.pass_time(ANSWER_SECONDS)
    assert not watched.ended
    watched.pass_time(0.5)
    ((reason, why),) = watched.ended
    assert reason == pb.REVOCATION_REASON_SWITCH_LOST
    assert "switch s1 is gone" in why


def test_a_switch_whose_process_has_ended_fails_the_job_at_once() -> None:
    watched = Watched(job_of((9, 9), (9, 9)))  # no rank waits
    watched.live.switches[0].driver.ended = True
    watched.live.leaves_epoch = True  # a change of epoch cannot succeed either
    watched.pass_time(0.25)
    ((reason, why),) = watched.ended
    assert reason == pb.REVOCATION_REASON_SWITCH_LOST
    assert "switch s1 is gone: its process has ended" in why
    assert "h:9559" in why


def test_a_switch_that_ended_before_its_job_ran_has_lost_no_sums() -> None:
    watched = Watched(job_of((0, 0), (0, 0), state=JobState.READY))
    watched.live.switches[0].driver.ended = True
    watched.pass_time(10 * ANSWER_SECONDS)
    assert not watched.ended


def test_a_switch_that_the_controller_reaches_is_waited_for() -> None:
    watched = Watched(job_of((10, 9), (12, 9)))
    watched.live.switches[0].driver.connected = True
    watched.pass_time(10 * ANSWER_SECONDS)
    assert not watched.ended


def test_a_soft_switchs_jobs_are_paused_while_it_cannot_be_reached() -> None:
    watched = Watched(job_of((9, 9), (12, 9)))
    watched.connect(False, "the connection was closed")
    watched.connect(True)
    assert watched.pauses == [
        (["a"], pb.Pause(job=1, epoch=1, paused=True)),
        (["a"], pb.Pause(job=1, epoch=1, paused=False)),
    ]
    watched.pass_time(10 * ANSWER_SECONDS)
    assert not watched.ended


def test_a_paused_job_ends_although_no_result_is_due() -> None:
    watched = Watched(job_of((9, 9), (12, 9)))
    watched.connect(False, "the connection was closed")
    watched.pass_time(ANSWER_SECONDS)
    assert not watched.ended
    watched.pass_time(0.5)
    assert watched.ended[0][0] == pb.REVOCATION_REASON_SWITCH_LOST


def test_hardware_and_a_switch_that_is_prepared_again_pause_nothing() -> None:
    watched = Watched(job_of((9, 9), (12, 9)))
    watched.connect(False)  # without a failure: it is being prepared
    watched.switch.config.target = BMV2
    watched.connect(False, "the connection was closed")
    assert not watched.pauses
    watched.pass_time(10 * ANSWER_SECONDS)
    assert not watched.ended


def test_a_straggler_is_waited_for() -> None:
    watched = Watched(job_of((9, 9), (12, 9)))
    watched.pass_time(10 * ANSWER_SECONDS)
    assert not watched.ended


def test_results_show_that_it_lives_whatever_the_control_connection_says() -> None:
    watched = Watched(job_of((10, 9), (12, 9)))
    for _ in range(10):
        watched.pass_time(ANSWER_SECONDS - 0.5)
        for rank in watched.live.job.ranks:
            rank.position += 1
            rank.counters.received += 1
    assert not watched.ended


def test_it_is_waited_for_while_the_job_changes_its_epoch() -> None:
    watched = Watched(job_of((10, 9), (12, 9)))
    watched.live.leaves_epoch = True
    watched.pass_time(10 * ANSWER_SECONDS)
    assert not watched.ended


def test_a_clock_that_jumps_is_no_silence() -> None:
    watched = Watched(job_of((10, 9), (12, 9)))
    for _ in range(5):
        watched.pass_time(ANSWER_SECONDS - 0.75)
        watched.now += 3600
        watched.watch.check()
    assert not watched.ended
    watched.pass_time(ANSWER_SECONDS + 0.5)
    assert watched.ended


def test_who_waits() -> None:
    assert all_wait(job_of((10, 9), (10, 9)))
    # The first rank has no result; the second one has its result, and has sent the next contribution.
    assert all_wait(job_of((10, 9), (11, 10)))
    assert not all_wait(job_of((9, 9), (9, 9)))  # no rank has a call in flight
    assert not all_wait(job_of((10, 9), (10, 9), state=JobState.READY))
    ended = job_of((9, 9), (10, 9))
    ended.ranks[0].state = RankState.CLOSED
    assert all_wait(ended)
