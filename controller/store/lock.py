"""Which of several controllers leads: the one that holds the store's lock file and keeps its beat going.

The lock (flock) on the file beside the store is given back by the kernel when its holder dies, so a standby sees that
at once. A leader that lives and does nothing (stopped, swapped out, cut off from the disk) is seen by its beat, a
counter in the file: a standby that has not seen it move for `LEASE_SECONDS` of its own clock puts another lock file in
its place. From then on the old leader finds that the file at the path is not its own, and the store's term neither.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from switchml.common.clock import Clock, stood_still

__all__ = ["BEAT_SECONDS", "LEASE_SECONDS", "LockHeld", "StoreLock", "Watch"]

BEAT_SECONDS = 0.5
"""How often a leader shows that it goes on."""
LEASE_SECONDS = 2.5
"""How long a leader may show nothing before a standby takes its place."""


class LockHeld(Exception):
    """Another controller leads."""


class StoreLock:
    """The lock file of a store, held from its construction until `close`."""

    def __init__(self, path: Path, instead_of: int | None = None) -> None:
        """Take the lock; `instead_of` is the inode of a stalled leader's file, in whose place a new one is put.

        Raises:
            LockHeld: another controller leads, also one that has just replaced that file.
            OSError: the file cannot be made.

        """
        self._path = path
        self._beats = 0
        self._file = _locked(path) if instead_of is None else _replaced(path, instead_of)
        if not self.held:  # it was replaced meanwhile
            os.close(self._file)
            raise LockHeld
        self.beat()

    @property
    def held(self) -> bool:
        """Whether the file at the path is still ours."""
        return _inode_at(self._path) == os.fstat(self._file).st_ino

    def beat(self) -> None:
        """Show that this leader goes on."""
        self._beats += 1
        os.pwrite(self._file, b"%020d\n" % self._beats, 0)

    def close(self) -> None:
        """Give the lock back."""
        os.close(self._file)


class Watch:
    """A standby's look at the lock of the leader, by its own clock, every `step` seconds."""

    def __init__(self, path: Path, step: float, clock: Clock = time.monotonic) -> None:
        self._path = path
        self._step = step
        self._clock = clock
        self._looked = clock()
        self._seen: tuple[int | None, bytes] | None = None
        self._changed = self._looked

    def stalled(self) -> int | None:
        """Return the inode of the leader's file if nothing has moved there for `LEASE_SECONDS`."""
        inode = _inode_at(self._path)
        seen = (inode, self._path.read_bytes() if inode is not None else b"")
        looked, now = self._looked, self._clock()
        self._looked = now
        if seen != self._seen or stood_still(looked, now, max(self._step, BEAT_SECONDS)):
            # If this process did not run, the leader, on the same machine, may not have either.
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
    """Put a file that we hold in the place of that of a stalled leader; of two standbys one does."""
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
