"""What can be wrong with the file of the store, in words that say what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from google.protobuf.message import DecodeError

from switchml.controller.errors import StoreError

__all__ = ["require_sound", "sound_rows", "store_errors"]

_FULL = ("disk is full", "disk I/O error")
_DAMAGED = ("malformed", "not a database")


@contextmanager
def sound_rows(path: Path) -> Iterator[None]:
    """Turn what cannot be made of rows, a state or a message that does not exist, into StoreError."""
    try:
        with store_errors(path):
            yield
    except (ValueError, TypeError, DecodeError) as error:
        raise _damaged(path, str(error)) from error


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn what goes wrong with the file into StoreError."""
    try:
        yield
    except sqlite3.Error as error:
        if any(words in str(error) for words in _DAMAGED):
            raise _damaged(path, str(error)) from error
        remedy = "; look whether its disk is full or failing" if any(words in str(error) for words in _FULL) else ""
        raise StoreError(f"store {path} cannot be used: {error}{remedy}") from error
    except OSError as error:
        raise StoreError(f"store {path} cannot be used: {error}") from error


def _damaged(path: Path, why: str) -> StoreError:
    """Return the error for a store whose contents cannot be trusted."""
    return StoreError(
        f"store {path} is damaged: {why}. Bring back a copy of it, or move {path.name}, {path.name}-wal and"
        f" {path.name}-shm away: the controller then begins anew, and jobs that still run are over"
    )


def require_sound(path: Path, database: sqlite3.Connection) -> None:
    """Read the whole file and raise StoreError if a page, an index or a value in it is not as it must be.

    What is wrong in a part that is not needed now would be wrong in the epochs of tomorrow, and an epoch that is given
    twice lets a slot take old packets for new ones.
    """
    with store_errors(path):
        (found,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise _damaged(path, str(found).replace("\n", " "))
