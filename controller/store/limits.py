"""The limit of ended jobs in the store."""

from __future__ import annotations

import sqlite3
from typing import Final

from switchml.controller.records import JobState

__all__ = ["ENDED_JOBS_KEPT", "forget_old_jobs"]

ENDED_JOBS_KEPT: Final = 2000
"""The number of newest jobs that the store keeps, ended ones included; live jobs are kept regardless of their age."""

_OF_A_JOB: Final = ("job_switches", "ranks", "transitions", "counters", "epoch_changes")


def forget_old_jobs(database: sqlite3.Connection, newest: int) -> None:
    """Delete ended jobs whose key is ENDED_JOBS_KEPT or more below the newest one, with all their rows."""
    old = database.execute(
        "SELECT key FROM jobs WHERE key <= ? AND state > ?", (newest - ENDED_JOBS_KEPT, JobState.RUNNING)
    ).fetchall()
    for table in _OF_A_JOB:
        database.executemany(f"DELETE FROM {table} WHERE job = ?", old)  # noqa: S608 - our own names
    database.executemany("DELETE FROM jobs WHERE key = ?", old)
