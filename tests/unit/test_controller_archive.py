"""Jobs and events that are read from a store without its controller."""

import sqlite3
from pathlib import Path

import pytest

from switchml.controller.archive import Archive
from switchml.controller.errors import JobNotFound, StoreError
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import Job, JobSwitch, Rank
from switchml.controller.store.database import Store
from switchml.controller.store.events import EventKind


def job(name: str, job_id: int) -> Job:
    ranks = [Rank(0, "a1", "i1", "host", "/run/a1.sock", 1, "00:00:00:00:00:00", "s1")]
    places = [JobSwitch("s1", job_id, slot_base=0, slots=8, group=job_id)]
    return Job(0, job_id, name, 1, 64, 1.0, ranks=ranks, switches=places)


def test_jobs_and_events_are_read_also_while_a_controller_has_the_store(tmp_path: Path) -> None:
    path = tmp_path / "my store?.sqlite"
    store = Store(path)
    for job_id, name in enumerate(("first", "second"), start=1):
        made = job(name, job_id)
        store.create_job(made)
        store.events.record(EventKind.JOB_STARTED, job=made)
    store.events.flush()
    with Archive(path) as archive:
        assert [found.name for found in archive.list_jobs()] == ["first", "second"]
        found = archive.get_job("2")
        assert (found.name, found.state, found.ranks[0].agent) == ("second", pb.JOB_STATE_PENDING, "a1")
        assert [event.job_name for event in archive.read_events(latest=1)] == ["second"]
        assert [event.job_name for event in archive.read_events("first")] == ["first"]
        assert [event.job_name for event in archive.read_events(kinds=["job-started"], level="info")] == [
            "first",
            "second",
        ]
        assert list(archive.read_events("first", level="error")) == []
        for ask in (archive.get_job, archive.read_events):
            with pytest.raises(JobNotFound, match="no job has the name 'third'"):
                ask("third")
    store.close()


def test_a_store_of_an_earlier_version_is_read_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with sqlite3.connect(path) as database:
        database.executescript((Path(__file__).parent / "stores" / "schema_5.sql").read_text())
    before = path.read_bytes()
    with Archive(path) as archive:
        assert archive.get_job("shrunk").state == pb.JOB_STATE_RUNNING
        assert archive.list_jobs(include_ended=True)[0].name == "completed"
    assert path.read_bytes() == before


def test_what_is_not_a_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite").write_text("This is a text.")
    with pytest.raises(StoreError, match=r"store\.sqlite"):
        Archive(tmp_path / "store.sqlite")
