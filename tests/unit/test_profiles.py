"""A job's profile: the figures made from the agents' answers, and how they are drawn."""

import dataclasses
import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from switchml.commands.job import JobProfile
from switchml.commands.text.printing import print_text
from switchml.common.errors import DrawingError
from switchml.common.installation import install_command
from switchml.controller.client import ControllerClient
from switchml.controller.errors import JobEnded
from switchml.controller.proto import switchml_pb2 as pb
from switchml.ops import profile_drawing
from switchml.ops.profile_findings import findings
from switchml.ops.profiles import JobTimes, profile_job

T0 = 1_700_000_000_000_000_000


def call(begin: int, quantize: int = 10, wait: int = 60, dequantize: int = 30, sequence: int = 0) -> pb.CallProfile:
    """Return a call that was submitted 20 us before it began; times are in microseconds."""
    us = 1000
    end = begin + quantize + wait + dequantize
    return pb.CallProfile(
        sequence=sequence, operation="all_reduce", bytes=4000,
        submitted_ns=T0 + (begin - 20) * us, begun_ns=T0 + begin * us,
        answered_ns=T0 + (end - dequantize) * us, ended_ns=T0 + end * us, quantize_ns=quantize * us, wait_ns=wait * us,
        dequantize_ns=dequantize * us,
    )  # fmt: skip


def answer(epoch: int = 1, **fields: Any) -> pb.JobProfile:
    rank = pb.RankProfile(rank=0, agent="a1", latest=[call(100), call(300)], **fields)
    missing = pb.MissingProfile(agent="a2", ranks=[1, 2], reason="no answer within 2 s")
    return pb.JobProfile(job=3, name="j", epoch=epoch, ranks=[rank], missing=[missing])


def profile(*answers: pb.JobProfile, seconds: float | None = None) -> JobTimes:
    given = iter(answers)
    client = SimpleNamespace(profile_job=lambda *_: next(given))
    return profile_job(cast(ControllerClient, client), 3, seconds)


def test_totals_are_seconds() -> None:
    times = profile(
        answer(calls=2, bytes=8000, call_time_ns=240_000, quantize_ns=20_000, wait_ns=120_000, dequantize_ns=60_000)
    )
    (rank,) = times.ranks
    shown = times.as_dict()["ranks"][0]
    assert (shown["calls"], shown["call_time"]) == (2, 240e-6)
    assert (shown["quantize"], shown["wait"], shown["dequantize"]) == (20e-6, 120e-6, 60e-6)
    assert rank.busy == pytest.approx(200e-6)
    assert [(missing.agent, missing.ranks) for missing in times.missing] == [("a2", (1, 2))]
    assert shown["latest"][1]["bytes"] == 4000


def test_an_interval_is_a_difference() -> None:
    first = answer(
        calls=2, quantize_ns=20_000, taken_at_ns=T0 + 250_000, counters=pb.RankCounters(sent=10, retransmissions=1)
    )
    second = answer(
        calls=5, quantize_ns=90_000, counters=pb.RankCounters(sent=30, retransmissions=1, fast_retransmissions=2)
    )
    times = profile(first, second, seconds=0.01)
    (rank,) = times.ranks
    assert times.seconds == pytest.approx(0.01, abs=0.5)
    assert (rank.counted["calls"], rank.counted["quantize_ns"]) == (3, 70_000)
    assert [rank.packets[name] for name in ("sent", "retransmissions", "fast_retransmissions")] == [20, 0, 2]
    assert [each.begun for each in rank.latest] == [pytest.approx(T0 / 1e9 + 300e-6)]  # the other call ended earlier


def test_a_rank_that_came_meanwhile_and_one_that_counts_backwards() -> None:
    times = profile(pb.JobProfile(job=3, epoch=1), answer(calls=4), seconds=0.01)
    assert times.ranks[0].counted["calls"] == 4
    times = profile(answer(calls=9), answer(calls=4), seconds=0.01)
    assert times.ranks[0].counted["calls"] == 0


def test_another_epoch_is_no_difference() -> None:
    with pytest.raises(JobEnded, match="epoch 2 while it was profiled"):
        profile(answer(), answer(epoch=2), seconds=0.01)


