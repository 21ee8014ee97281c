"""A job's profile as a trace: that it is what Chrome's trace-event format asks for, and what it says."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from switchml.common.errors import DrawingError
from switchml.controller.client import ControllerClient
from switchml.controller.errors import JobEnded
from switchml.controller.proto import switchml_pb2 as pb
from switchml.ops import profiles
from switchml.ops.profile_trace import trace, write_trace
from switchml.ops.profiles import JobTimes, profile_job

T0 = 1_700_000_000_000_000_000
US = 1000


def call(submitted: int, begun: int, answered: int, ended: int, **fields: Any) -> pb.CallProfile:
    """Return a call; times are in microseconds."""
    times = {"submitted_ns": submitted, "begun_ns": begun, "answered_ns": answered, "ended_ns": ended}
    default = {"operation": "all_reduce", "dtype": "float32", "bytes": 4_000_000, "wait_ns": (ended - begun) * US}
    return pb.CallProfile(**{**default, **fields}, **{name: T0 + time * US for name, time in times.items()})  # type: ignore[arg-type]


def rank(number: int, *calls: pb.CallProfile, agent: str = "a1", clock: int = 0, **fields: Any) -> pb.RankProfile:
    """Return a rank whose host's clock is `clock` microseconds ahead."""
    for each in calls:
        for name in ("submitted_ns", "begun_ns", "answered_ns", "ended_ns"):
            setattr(each, name, getattr(each, name) + clock * US)
    return pb.RankProfile(rank=number, agent=agent, calls=len(calls), latest=calls, **fields)


def times_of(*ranks: pb.RankProfile) -> JobTimes:
    return recorded([pb.JobProfile(job=3, name="j", epoch=1, ranks=ranks)], seconds=None)


class Clock:
    """The time of a machine on which everything but `sleep` takes none."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def recorded(answers: list[pb.JobProfile | JobEnded], seconds: float | None) -> JobTimes:
    """Return the profile that is made from one answer of the controller after the other, the last of them again."""

    def answer(*_: object) -> pb.JobProfile:
        given = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(given, JobEnded):
            raise given
        return given

    with patch.object(profiles, "time", Clock()):
        return profile_job(cast(ControllerClient, SimpleNamespace(profile_job=answer)), 3, seconds, None)


def checked(made: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events, which must be what the format asks for, after a passage through JSON."""
    made = json.loads(json.dumps(made, allow_nan=False))
    assert made["displayTimeUnit"] == "ms"
    events: list[dict[str, Any]] = made["traceEvents"]
    for event in events:
        assert event["ph"] in ("M", "X", "C")
        assert isinstance(event["pid"], int)
        assert event["pid"] > 0
        assert event["name"]
        if event["ph"] != "M":
            assert event["ts"] >= 0
    slices = [event for event in events if event["ph"] == "X"]
    numbers = {(event["pid"], event["tid"]) for event in slices}
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert numbers == named
    assert len({thread for _, thread in numbers}) == len(numbers)
    for number in numbers:
        # The slices of a thread are one after the other, or one within the other.
        open_until: list[float] = []
        on_it = [event for event in slices if (event["pid"], event["tid"]) == number]
        for event in sorted(on_it, key=lambda each: (each["ts"], -each["dur"])):
            assert event["dur"] >= 0
            end = event["ts"] + event["dur"]
            while open_until and open_until[-1] <= event["ts"] + 5e-4:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 5e-4
            open_until.append(end)
    return events


def slices(made: dict[str, Any], number: int) -> list[tuple[str, Any, Any]]:
    """Return name, begin and duration of a rank's slices."""
    return [
        (event["name"], pytest.approx(event["ts"], abs=1), pytest.approx(event["dur"], abs=1))
        for event in checked(made)
        if event["ph"] == "X" and event["pid"] == number + 1
    ]


def test_a_call_has_its_phases_below_it_and_names_the_rank_that_came_last() -> None:
    made = trace(times_of(rank(0, call(0, 10, 900, 1000)), rank(1, call(600, 605, 900, 1000))))
    assert slices(made, 0) == [
        ("all_reduce 4 MB", 0, 1000), ("queued", 0, 10), ("waits for rank 1", 10, 590), ("exchange", 600, 300),
        ("finish", 900, 100),
    ]  # fmt: skip
    assert slices(made, 1) == [
        ("all_reduce 4 MB", 600, 400), ("queued", 600, 5), ("exchange", 605, 295), ("finish", 900, 100),
    ]  # fmt: skip
    events = checked(made)
    (arguments, _) = (event["args"] for event in events if event["name"] == "all_reduce 4 MB")
    assert (arguments["bytes"], arguments["dtype"], arguments["sequence"]) == (4_000_000, "float32", 0)
    assert arguments["waits for rank 1 (us)"] == pytest.approx(590, abs=1)
    assert arguments["thread: wait (us)"] == pytest.approx(990, abs=1)
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["rank 0 on a1", "rank 1 on a1"]
    assert made["baseTimeNanoseconds"] == pytest.approx(T0, abs=1000)


def test_calls_at_the_same_time_have_tracks_of_their_own() -> None:
    overlapping = [call(number, 50 + number, 200 + number, 201 + number, sequence=number) for number in range(40)]
    events = checked(trace(times_of(rank(0, *overlapping, call(300, 301, 302, 303, sequence=40)))))
    assert len([event for event in events if event["name"] == "thread_name"]) == 40


