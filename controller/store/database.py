"""The store: jobs, their ranks and transitions, and the epochs that each switch has used, in a SQLite file."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields
from pathlib import Path
from typing import Final

from switchml.common.clock import Clock
from switchml.controller.errors import StoreError, StoreInUse
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import EpochChange, Job, JobState, JobSwitch, OnFailure, Rank, RankState
from switchml.controller.store.errors import require_sound, sound_rows, store_errors
from switchml.controller.store.events import Event, EventLog
from switchml.controller.store.limits import forget_old_jobs
from switchml.controller.store.lock import BEAT_SECONDS, Beating, Leader, LockHeld, StoreLock, Watch, end_writer
from switchml.controller.store.migrations import MIGRATIONS

__all__ = ["EPOCHS_OF_A_NONCE", "Store", "Transition", "stand_by"]

_LOG = logging.getLogger(__name__)
_STANDBY_SECONDS = 0.2

EPOCHS_OF_A_NONCE: Final = 64
"""A power of two. Epochs with the same quotient by it are used under the same nonce."""

Transition = tuple[JobState | None, JobState, str, float]
"""(from, to, reason, seconds since 1970); `from` is None for the first one of a job."""

_JOB_COLUMNS = (
    "key, id, name, workers, values_per_packet, created, state, failure, ended, on_failure, generation, in_transition,"
    " tenant, secret, priority"
)
_SWITCH_COLUMNS = "switch, epoch, slot_base, slots, multicast_group, upstream"
_RANK_COLUMNS = (
    "rank, agent, instance, host, socket, switch_port, mac, switch, state, address, udp_port, position, exit_code,"
    " worker, counters"
)
_EVENT_COLUMNS = tuple(field.name for field in fields(Event))


class Store:
    """A SQLite file that one controller has open; `events` is its event log.

    Every method is one transaction and raises StoreError if the file cannot be read or written. Calls take
    milliseconds, so they are made on the event loop.
    """

    def __init__(self, path: Path, instead_of: Leader | None = None) -> None:
        """Open `path`, make it if it is missing, and bring it to the newest schema.

        `instead_of` is a controller that has the store but has stalled; it is killed if it is inside a transaction.

        Raises:
            StoreError: the file is not a store, is newer than this software, cannot be written, or is in use by another
                controller.

        """
        self.path = path
        try:
            with store_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                self._lock = StoreLock(lock_path(path), instead_of)
        except LockHeld:
            raise StoreInUse(
                f"store {path} is in use by another controller; stop it, give another --store, or add --standby"
            ) from None
        try:
            with store_errors(path):
                if instead_of is not None and instead_of.process is not None and end_writer(path, instead_of.process):
                    _LOG.warning("killed process %d, which stalled inside a transaction", instead_of.process)
                _keep_private(path)
                self._database = sqlite3.connect(path, isolation_level=None)
                # If an epoch were lost it would be assigned twice, so a commit must be on the disk before a job starts.
                for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = OFF"):
                    self._database.execute(f"PRAGMA {pragma}")
                require_sound(path, self._database)
                self._migrate()  # replaces tables that others refer to
                self._database.execute("PRAGMA foreign_keys = ON")
                self.term = self._begin_term()
            self.events = EventLog(self._stored_events(), self._write_events)
        except BaseException:
            self._lock.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self.events.flush()
        self._database.close()
        self._lock.close()

    async def lead(self) -> None:
        """Show standbys that this controller is alive, until cancelled.

        Raises:
            StoreInUse: a standby has taken its place.

        """
        with contextlib.closing(Beating(self._lock)) as beating:
            while True:
                self._require_lock()
                with store_errors(self.path):
                    beating.turned()
                await asyncio.sleep(BEAT_SECONDS)

    def _require_lock(self) -> None:
        with store_errors(self.path):
            if self._lock.held:
                return
        raise StoreInUse(f"another controller has taken over store {self.path}: this one did nothing for too long")

    def _begin_term(self) -> int:
        """Begin a new term of leadership; controllers of earlier terms can no longer write.

        The file may be a copy whose original has used more epochs under the same nonce; the rest of these is skipped.
        """
        self._database.execute("UPDATE leadership SET term = term + 1")
        self._database.execute("UPDATE epochs SET last = last | ?", (EPOCHS_OF_A_NONCE - 1,))
        return self._present_term()

    def _present_term(self) -> int:
        (term,) = self._database.execute("SELECT term FROM leadership").fetchone()
        return int(term)

    def _migrate(self) -> None:
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise StoreError(
                f"store {self.path} has schema {version} and this controller knows up to {len(MIGRATIONS)}:"
                " it was written by a newer version; install that one or give another --store"
            )
        for number, script in enumerate(MIGRATIONS[version:], version + 1):
            self._database.executescript(f"BEGIN; {script} PRAGMA user_version = {number}; COMMIT;")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with store_errors(self.path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                if self._present_term() != self.term:
                    raise StoreInUse(f"another controller has taken over store {self.path}")
                yield self._database
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    def create_job(self, job: Job) -> None:
        """Add a job with its switches and ranks, mark its epoch as used, and set `job.key`."""
        with self._transaction() as database:
            _, *columns = _JOB_COLUMNS.split(", ")  # the key is chosen by the database
            cursor = database.execute(
                f"INSERT INTO jobs ({_JOB_COLUMNS}) VALUES (NULL{', ?' * len(columns)})",  # noqa: S608 - our own names
                [getattr(job, column) for column in columns],
            )
            assert cursor.lastrowid is not None
            job.key = cursor.lastrowid
            _use_epochs(database, job)
            _write_switches(database, job)
            database.execute("INSERT INTO transitions VALUES (?, NULL, ?, '', ?)", (job.key, job.state, job.created))
            _write_ranks(database, job, job.ranks)
            forget_old_jobs(database)

    def save_state(self, job: Job, before: JobState, reason: str) -> None:
        """Write the state, failure, end and ranks of `job`, and the transition from `before` as one row."""
        with self._transaction() as database:
            database.execute(
                "UPDATE jobs SET state = ?, failure = ?, ended = ? WHERE key = ?",
                (job.state, job.failure, job.ended, job.key),
            )
            database.execute(
                "INSERT INTO transitions VALUES (?, ?, ?, ?, ?)",
                (job.key, before, job.state, reason, job.ended or time.time()),
            )
            _write_ranks(database, job, job.ranks)

    def begin_transition(self, target: Job) -> None:
        """Record that a job is in transition into the epoch of `target`, and mark that epoch as used."""
        with self._transaction() as database:
            _use_epochs(database, target)
            database.execute("UPDATE jobs SET in_transition = 1 WHERE key = ?", (target.key,))

    def commit_transition(self, job: Job, change: EpochChange | None = None) -> None:
        """Write the switches, ranks and secret of `job`, which is in a new epoch, and the reason for the change."""
        with self._transaction() as database:
            database.execute(
                "UPDATE jobs SET workers = ?, secret = ?, generation = ?, in_transition = 0 WHERE key = ?",
                (job.workers, job.secret, job.generation, job.key),
            )
            _write_switches(database, job)
            database.execute("DELETE FROM ranks WHERE job = ?", (job.key,))
            _write_ranks(database, job, job.ranks)
            if change is not None:
                lists = [",".join(map(str, numbers)) for numbers in (change.lost, change.joined)]
                database.execute(
                    "INSERT INTO epoch_changes VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (job.key, change.epoch, change.workers, *lists, change.reason, change.time),
                )

    def drained_switches(self) -> set[str]:
        """Return the switches on which no new jobs may be placed."""
        with store_errors(self.path):
            return {row[0] for row in self._database.execute("SELECT switch FROM drained_switches").fetchall()}

    def set_drained(self, switch: str, drained: bool) -> None:
        """Write whether new jobs may be placed on a switch."""
        statement = (
            "INSERT OR IGNORE INTO drained_switches VALUES (?)"
            if drained
            else "DELETE FROM drained_switches WHERE switch = ?"
        )
        with self._transaction() as database:
            database.execute(statement, (switch,))

    def exchange_configuration(self, content: str) -> str | None:
        """Write the controller's configuration; return the previous one, or None."""
        with self._transaction() as database:
            row = database.execute("SELECT content FROM configuration").fetchone()
            database.execute("DELETE FROM configuration")
            database.execute("INSERT INTO configuration VALUES (?)", (content,))
        return str(row[0]) if row else None

    def save_ranks(self, job: Job, ranks: Sequence[Rank]) -> None:
        """Write some ranks of `job`, and its failure.

        If each event of a rank wrote all of them, a job of N ranks would write N * N rows.
        """
        with self._transaction() as database:
            database.execute("UPDATE jobs SET failure = ? WHERE key = ?", (job.failure, job.key))
            _write_ranks(database, job, ranks)

    def save_progress(self, job: Job) -> None:
        """Write the ranks, failure and counters of `job`."""
        with self._transaction() as database:
            database.execute("UPDATE jobs SET failure = ? WHERE key = ?", (job.failure, job.key))
            _write_ranks(database, job, job.ranks)
            database.executemany(
                "INSERT OR REPLACE INTO counters VALUES (?, ?, ?)",
                [(job.key, name, packets) for name, packets in job.counters.items()],
            )

    def live_jobs(self) -> list[Job]:
        """Return the jobs that have not ended, oldest first."""
        return self._jobs("WHERE state <= ? ORDER BY key", (JobState.RUNNING,))

    def newest_jobs(self, limit: int) -> list[Job]:
        """Return up to `limit` jobs, the newest first, without their ranks, counters and changes of epoch."""
        return self._jobs("ORDER BY key DESC LIMIT ?", (limit,), complete=False)

    def newest_key(self, reference: int | str) -> int | None:
        """Return the key of the newest job of this id or name, without reading its ranks."""
        column = "id" if isinstance(reference, int) else "name"
        with store_errors(self.path):
            row = self._database.execute(
                f"SELECT key FROM jobs WHERE {column} = ? ORDER BY key DESC LIMIT 1",  # noqa: S608 - our own names
                (reference,),
            ).fetchone()
        return int(row[0]) if row else None

    def job_of_id(self, job_id: int) -> Job | None:
        """Return the newest job of this id."""
        return next(iter(self._jobs("WHERE id = ? ORDER BY key DESC LIMIT 1", (job_id,))), None)

    def end_of_job(self, job_id: int, switch: str, epoch: int) -> tuple[int, JobState, str] | None:
        """Return key, state and failure of the newest job that had this id and this epoch, with a rank of this switch.

        Over aggregators it need not have been on this switch. Its ranks are read only then: after a job's end each of
        them may cause a call.
        """
        with sound_rows(self.path):
            row = self._database.execute(
                "SELECT key, state, failure FROM jobs WHERE id = ?"
                " AND EXISTS (SELECT * FROM job_switches WHERE job = key AND epoch = ?)"
                " AND (EXISTS (SELECT * FROM job_switches WHERE job = key AND switch = ?)"
                " OR EXISTS (SELECT * FROM ranks WHERE job = key AND switch = ?))"
                " ORDER BY key DESC LIMIT 1",
                (job_id, epoch, switch, switch),
            ).fetchone()
            return (int(row[0]), JobState(row[1]), str(row[2])) if row else None

    def job_of_name(self, name: str) -> Job | None:
        """Return the newest job of this name."""
        return next(iter(self._jobs("WHERE name = ? ORDER BY key DESC LIMIT 1", (name,))), None)

    def transitions(self, key: int) -> list[Transition]:
        """Return the transitions of a job, in order."""
        with store_errors(self.path):
            rows = self._database.execute(
                "SELECT from_state, to_state, reason, time FROM transitions WHERE job = ? ORDER BY rowid", (key,)
            ).fetchall()
        return [(JobState(b) if b is not None else None, JobState(a), reason, when) for b, a, reason, when in rows]

    def last_job_id(self) -> int:
        """Return the last id that was assigned; 0 if none was."""
        with store_errors(self.path):
            row = self._database.execute("SELECT id FROM jobs ORDER BY key DESC LIMIT 1").fetchone()
        return int(row[0]) if row else 0

    def job_ids(self, switch: str) -> list[int]:
        """Return the ids that jobs on this switch have had."""
        with store_errors(self.path):
            rows = self._database.execute(
                "SELECT DISTINCT id FROM job_switches JOIN jobs ON key = job WHERE switch = ?", (switch,)
            ).fetchall()
        return [row[0] for row in rows]

    def last_epoch(self, switch: str) -> int | None:
        """Return the last epoch that was assigned on this switch; None if the switch is not known."""
        with store_errors(self.path):
            row = self._database.execute("SELECT last FROM epochs WHERE switch = ?", (switch,)).fetchone()
        return int(row[0]) if row else None

    def epochs_of_tenant(self, tenant: str, switches: Sequence[str]) -> int:
        """Return the number of epochs that a tenant has used on one of these switches: on the one with the most."""
        with store_errors(self.path):
            return _epochs_by_tenant(self._database, switches)[tenant]

    def begin_history(self, switch: str, nonce: int, last: int) -> None:
        """Record that the registers of a switch were emptied, and the nonce that it is about to get.

        Its next epoch is `last` + 1: 1 if the epochs start over.
        """
        with self._transaction() as database:
            database.execute("INSERT OR REPLACE INTO epochs VALUES (?, ?, ?, ?)", (switch, last, nonce, nonce))
            if last == 0:
                database.execute("DELETE FROM epochs_of_tenants WHERE switch = ?", (switch,))

    def nonces(self, switch: str) -> tuple[int, ...]:
        """Return the nonces that this switch can hold if no other store has used it since; none if it is not known."""
        with store_errors(self.path):
            row = self._database.execute("SELECT nonce, next_nonce FROM epochs WHERE switch = ?", (switch,)).fetchone()
        return row or ()

    def set_nonces(self, switch: str, present: int, following: int) -> None:
        """Record the nonce that a switch holds, and the one that it is about to get or, if they are equal, has got."""
        with self._transaction() as database:
            database.execute(
                "UPDATE epochs SET nonce = ?, next_nonce = ? WHERE switch = ?", (present, following, switch)
            )

    def _stored_events(self) -> list[Event]:
        columns = ", ".join(_EVENT_COLUMNS)
        with store_errors(self.path):
            rows = self._database.execute(f"SELECT {columns} FROM events ORDER BY number").fetchall()  # noqa: S608
        return [Event(*row) for row in rows]

    def _write_events(self, events: Sequence[Event], forgotten: Sequence[int]) -> None:
        places = ", ".join("?" * len(_EVENT_COLUMNS))
        with self._transaction() as database:
            database.executemany(
                f"INSERT INTO events VALUES ({places})",  # noqa: S608 - question marks
                [astuple(event) for event in events],
            )
            database.executemany("DELETE FROM events WHERE number = ?", [(number,) for number in forgotten])

    def _jobs(self, where: str, values: Sequence[object], complete: bool = True) -> list[Job]:
        with sound_rows(self.path):
            rows = self._database.execute(f"SELECT {_JOB_COLUMNS} FROM jobs {where}", tuple(values)).fetchall()  # noqa: S608
            jobs = [self._job(row) for row in rows]
            for job in jobs if complete else ():
                self._complete(job)
            return jobs

    def _job(self, row: Sequence[object]) -> Job:
        names = _JOB_COLUMNS.split(", ")
        job = Job(**dict(zip(names, row, strict=True)))  # type: ignore[arg-type]
        job.state, job.on_failure, job.in_transition = (
            JobState(job.state),
            OnFailure(job.on_failure),
            bool(job.in_transition),
        )
        switches = self._database.execute(
            f"SELECT {_SWITCH_COLUMNS} FROM job_switches WHERE job = ? ORDER BY position",  # noqa: S608 - our own names
            (job.key,),
        )
        job.switches = [JobSwitch(*values) for values in switches]
        if not job.switches:
            raise ValueError(f"job {job.key} is on no switch")
        return job

    def _complete(self, job: Job) -> None:
        """Read the ranks, counters and changes of epoch of a job."""
        ranks = self._database.execute(f"SELECT {_RANK_COLUMNS} FROM ranks WHERE job = ? ORDER BY rank", (job.key,))  # noqa: S608
        for values in ranks:
            rank = Rank(**dict(zip(_RANK_COLUMNS.split(", "), values, strict=True)))
            rank.state = RankState(rank.state)
            rank.counters = pb.RankCounters.FromString(values[-1])
            job.ranks.append(rank)
        job.counters = dict(
            self._database.execute("SELECT name, packets FROM counters WHERE job = ?", (job.key,)).fetchall()
        )
        changes = self._database.execute(
            "SELECT epoch, workers, lost, joined, reason, time FROM epoch_changes WHERE job = ? ORDER BY rowid",
            (job.key,),
        )
        for epoch, workers, lost, joined, reason, when in changes:
            job.epoch_changes.append(EpochChange(epoch, workers, _numbers(lost), _numbers(joined), reason, when))