def test_text_timeline() -> None:
    # From 80 us to 400 us, 32 characters of 10 us.
    ((rank, signs),) = profile_drawing.rows(profile(answer()), 32)
    assert rank.rank == 0
    assert signs == "..q------ddd" + 8 * " " + "..q------ddd"


def test_no_calls_no_timeline(tmp_path: Path) -> None:
    times = profile(pb.JobProfile(job=3, name="j", ranks=[pb.RankProfile(rank=0)]))
    assert profile_drawing.window(times) is None
    assert list(profile_drawing.rows(times, 10)) == []
    with pytest.raises(DrawingError, match="nothing to draw"):
        profile_drawing.picture(times, tmp_path / "t.png")


def test_pictures(tmp_path: Path) -> None:
    times = profile(answer())
    profile_drawing.picture(times, tmp_path / "t.png")
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    profile_drawing.picture(times, tmp_path / "t.svg")
    drawn = (tmp_path / "t.svg").read_text()
    ElementTree.fromstring(drawn)
    for text in ("rank 0", "quantize", "wait", "dequantize", "queued", "time (us)"):
        assert f"<!-- {text} -->" in drawn


def two_ranks(late: int) -> pb.JobProfile:
    """Return two calls of two ranks, which rank 1 begins `late` microseconds later; both end 100 us after that."""
    calls = [
        [call(begin - 80 * early, wait=60 + 80 * early, sequence=begin) for begin in (200, 600)]
        for early in (late > 0, 0)
    ]
    ranks = [pb.RankProfile(rank=rank, latest=calls[rank], wait_ns=4_000_000) for rank in range(2)]
    return pb.JobProfile(job=3, name="j", epoch=1, ranks=ranks)


def test_findings_name_the_rank_that_the_others_wait_for() -> None:
    found = findings(profile(two_ranks(late=80)))
    assert (found.in_calls, found.most_gain) == (None, None)
    assert (found.last_rank, found.last_share) == (1, 1.0)
    # The calls of rank 0 take 200 us from their submission on, of which it waits 80; those of rank 1 take 120 us.
    assert found.waiting == pytest.approx(80 / 320, abs=1e-3)
    assert findings(profile(two_ranks(late=0))).waiting == pytest.approx(0, abs=1e-3)


def test_findings_of_an_interval() -> None:
    before = pb.JobProfile(job=3, name="j", epoch=1, ranks=[pb.RankProfile(rank=rank) for rank in range(2)])
    times = dataclasses.replace(profile(before, two_ranks(late=80), seconds=0.001), seconds=0.01)
    found = findings(times)
    assert found.in_calls == pytest.approx(0.4)  # each waited for 4 ms of 10
    assert found.most_gain == pytest.approx(1 / 0.6)
    assert findings(dataclasses.replace(times, seconds=0.001)).most_gain is None  # calls all of the time
    written = io.StringIO()
    print_text(JobProfile(times), written)
    text = written.getvalue()
    assert "A rank had a call for 40% of the time" in text
    assert "at most 1.7 times as fast" in text
    assert "Ranks waited for 25% of the time" in text
    assert "in 100% of them that was rank 1" in text


def test_findings_without_calls() -> None:
    times = profile(pb.JobProfile(job=3, name="j", ranks=[pb.RankProfile(rank=0)]))
    found = findings(times)
    assert (found.in_calls, found.waiting, found.last_rank) == (None, None, None)


def test_many_calls_at_once_share_lanes(tmp_path: Path) -> None:
    overlapping = [call(100 + number, sequence=number) for number in range(40)]
    times = profile(pb.JobProfile(job=3, name="j", ranks=[pb.RankProfile(rank=0, latest=overlapping)]))
    profile_drawing.picture(times, tmp_path / "t.svg")
    assert (tmp_path / "t.svg").stat().st_size > 0


def test_another_kind_of_file_and_no_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = profile(answer())
    with pytest.raises(DrawingError, match=r"must end in \.png or \.svg"):
        profile_drawing.picture(times, tmp_path / "t.gif")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(DrawingError, match=re.escape(install_command("bench"))):
        profile_drawing.picture(times, tmp_path / "t.png")
