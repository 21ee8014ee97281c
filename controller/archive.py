"""The jobs and events in a store without its controller."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from switchml.common.names import parse_job_reference
from switchml.controller.jobs.register import JobRegister
from switchml.controller.northbound.views import event_view, job_view
from switchml.controller.proto import events_pb2 as events_pb
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.store.database import Store
from switchml.controller.store.errors import store_errors
from switchml.controller.store.events import EVENTS_KEPT, Selection

__all__ = ["Archive"]


class Archive:
    """A copy of a store as it was when this was created. Its methods are those of ControllerClient.

    A copy can be brought to the newest schema and needs no lock, so a controller may start with the store at any time.

    Raises:
        StoreError: the file is not a store, is newer than this software, or cannot be read.

    """

    def __init__(self, path: Path) -> None:
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="switchml-"))
            copy = Path(directory) / path.name
            with (
                store_errors(path),
                contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source,
                contextlib.closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)
            self._store = Store(copy)
            stack.callback(self._store.close)
            self._jobs = JobRegister(self._store)
            self._stack = stack.pop_all()

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def list_jobs(self, include_ended: bool = False) -> list[pb.Job]:
        """Return the jobs that have not ended, or all, oldest first."""
        jobs = self._jobs.listed(include_ended=True) if include_ended else self._store.live_jobs()
        return [job_view(job) for job in jobs]

    def get_job(self, job: int | str) -> pb.Job:
        """Return a job.

        Raises:
            JobNotFound: no job has this id or name.

        """
        return job_view(self._jobs.find(parse_job_reference(job) if isinstance(job, str) else job))

    def read_events(
        self,
        job: int | str | None = None,
        latest: int = 0,
        *,
        since: float = 0.0,
        kinds: Sequence[str] = (),
        level: str = "",
        switch: str = "",
    ) -> Iterator[events_pb.Event]:
        """Yield the selected events of one job or all, oldest first; if `latest` is not 0, at most that many.

        Raises:
            InvalidRequest: events have no such kind or level.
            JobNotFound: no job has this id or name, and no kept event concerns a job that had it.

        """
        wanted = parse_job_reference(job) if isinstance(job, str) else job
        events = self._store.events
        selection = Selection(since, frozenset(kinds), level, switch)
        if wanted is not None and not events.latest(wanted, most=1):
            self._jobs.find(wanted)
        return map(event_view, events.latest(wanted, latest or EVENTS_KEPT, selection=selection))
