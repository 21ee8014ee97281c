"""The controller's event log."""

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from switchml.controller.errors import InvalidRequest, StoreError
from switchml.controller.records import Job, JobSwitch
from switchml.controller.store.database import Store
from switchml.controller.store.events import EVENTS_KEPT, Event, EventKind, EventLog, Selection, requested_by


def job(name: str, job_id: int) -> Job:
    return Job(job_id + 100, job_id, name, 2, 64, 1.0, switches=[JobSwitch("s1", 7, 0, 8, job_id)])


def test_events_outlive_the_controller(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    with requested_by("me"):
        store.events.record(EventKind.JOB_STARTED, "2 ranks", job=job("a", 1))
    store.events.record(EventKind.RANK_LOST, "gone", job=job("a", 1), rank=0, agent="a1")
    before = store.events.latest()
    store.close()
    store = Store(tmp_path / "store.sqlite")
    assert store.events.latest() == before
    assert store.events.record(EventKind.CONTROLLER_STARTED).number == before[-1].number + 1
    assert [(event.kind, event.level, event.job_name, event.rank, event.switch, event.actor) for event in before] == [
        ("job-started", "info", "a", None, "s1", "me"),
        ("rank-lost", "error", "a", 0, "s1", ""),
    ]
    store.close()


def test_the_log_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = Store(path)
    for _ in range(3):
        for _ in range(EVENTS_KEPT // 2):
            store.events.record(EventKind.AGENT_LOST, agent="a1")
        store.events.flush()
    assert len(store.events.latest()) == EVENTS_KEPT
    store.close()
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*), max(number) FROM events").fetchone() == (
            EVENTS_KEPT,
            3 * (EVENTS_KEPT // 2),
        )


def test_a_flood_of_one_kind_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = Store(path)
    drained = store.events.record(EventKind.SWITCH_DRAINED, switch="s1")
    for number in range(EVENTS_KEPT + 500):
        store.events.record(EventKind.JOB_REFUSED, f"start {number}")
        if number % 7000 == 0:
            store.events.flush()
    for _ in range(300):  # even if all later requests are refused as well
        store.events.record(EventKind.ACCESS_REFUSED)
    kept = store.events.latest()
    assert kept[0] == drained
    assert len(kept) == EVENTS_KEPT
    assert [event.number for event in kept] == sorted(event.number for event in kept)
    store.close()
    store = Store(path)
    assert store.events.latest() == kept
    store.close()


def test_a_log_of_another_release_is_cut() -> None:
    events = [Event(number, 1.0, "job-refused", "warning") for number in range(2, EVENTS_KEPT + 12)]
    drained = Event(1, 1.0, "switch-drained", "warning")
    forgotten: list[int] = []
    log = EventLog([drained, *events], lambda _, gone: forgotten.extend(gone))
    assert log.latest()[:2] == [drained, events[11]]
    log.record(EventKind.JOB_READY)
    log.flush()
    assert forgotten == list(range(2, 14))


def test_a_store_that_cannot_be_written_stops_nobody() -> None:
    written: list[Event] = []
    full = True

    def write(events: Sequence[Event], _forgotten: Sequence[int]) -> None:
        if full:
            raise StoreError("disk full")
        written.extend(events)

    log = EventLog((), write)
    log.record(EventKind.JOB_STARTED)
    log.flush()
    log.record(EventKind.JOB_READY)
    full = False
    log.flush()
    assert [event.kind for event in written] == ["job-started", "job-ready"]


def test_text_from_outside_is_one_bounded_line() -> None:
    log = EventLog((), lambda *_: None)
    with requested_by("\0evil\r"):
        event = log.record(EventKind.AGENT_REFUSED, "a\nb\x1b[31m" + 1000 * "x")
    assert event.detail.startswith(r"a\nb\x1b[31mx")
    assert len(event.detail) == 500
    assert event.actor == r"\x00evil\r"


def test_who_asked_is_taken_from_the_request() -> None:
    log = EventLog((), lambda *_: None)
    with requested_by("alice"):
        assert log.record(EventKind.JOB_STOPPED).actor == "alice"
    assert log.record(EventKind.JOB_STOPPED).actor == ""


def test_what_is_asked_for() -> None:
    log = EventLog((), lambda *_: None)
    for number in range(10):
        log.record(EventKind.JOB_READY, job=job("even" if number % 2 == 0 else "odd", number))

    def numbers(events: Sequence[Event]) -> list[int]:
        return [event.number for event in events]

    assert numbers(log.latest("even")) == [1, 3, 5, 7, 9]
    assert numbers(log.latest("even", 2)) == [7, 9]
    assert numbers(log.latest(3)) == [4]
    assert numbers(log.latest(after=8)) == [9, 10]


def test_events_are_selected_by_time_kind_level_and_switch() -> None:
    now = 0.0
    log = EventLog((), lambda *_: None, lambda: now)
    for moment, kind, switch in (
        (10, EventKind.SWITCH_LOST, "s1"),
        (20, EventKind.AGENT_LOST, ""),
        (30, EventKind.JOB_READY, "s1 and s10"),
        (40, EventKind.JOB_FAILED, "s10"),
    ):
        now = moment
        log.record(kind, switch=switch)

    def times(**asked: Any) -> list[float]:
        return [event.time for event in log.latest(selection=Selection(**asked))]

    assert times() == [10, 20, 30, 40]
    assert times(since=20) == [20, 30, 40]
    assert times(kinds=frozenset({"job-ready", "job-failed"})) == [30, 40]
    assert times(level="warning") == [10, 20, 40]
    assert times(switch="s1") == [10, 30]
    assert times(switch="s10", level="error", since=40) == [40]
    assert [event.time for event in log.latest(most=1, selection=Selection(level="warning"))] == [40]
    for wrong, words in (
        ({"kinds": frozenset({"job-lost"})}, "the kinds are access-refused,"),
        ({"level": "bad"}, "info, "),
    ):
        with pytest.raises(InvalidRequest, match=words):
            Selection(**wrong)


def test_recent_events_of_one_kind() -> None:
    now = 0.0
    log = EventLog((), lambda *_: None, lambda: now)
    for now in range(10):
        log.record(EventKind.JOB_FAILED if now % 2 else EventKind.JOB_READY)
    assert [event.time for event in log.recent(EventKind.JOB_FAILED, 4, 10)] == [9, 7, 5]
    assert [event.time for event in log.recent(EventKind.JOB_FAILED, 100, 2)] == [9, 7]


async def test_a_follower_gets_each_new_event_once() -> None:
    log = EventLog((), lambda *_: None)
    log.record(EventKind.JOB_STARTED)
    seen: list[int] = []

    async def follow() -> None:
        async for event in log.read(follow=True):
            seen.append(event.number)
            if len(seen) == 5:
                return

    following = asyncio.create_task(follow())
    for _ in range(4):
        await asyncio.sleep(0)
        log.record(EventKind.JOB_READY)
    await asyncio.wait_for(following, 30)
    assert seen == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", EventKind)
def test_words_are_unique_and_plain(kind: EventKind) -> None:
    assert kind.word == kind.name.lower().replace("_", "-")
