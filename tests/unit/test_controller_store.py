import os
import random
import shutil
import sqlite3
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from switchml.controller.errors import StoreError
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import EpochChange, Job, JobState, JobSwitch, OnFailure, Rank, RankState
from switchml.controller.store.database import Store
from switchml.controller.store.migrations import MIGRATIONS


def job(name: str = "j", job_id: int = 1, epoch: int = 1, **values: object) -> Job:
    ranks = [Rank(r, "a1", "i1", "host", "/run/a1.sock", 1, "00:00:00:00:00:00", "s1") for r in range(2)]
    switches = [JobSwitch("s1", epoch, slot_base=0, slots=8, group=job_id)]
    fields = {"values_per_packet": 64, "created": 1.0, "ranks": ranks, "switches": switches, **values}
    return Job(0, job_id, name, 2, **fields)  # type: ignore[arg-type]


def state_at_end(store: Store, job_id: int, switch: str, epoch: int) -> tuple[JobState, str]:
    end = store.end_of_job(job_id, switch, epoch)
    assert end is not None
    return end[1:]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "store.sqlite"


def test_a_job_comes_back_as_it_was_written(path: Path) -> None:
    written = job(priority=5)
    written.ranks[1].counters = pb.RankCounters(sent=7, round_trip_seconds=0.5)
    store = Store(path)
    store.create_job(written)
    written.enter(JobState.READY)
    written.ranks[0].address, written.ranks[0].udp_port, written.ranks[0].state = "10.0.0.1", 99, RankState.ATTACHED
    store.save_state(written, JobState.PENDING, "")
    written.counters = {"contributions": 2**40}
    written.ranks[1].exit_code = 137
    store.save_progress(written)
    store.close()
    store = Store(path)
    assert store.live_jobs() == [written]
    read = store.job_of_id(1)
    assert read == written
    assert isinstance(read.state, JobState)
    assert isinstance(read.ranks[0].state, RankState)
    store.close()


def create_ended(store: Store, ending: Job) -> None:
    ending.counters = {"contributions": 1}
    store.create_job(ending)
    ending.enter(JobState.STOPPED)
    store.save_state(ending, JobState.PENDING, "")
    store.save_progress(ending)


def test_a_tenant_displaces_only_its_own_ended_jobs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchml.controller.store.limits.ENDED_JOBS_KEPT", 10)
    store = Store(path)
    for number in range(4):
        create_ended(store, job(f"north-{number}", tenant="north"))
    for number in range(30):
        create_ended(store, job(f"south-{number}", tenant="south"))
    assert [each.name for each in store.newest_jobs(100)][-5:] == ["south-23", *(f"north-{n}" for n in (3, 2, 1, 0))]
    store.close()


