"""The errors of the store's file, with messages that say what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from google.protobuf.message import DecodeError

from switchml.controller.errors import StoreError

__all__ = ["require_sound", "sound_rows", "store_errors"]

_REMEDIES = {
    "disk is full": "check whether its disk is full or failing",
    "disk I/O error": "check whether its disk is full or failing",
    "database is locked": "another process, which this one cannot or may not end, is inside a transaction: end it",
}
_DAMAGED = ("malformed", "not a database")


@contextmanager
def sound_rows(path: Path) -> Iterator[None]:
    """Turn errors in rows, such as an unknown state or a damaged message, into StoreError."""
    try:
        with store_errors(path):
            yield
    except (ValueError, TypeError, DecodeError) as error:
        raise _damaged(path, str(error)) from error


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn errors of the file into StoreError."""
    try:
        yield
    except sqlite3.Error as error:
        if any(words in str(error) for words in _DAMAGED):
            raise _damaged(path, str(error)) from error
        remedy = next((f"; {remedy}" for words, remedy in _REMEDIES.items() if words in str(error)), "")
        raise StoreError(f"store {path} cannot be used: {error}{remedy}") from error
    except OSError as error:
        raise StoreError(f"store {path} cannot be used: {error}") from error


def _damaged(path: Path, why: str) -> StoreError:
    """Return the error for a store whose contents cannot be trusted."""
    return StoreError(
        f"store {path} is damaged: {why}. Bring back a copy of it, or move {path.name}, {path.name}-wal and"
        f" {path.name}-shm away: the controller then starts with an empty store, and running jobs end"
    )


def require_sound(path: Path, database: sqlite3.Connection) -> None:
    """Read the whole file and raise StoreError if a page, an index or a value in it is damaged.

    Damage in a part that is not needed now could affect epochs later, and if an epoch is assigned twice, a slot accepts
    old packets as new ones.
    """
    with store_errors(path):
        (found,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise _damaged(path, str(found).replace("\n", " "))
