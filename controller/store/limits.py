"""The limit of ended jobs in the store."""

from __future__ import annotations

import sqlite3
from typing import Final

from switchml.controller.records import JobState

__all__ = ["ENDED_JOBS_KEPT", "forget_old_jobs"]

ENDED_JOBS_KEPT: Final = 2000
"""The number of ended jobs that the store keeps."""

_OF_A_JOB: Final = ("job_switches", "ranks", "transitions", "counters", "epoch_changes")


def forget_old_jobs(database: sqlite3.Connection) -> None:
    """Delete ended jobs above the limit with all their rows, the oldest of the tenant that has the most.

    So a tenant that starts many jobs displaces only its own.
    """
    tenants = database.execute(
        "SELECT count(*) AS jobs, tenant FROM jobs WHERE state > ? GROUP BY tenant ORDER BY jobs DESC",
        (JobState.RUNNING,),
    ).fetchall()
    surplus = sum(jobs for jobs, _ in tenants) - ENDED_JOBS_KEPT
    if surplus <= 0:
        return
    old = database.execute(
        "SELECT key FROM jobs WHERE tenant = ? AND state > ? ORDER BY key LIMIT ?",
        (tenants[0][1], JobState.RUNNING, surplus),
    ).fetchall()
    for table in _OF_A_JOB:
        database.executemany(f"DELETE FROM {table} WHERE job = ?", old)  # noqa: S608 - our own names
    database.executemany("DELETE FROM jobs WHERE key = ?", old)