def test_ended_jobs_are_forgotten_and_live_ones_are_not(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchml.controller.store.limits.ENDED_JOBS_KEPT", 10)
    store = Store(path)
    lasting = job("lasting", 1)
    store.create_job(lasting)
    for number in range(2, 40):
        create_ended(store, job(f"j{number}", number, epoch=number))
    names = [f"j{number}" for number in range(39, 28, -1)]  # the limit holds whenever another job starts
    assert [each.name for each in store.newest_jobs(100)] == [*names, "lasting"]
    assert store.live_jobs() == [lasting]
    assert store.last_epoch("s1") == 39
    store.close()
    with sqlite3.connect(path) as database:
        for table in ("ranks", "transitions", "counters"):
            (jobs,) = database.execute(f"SELECT count(DISTINCT job) FROM {table}").fetchone()
            assert jobs <= 12, table


def test_each_transition_is_one_row(path: Path) -> None:
    store, it = Store(path), job()
    store.create_job(it)
    for state, reason in ((JobState.READY, ""), (JobState.RUNNING, ""), (JobState.FAILED, "rank 1 was lost")):
        before = it.state
        it.enter(state)
        it.failure, it.ended = reason, 2.0
        store.save_state(it, before, reason)
    assert [(before, after, reason) for before, after, reason, _ in store.transitions(it.key)] == [
        (None, JobState.PENDING, ""),
        (JobState.PENDING, JobState.READY, ""),
        (JobState.READY, JobState.RUNNING, ""),
        (JobState.RUNNING, JobState.FAILED, "rank 1 was lost"),
    ]
    assert store.live_jobs() == []
    store.close()


def test_epochs_are_used_up_with_the_job(path: Path) -> None:
    store = Store(path)
    assert store.last_epoch("s1") is None
    store.create_job(job(epoch=1))
    store.create_job(job(epoch=2))
    assert store.last_epoch("s1") == 2
    assert store.last_epoch("s2") is None
    store.begin_history("s1", nonce=5, last=0)
    assert (store.last_epoch("s1"), store.nonces("s1"), store.nonces("s2")) == (0, (5, 5), ())
    store.create_job(job(epoch=1))
    store.set_nonces("s1", 5, 6)
    assert (store.last_epoch("s1"), store.nonces("s1")) == (1, (5, 6))
    store.close()


def test_a_failed_transaction_leaves_nothing(path: Path) -> None:
    store, bad = Store(path), job(epoch=9)
    bad.ranks.append(Rank(2, "a1", "i1", "host", "/s", 1, "m", "s1", address=None))  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="cannot be used"):
        store.create_job(bad)
    assert store.newest_jobs(9) == []
    assert store.last_epoch("s1") is None
    store.create_job(job())
    store.close()


def test_the_newest_job_of_a_name_or_id(path: Path) -> None:
    store = Store(path)
    for number, (name, job_id) in enumerate([("x", 1), ("y", 2), ("x", 3), ("z", 1)], 1):
        store.create_job(job(name, job_id, epoch=number, failure=f"number {number}"))
    named, numbered = store.job_of_name("x"), store.job_of_id(1)
    assert named is not None
    assert numbered is not None
    assert (named.key, numbered.key) == (3, 4)
    assert store.job_of_name("nobody") is None
    assert [found.key for found in store.newest_jobs(2)] == [4, 3]
    assert store.last_job_id() == 1
    assert sorted(store.job_ids("s1")) == [1, 2, 3]
    assert state_at_end(store, 1, "s1", 1) == (JobState.PENDING, "number 1")
    assert state_at_end(store, 1, "s1", 4) == (JobState.PENDING, "number 4")
    store.close()


def modes(path: Path) -> dict[str, int]:
    return {file.name.removeprefix(path.name): stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}


def test_the_store_is_for_its_own_user_alone(path: Path) -> None:
    """This also holds for a store that an earlier version created and did not close."""
    private = dict.fromkeys(("", "-wal", "-shm", ".lock"), 0o600)
    umask = os.umask(0)
    try:
        store = Store(path)
        store.create_job(job())
        assert modes(path) == private
        for name in private:
            path.with_name(path.name + name).chmod(0o644)
        again = path.parent.with_name("copy") / path.name
        shutil.copytree(path.parent, again.parent)  # as after a crash
        store.close()
        store = Store(again)
        assert store.job_of_id(1) is not None
        assert modes(again) == {**private, ".lock": 0o644}  # an empty file
        store.close()
    finally:
        os.umask(umask)


def test_a_second_controller_is_refused(path: Path) -> None:
    store = Store(path)
    with pytest.raises(StoreError, match="in use by another controller"):
        Store(path)
    store.close()
    Store(path).close()


def test_a_newer_schema_is_refused(path: Path) -> None:
    Store(path).close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match=r"schema 99.*newer version"):
        Store(path)


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("this is not a database, and long enough to be seen as none" * 100)
    with pytest.raises(StoreError, match="not a database"):
        Store(path)
    with pytest.raises(StoreError, match="cannot be used"):
        Store(path / "below" / "a" / "file")


def test_it_is_written_ahead(path: Path) -> None:
    store = Store(path)
    with sqlite3.connect(path) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert other.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    store.close()