def test_a_barrier_has_no_size() -> None:
    barrier = call(0, 10, 900, 1000, operation="barrier", dtype="", bytes=0)
    made = trace(times_of(rank(0, barrier)))
    assert slices(made, 0)[0][0] == "barrier"
    (arguments,) = (event["args"] for event in checked(made) if event["name"] == "barrier")
    assert "dtype" not in arguments


def test_clocks_that_differ_by_a_day_are_aligned() -> None:
    day = 86_400_000_000
    numbers = range(5)
    here = [call(1000 * i, 1000 * i + 10, 1000 * i + 500, 1000 * i + 510, sequence=i) for i in numbers]
    there = [call(1000 * i + 300, 1000 * i + 310, 1000 * i + 500, 1000 * i + 510, sequence=i) for i in numbers]
    made = trace(times_of(rank(0, *here), rank(1, *there, agent="a2", clock=day)))
    assert slices(made, 1)[0] == ("all_reduce 4 MB", 300, 210)
    shifts = made["otherData"]["microseconds added to the times of an agent"]
    assert shifts == {"a1": 0, "a2": pytest.approx(-day, abs=1)}
    assert ("waits for rank 1", 10, 290) in slices(made, 0)


def test_an_agent_whose_calls_no_other_rank_has_made_is_not_shifted() -> None:
    made = trace(times_of(rank(0, call(0, 1, 2, 3, sequence=0)), rank(1, call(5, 6, 7, 8, sequence=1), agent="a2")))
    assert set(made["otherData"]["microseconds added to the times of an agent"].values()) == {0}


def reading(ended: int, kept: int = 63, sent_again: int = 0) -> pb.JobProfile:
    """Return an answer when `ended` calls have ended, of which the rank's memory has the latest."""
    calls = [
        call(100 * i, 100 * i + 1, 100 * i + 50, 100 * i + 60, sequence=i) for i in range(max(0, ended - kept), ended)
    ]
    counters = pb.RankCounters(retransmissions=sent_again, fast_retransmissions=sent_again)
    only = rank(0, *calls, counters=counters, taken_at_ns=T0 + 100 * ended * US)
    only.calls = ended
    return pb.JobProfile(job=3, name="j", epoch=1, ranks=[only])


def test_a_recording_has_each_call_once_and_the_retransmissions_of_each_reading() -> None:
    times = recorded([reading(10, 0), reading(60), reading(90, sent_again=4), reading(90, sent_again=4)], 0.25)
    assert [each.sequence for each in times.ranks[0].latest] == list(range(10, 90))
    made = trace(times)
    packets = [event["args"]["packets"] for event in checked(made) if event["ph"] == "C"]
    assert packets[:3] == [0, 8, 0]
    assert made["otherData"]["calls not in this trace"] == {}


def test_a_recording_says_how_many_calls_were_overwritten_before_they_were_read() -> None:
    made = trace(recorded([reading(0), reading(60), reading(200)], 0.15))
    assert made["otherData"]["calls not in this trace"] == {"rank 0": 200 - 60 - 63}
    assert not [event for event in checked(made) if event["ph"] == "C"]


def test_a_recording_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "RECORDED_CALLS", 70)
    times = recorded([reading(0), reading(60), reading(120)], 0.15)
    assert [each.sequence for each in times.ranks[0].latest] == list(range(50, 120))


def test_a_job_that_ends_meanwhile_is_recorded_up_to_then() -> None:
    ended = JobEnded("job j is COMPLETED")
    times = recorded([reading(0), reading(20), ended], 3600)
    assert len(times.ranks[0].latest) == 20
    with pytest.raises(JobEnded):
        recorded([reading(0), ended], 3600)


def test_numbers_that_a_process_makes_up_are_written() -> None:
    most = 2**63 - 1
    strange = pb.CallProfile(sequence=2**64 - 1, operation="unknown", bytes=2**64 - 1, wait_ns=2**64 - 1)
    strange.submitted_ns, strange.begun_ns, strange.answered_ns, strange.ended_ns = -most, -most, most, most
    events = checked(trace(times_of(rank(0, strange), rank(1, call(0, 1, 2, 3)))))
    assert "unknown 1.84e+10 GB" in {event["name"] for event in events}


def test_nothing_to_write_and_nowhere(tmp_path: Path) -> None:
    with pytest.raises(DrawingError, match="nothing to draw"):
        write_trace(times_of(rank(0)), tmp_path / "t.json")
    assert not list(tmp_path.iterdir())
    with pytest.raises(DrawingError, match="cannot be written"):
        write_trace(times_of(rank(0, call(0, 1, 2, 3))), tmp_path / "missing" / "t.json")


def test_sizes_are_short() -> None:
    sizes = {1: "1 B", 999: "999 B", 4000: "4 kB", 1_234_567: "1.23 MB", 26_214_400: "26.2 MB", 5_000_000_000: "5 GB"}
    calls = [call(10 * i, 10 * i + 1, 10 * i + 2, 10 * i + 3, sequence=i, bytes=size) for i, size in enumerate(sizes)]
    names = [event["name"] for event in trace(times_of(rank(0, *calls)))["traceEvents"] if "args" in event]
    assert [name for name in names if name.startswith("all_reduce")] == [
        f"all_reduce {text}" for text in sizes.values()
    ]
