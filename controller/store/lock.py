"""The leadership among several controllers: the leader holds the store's lock file and increments its beat.

The kernel releases the lock (flock) on the file next to the store when its holder dies, so a standby notices that at
once. A leader that is alive but does nothing (stopped, swapped out, cut off from the disk) is recognized by its beat, a
counter in the file: a standby that has not seen it change for `LEASE_SECONDS` replaces the lock file.
From then on the old leader finds a file at the path that it does not hold, and another term in the store.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from switchml.common.clock import Clock, stood_still

__all__ = ["BEAT_SECONDS", "LEASE_SECONDS", "LockHeld", "StoreLock", "Watch"]

BEAT_SECONDS = 0.5
"""The interval at which a leader shows that it is alive."""
LEASE_SECONDS = 2.5
"""The time without a beat after which a standby takes the place of a leader."""


class LockHeld(Exception):
    """Another controller leads."""


class StoreLock:
    """The lock file of a store, held from its construction until `close`."""

    def __init__(self, path: Path, instead_of: int | None = None) -> None:
        """Take the lock; `instead_of` is the inode of a stalled leader's file, which is replaced by a new one.

        Raises:
            LockHeld: another controller leads, also one that has just replaced that file.
            OSError: the file cannot be made.

        """
        self._path = path
        self._beats = 0
        self._file = _locked(path) if instead_of is None else _replaced(path, instead_of)
        if not self.held:  # it was replaced after it was locked
            os.close(self._file)
            raise LockHeld
        self.beat()

    @property
    def held(self) -> bool:
        """True if the file at the path is still the one that this object has locked."""
        return _inode_at(self._path) == os.fstat(self._file).st_ino

    def beat(self) -> None:
        """Show that this leader is alive."""
        self._beats += 1
        os.pwrite(self._file, b"%020d\n" % self._beats, 0)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._file)


class Watch:
    """The check of a leader's lock by a standby, every `step` seconds of the standby's clock."""

    def __init__(self, path: Path, step: float, clock: Clock = time.monotonic) -> None:
        self._path = path
        self._step = step
        self._clock = clock
        self._looked = clock()
        self._seen: tuple[int | None, bytes] | None = None
        self._changed = self._looked

    def stalled(self) -> int | None:
        """Return the inode of the leader's file if its beat has not changed for `LEASE_SECONDS`."""
        inode = _inode_at(self._path)
        seen = (inode, self._path.read_bytes() if inode is not None else b"")
        looked, now = self._looked, self._clock()
        self._looked = now
        if seen != self._seen or stood_still(looked, now, max(self._step, BEAT_SECONDS)):
            # If this process was not running, the leader on the same machine may not have been running either.
            self._seen, self._changed = seen, now
        return inode if now - self._changed > LEASE_SECONDS else None


def _locked(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise LockHeld from None
    return file


def _replaced(path: Path, inode: int) -> int:
    """Replace the file of a stalled leader by one that this process holds; only one of two standbys succeeds."""
    turn = _locked(path.with_name(f"{path.name}.takeover"))
    try:
        if _inode_at(path) != inode:
            raise LockHeld
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        partial.unlink(missing_ok=True)
        file = _locked(partial)
        partial.replace(path)
        return file
    finally:
        os.close(turn)


def _inode_at(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