def test_a_store_of_the_schema_before_is_brought_up_to_date(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as database:
        for script in MIGRATIONS[:2]:
            database.executescript(script)
        database.execute("PRAGMA user_version = 2")
        database.execute(
            "INSERT INTO jobs VALUES (1, 1, 'old', 2, 's1', 5, 0, 8, 64, 1.0, ?, '', 0)", (JobState.READY,)
        )
        for rank in range(2):
            columns = (
                1,
                rank,
                "a1",
                "i1",
                "host",
                "/run/a1.sock",
                1,
                "00:00:00:00:00:00",
                RankState.ASSIGNED,
                "",
                0,
                0,
            )
            database.execute("INSERT INTO ranks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, x'')", columns)
    store = Store(path)
    [old] = store.live_jobs()
    assert (old.name, old.on_failure, old.generation, old.epoch_changes) == ("old", OnFailure.ABORT, 0, [])
    assert old.priority == 0
    assert [(rank.rank, rank.worker) for rank in old.ranks] == [(0, 0), (1, 1)]
    store.close()
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)


@pytest.fixture
def version_0_1_0(path: Path) -> Path:
    """Return a store that the controller of version 0.1.0 has written."""
    path.parent.mkdir()
    with sqlite3.connect(path) as database:
        database.executescript((Path(__file__).parent / "stores" / "schema_5.sql").read_text())
    return path


def test_a_store_of_version_0_1_0_is_brought_up_to_date(version_0_1_0: Path) -> None:
    with sqlite3.connect(version_0_1_0) as database:
        rows = database.execute("SELECT name, switch, epoch, slot_base, slots, id FROM jobs").fetchall()
        tables = ("ranks", "transitions", "counters", "epoch_changes", "events", "configuration")
        count = {table: database.execute(f"SELECT count(*) FROM {table}").fetchone() for table in tables}
    store = Store(version_0_1_0)
    found = {job.name: job for job in store.newest_jobs(100)}
    assert {name: (job.id, job.state.name, job.on_failure.name) for name, job in found.items()} == {
        "completed": (1, "COMPLETED", "ABORT"),
        "stopped": (2, "STOPPED", "ABORT"),
        "failed": (3, "FAILED", "ABORT"),
        "shrunk": (4, "RUNNING", "SHRINK"),
        "2": (5, "READY", "ABORT"),
        "running": (6, "RUNNING", "ABORT"),
        "ended": (7, "COMPLETED", "ABORT"),
        "changing": (8, "RUNNING", "RESTART"),
        "starting": (9, "PENDING", "ABORT"),
    }
    assert [(name, job.switches) for name, job in reversed(found.items())] == [
        (name, [JobSwitch(switch, epoch, slot_base, slots, group)])
        for name, switch, epoch, slot_base, slots, group in rows
    ]
    assert not any(job.ranks or job.counters or job.epoch_changes for job in found.values())
    found = {name: one for name in found if (one := store.job_of_name(name)) is not None}
    assert len(found) == 9
    assert {(rank.agent, rank.switch) for job in found.values() for rank in job.ranks} == {
        ("host-1", "leaf-1"),
        ("host-2", "leaf-1"),
        ("host-3", "leaf-2"),
    }
    assert [rank.worker for rank in found["shrunk"].ranks] == [1, 2, 3]
    assert [(change.epoch, change.workers, change.lost) for change in found["shrunk"].epoch_changes] == [(4, 3, (0,))]
    assert [name for name, job in found.items() if job.in_transition] == ["changing"]
    failed = found["failed"].ranks
    assert (failed[0].position, failed[0].counters.sent, failed[1].exit_code) == (1234, 1240, 137)
    assert found["completed"].counters["contributions"] == 0
    assert [job.name for job in store.live_jobs()] == ["shrunk", "2", "running", "changing", "starting"]
    assert (store.last_job_id(), store.last_epoch("leaf-1"), store.last_epoch("leaf-2")) == (9, 63, 63)
    assert (store.job_ids("leaf-1"), store.job_ids("leaf-2")) == ([1, 3, 4, 6, 8], [2, 5, 7, 9])
    assert state_at_end(store, 6, "leaf-1", 5) == (JobState.RUNNING, "")
    assert store.drained_switches() == {"leaf-2"}
    store.create_job(job("after", 10, 8))
    assert store.newest_jobs(1)[0].key == 10
    store.close()
    with sqlite3.connect(version_0_1_0) as database:
        assert not database.execute("PRAGMA foreign_key_check").fetchall()
        count["ranks"], count["transitions"] = (count["ranks"][0] + 2,), (count["transitions"][0] + 1,)
        assert {table: database.execute(f"SELECT count(*) FROM {table}").fetchone() for table in tables} == count


