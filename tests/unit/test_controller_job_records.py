import re
from dataclasses import replace
from pathlib import Path

import pytest

from switchml.common.version import VERSION
from switchml.controller import version
from switchml.controller.drivers import JobTables, ParentPort, RankPort
from switchml.controller.errors import InvalidRequest, VersionMismatch
from switchml.controller.northbound.views import job_view
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word
from switchml.controller.records import (
    Job,
    JobState,
    JobSwitch,
    OnFailure,
    Rank,
    RankState,
    counters_by_name,
    parse_mac,
)
from switchml.dataplane.constants import Verdict

ROOT = Path(__file__).parents[2]


def make(state: JobState) -> Job:
    rank = Rank(0, "a", "i", "h", "/s", 3, "02:00:00:00:00:07", "leaf", address="10.0.0.9", udp_port=1234)
    return Job(5, 7, "j", 1, 256, 1.0, state=state, ranks=[rank], switches=[JobSwitch("leaf", 9, 64, 32, 7)])


ALLOWED = {
    ("PENDING", "READY"), ("PENDING", "COMPLETED"), ("PENDING", "FAILED"), ("PENDING", "STOPPED"),
    ("READY", "RUNNING"), ("READY", "COMPLETED"), ("READY", "FAILED"), ("READY", "STOPPED"),
    ("RUNNING", "COMPLETED"), ("RUNNING", "FAILED"), ("RUNNING", "STOPPED"),
}  # fmt: skip


@pytest.mark.parametrize("before", JobState)
@pytest.mark.parametrize("after", JobState)
def test_which_state_may_follow_which(before: JobState, after: JobState) -> None:
    job = make(before)
    if (before.name, after.name) in ALLOWED:
        job.enter(after)
        assert job.state is after
    else:
        with pytest.raises(AssertionError, match=f"{before.name} -> {after.name}"):
            job.enter(after)
        assert job.state is before


def test_states_are_those_of_the_interface() -> None:
    for ours, theirs in ((JobState, pb.JobState), (RankState, pb.RankState), (OnFailure, pb.OnFailure)):
        assert {one.name: int(one) for one in ours} == {
            enum_word(theirs, value): value for value in theirs.values() if value
        }


def test_tables_of_a_job() -> None:
    job = make(JobState.READY)
    tables = job.tables(job.switches[0])
    (port,) = tables.ranks
    assert (port.port, port.mac, port.address, port.udp_port) == (3, 0x020000000007, 0x0A000009, 1234)
    assert (tables.slot_value, tables.slot_mask, tables.group, tables.epoch) == (128, 0xFFC0, 7, 9)


def test_each_switch_of_a_job_has_its_ranks_and_the_switches_below() -> None:
    """Test a tree whose ranks are on a leaf and on the switch above it; on each they are numbered from 0."""
    job = make(JobState.READY)
    spine, leaf = JobSwitch("spine", 9, 64, 32, 7), replace(job.switches[0], upstream="spine")
    job.switches = [spine, leaf]
    job.ranks.append(Rank(1, "b", "i", "h", "/s", 5, "02:00:00:00:00:08", "spine", address="10.0.0.8", udp_port=5))
    job.ranks.append(Rank(2, "c", "i", "h", "/s", 6, "02:00:00:00:00:0a", "leaf", address="10.0.0.7", udp_port=6))
    assert job.children("spine") == [leaf]
    assert [job.wire_workers(rank.switch)[rank.rank] for rank in job.ranks] == [0, 0, 1]
    assert job.wire_number(leaf) == 1
    parent, child = ParentPort(9, 1, 2, number=1, named=(0, 1)), RankPort(1, 3, 4, 5, 6)
    above, below = job.tables(spine, children=[child]), job.tables(leaf, parent=parent)
    assert [(port.rank, port.port) for port in above.ranks] == [(0, 5), (1, 3)]
    assert [(port.rank, port.port) for port in below.ranks] == [(0, 3), (1, 6)]
    assert (above.parent, below.parent) == (None, parent)
    assert job.switch_names == "spine, leaf"


@pytest.mark.parametrize(("base", "slots"), [(0, 2), (512, 512), (0, 32768), (32766, 2)])
def test_the_mask_admits_exactly_the_range(base: int, slots: int) -> None:
    tables = JobTables(1, 1, base, slots, 1, ())
    admitted = {field >> 1 for field in range(65536) if field & tables.slot_mask == tables.slot_value}
    assert admitted == set(range(base, base + slots))


def test_message_says_everything() -> None:
    job = make(JobState.READY)
    job.counters, job.ranks[0].exit_code = {"results": 3}, 0
    message = job_view(job)
    assert (message.id, message.key, message.state, message.epoch) == (7, 5, pb.JOB_STATE_READY, 9)
    assert list(message.switches) == [pb.JobSwitch(switch="leaf", epoch=9, slot_base=64, slots=32, group=7)]
    assert dict(message.counters) == {"results": 3}
    assert message.ranks[0].HasField("exit_code")
    job.ranks[0].exit_code = None
    assert not job_view(job).ranks[0].HasField("exit_code")


def test_contributions_are_what_was_added() -> None:
    verdicts = dict.fromkeys(Verdict, 0) | {Verdict.AGGREGATED: 30, Verdict.COMPLETED: 10, Verdict.DUPLICATE: 2}
    assert counters_by_name(verdicts) == {
        "aggregated": 30, "completed": 10, "resent": 0, "duplicate": 2, "stale": 0, "wrong_epoch": 0, "forwarded": 0,
        "contributions": 40, "results": 10,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "1:2:3:4:5:6", "02:00:00:00:00", "02-00-00-00-00-01", "+2:00:00:00:00:00"])
def test_what_is_no_mac(text: str) -> None:
    with pytest.raises(ValueError, match="not a MAC address"):
        parse_mac(text)


def test_our_version_is_that_of_the_project() -> None:
    found = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None
    assert found[1] == VERSION


def test_another_patch_is_the_same_release_and_another_minor_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "VERSION", "1.2.3")
    for same in ("1.2.3", "1.2.9", "1.2.0rc1", "1.2.0.dev5+g123"):
        version.require_same_release("it", same)
    for other in ("1.3.3", "2.2.3", "0.2.3"):
        with pytest.raises(VersionMismatch, match=rf"it is version {other} and this controller 1\.2\.3"):
            version.require_same_release("it", other)
    with pytest.raises(InvalidRequest, match="'new' as its version"):
        version.require_same_release("it", "new")