async def stand_by(path: Path, clock: Clock = time.monotonic) -> Store:
    """Wait, without a deadline, until the controller that leads with this store dies or stalls; then open the store.

    Raises:
        StoreError: like Store, except if the store is in use.

    """
    watch = Watch(lock_path(path), _STANDBY_SECONDS, clock)
    while True:
        try:
            return Store(path)
        except StoreInUse:
            with store_errors(path):
                stalled = watch.stalled()
        if stalled is not None:
            with contextlib.suppress(StoreInUse):
                return Store(path, stalled)
        await asyncio.sleep(_STANDBY_SECONDS)


def lock_path(path: Path) -> Path:
    """Return the lock file of a store."""
    return path.with_name(f"{path.name}.lock")


def _keep_private(path: Path) -> None:
    """Let only this user read the store: create it with mode 0600, which SQLite copies to its other files."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        with contextlib.suppress(FileNotFoundError):
            file.chmod(0o600)  # an earlier version may have made it readable for others


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number)


def _use_epochs(database: sqlite3.Connection, job: Job) -> None:
    """Mark a job's epoch as used on all its switches.

    A switch passes over the epochs that another switch of the job has used, so the tenants that used those there count
    as their users here.
    """
    switches = [place.switch for place in job.switches]
    used = _epochs_by_tenant(database, switches)
    used[job.tenant] += 1
    database.executemany(
        "INSERT INTO epochs (switch, last) VALUES (?, ?) ON CONFLICT (switch) DO UPDATE SET last = excluded.last",
        [(switch, job.epoch) for switch in switches],
    )
    database.executemany(
        "INSERT OR REPLACE INTO epochs_of_tenants VALUES (?, ?, ?)",
        [(switch, tenant, count) for switch in switches for tenant, count in used.items()],
    )


def _epochs_by_tenant(database: sqlite3.Connection, switches: Sequence[str]) -> Counter[str]:
    """Return for each tenant the largest number of epochs that it has used on any of these switches."""
    places = ", ".join("?" * len(switches))
    rows = database.execute(
        f"SELECT tenant, max(used) FROM epochs_of_tenants WHERE switch IN ({places}) GROUP BY tenant",  # noqa: S608
        tuple(switches),
    )
    return Counter(dict(rows.fetchall()))


def _write_switches(database: sqlite3.Connection, job: Job) -> None:
    database.execute("DELETE FROM job_switches WHERE job = ?", (job.key,))
    database.executemany(
        f"INSERT INTO job_switches (job, position, {_SWITCH_COLUMNS}) VALUES (?{', ?' * 7})",  # noqa: S608 - our own names
        [(job.key, position, *astuple(place)) for position, place in enumerate(job.switches)],
    )


def _write_ranks(database: sqlite3.Connection, job: Job, ranks: Sequence[Rank]) -> None:
    database.executemany(
        f"INSERT OR REPLACE INTO ranks (job, {_RANK_COLUMNS}) VALUES (?{', ?' * 15})",  # noqa: S608 - our own names
        [
            (
                *(job.key, r.rank, r.agent, r.instance, r.host, r.socket, r.switch_port, r.mac, r.switch),
                *(r.state, r.address, r.udp_port, r.position, r.exit_code, r.worker, r.counters.SerializeToString()),
            )
            for r in ranks
        ],
    )