def test_a_job_on_two_switches(path: Path) -> None:
    """Test a job on two levels: a leaf switch sends its sums to the switch that completes them."""
    spine, leaf = JobSwitch("spine", 4, 8, 8, 1), JobSwitch("leaf", 4, 8, 8, 1, upstream="spine")
    store, written = Store(path), job(switches=[spine, leaf])
    store.create_job(written)
    assert (store.last_epoch("spine"), store.last_epoch("leaf")) == (4, 4)
    written.switches = [replace(place, epoch=6) for place in written.switches]
    store.begin_transition(written)
    written.epoch_changes.append(EpochChange(6, 2, (), (), "", 3.0))
    store.commit_transition(written, written.epoch_changes[-1])
    assert store.live_jobs() == [written]
    assert (store.last_epoch("spine"), store.last_epoch("leaf")) == (6, 6)
    assert store.job_ids("leaf") == store.job_ids("spine") == [1]
    assert state_at_end(store, 1, "leaf", 6) == (JobState.PENDING, "")
    assert store.end_of_job(1, "leaf", 4) is None
    store.close()


def test_a_job_without_a_switch_is_damage(path: Path) -> None:
    filled(path)
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM job_switches WHERE job = 3")
    store = Store(path)
    with pytest.raises(StoreError, match=r"is damaged: job 3 is on no switch.*Bring back a copy"):
        store.newest_jobs(100)
    store.close()


def test_a_change_of_epoch_is_kept(path: Path) -> None:
    store, changing = Store(path), job(on_failure=OnFailure.SHRINK)
    store.create_job(changing)
    switches = [replace(changing.switches[0], epoch=7)]
    store.begin_transition(replace(changing, switches=switches))
    changing.in_transition = True
    assert store.live_jobs() == [changing]
    assert store.last_epoch("s1") == 7
    changing.switches, changing.workers, changing.ranks, changing.in_transition = switches, 1, changing.ranks[1:], False
    changing.ranks[0].rank, changing.ranks[0].worker = 0, 1
    changing.generation = 1
    changing.epoch_changes.append(EpochChange(7, 1, (0,), (), "rank 0 was lost", 3.0))
    store.commit_transition(changing, changing.epoch_changes[-1])
    store.close()
    store = Store(path)
    assert store.live_jobs() == [changing]
    store.close()


def filled(path: Path) -> None:
    store = Store(path)
    for number in range(1, 40):
        store.create_job(job(f"job-{number}", number, epoch=number))
    store.close()


@pytest.mark.parametrize("seed", range(10))
def test_a_damaged_store_is_named_or_reads_as_it_was(path: Path, seed: int) -> None:
    filled(path)
    chance = random.Random(seed)
    content = bytearray(path.read_bytes())
    at = chance.randrange(len(content))
    content[at : at + 512] = chance.randbytes(512)
    path.write_bytes(content[: chance.choice([len(content), at])])
    damage = ""
    try:
        store = Store(path)
        read = [found.epoch for found in store.newest_jobs(100)]
        store.close()
    except StoreError as error:
        damage = str(error)
    if damage:
        assert damage.startswith(f"store {path} is damaged")
        assert "Bring back a copy" in damage
    else:
        assert read == list(range(39, 0, -1))


def test_a_state_that_does_not_exist_is_damage(path: Path) -> None:
    filled(path)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE jobs SET state = 77 WHERE key = 3")
    store = Store(path)
    with pytest.raises(StoreError, match=r"is damaged: 77 is not a valid JobState.*Bring back a copy"):
        store.newest_jobs(100)
    store.close()
