"""The leadership among several controllers: the leader holds the store's lock file and increments its beat.

The kernel releases the lock (flock) on the file next to the store when its holder dies, so a standby notices that at
once. A leader that is alive but does nothing (stopped, swapped out, cut off from the disk) is recognized by its beat, a
counter in the file: a standby that has not seen it change for `LEASE_SECONDS` replaces the lock file.
From then on the old leader finds a file at the path that it does not hold, and another term in the store.

The beat comes from a separate thread, so that a leader whose event loop is only slow, because it has much to do, is not
taken for a stalled one. It ends if the loop stands still for `LOOP_SECONDS`.

A leader that stalls inside a transaction also has SQLite's locks, which only the end of its process releases: the
standby kills it (`end_writer`).
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

from switchml.common.clock import Clock, stood_still

__all__ = [
    "BEAT_SECONDS",
    "LEASE_SECONDS",
    "LOOP_SECONDS",
    "Beating",
    "Leader",
    "LockHeld",
    "StoreLock",
    "Watch",
    "end_writer",
]

BEAT_SECONDS = 0.5
"""The interval at which a leader shows that it is alive."""
LEASE_SECONDS = 2.5
"""The time without a beat after which a standby takes the place of a leader."""
LOOP_SECONDS = 10.0
"""The time that the event loop of a leader may stand still before its beat ends."""

_END_SECONDS: Final = 5.0
_WRITER_LOCKS: Final = (120, 3)  # the first byte of STORE-shm and their number (SQLite, "WAL-mode File Format", 2.3)
_FLOCK: Final = "hhqqi4x"  # struct flock: type, whence, start, length, process


class LockHeld(Exception):
    """Another controller leads."""


class Leader(NamedTuple):
    """The leader that a lock file tells of."""

    inode: int  # of the lock file
    process: int | None  # None if the file does not tell it, as that of an earlier version


class StoreLock:
    """The lock file of a store, held from its construction until `close`."""

    def __init__(self, path: Path, instead_of: Leader | None = None) -> None:
        """Take the lock; `instead_of` is a stalled leader, whose file is replaced by a new one.

        Raises:
            LockHeld: another controller leads, also one that has just replaced that file.
            OSError: the file cannot be made.

        """
        self._path = path
        self._beats = 0
        self._file = _locked(path) if instead_of is None else _replaced(path, instead_of.inode)
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
        os.pwrite(self._file, b"%020d %010d\n" % (self._beats, os.getpid()), 0)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._file)


class Beating:
    """The thread that beats for a leader while its event loop turns; `turned` must be called all the time."""

    def __init__(self, lock: StoreLock, clock: Clock = time.monotonic) -> None:
        self._lock = lock
        self._clock = clock
        self._turned = clock()
        self._end = threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="leadership", daemon=True)
        self._thread.start()

    def turned(self) -> None:
        """Record that the event loop has turned.

        Raises:
            OSError: the lock file cannot be written.

        """
        self._turned = self._clock()
        if self._error is not None:
            raise self._error

    def beat(self) -> None:
        """Beat, unless the event loop stands still."""
        if self._clock() - self._turned <= LOOP_SECONDS:
            self._lock.beat()

    def close(self) -> None:
        """End the thread."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._end.wait(BEAT_SECONDS):
                self.beat()
        except OSError as error:
            self._error = error


class Watch:
    """The check of a leader's lock by a standby, every `step` seconds of the standby's clock."""

    def __init__(self, path: Path, step: float, clock: Clock = time.monotonic) -> None:
        self._path = path
        self._step = step
        self._clock = clock
        self._looked = clock()
        self._seen: tuple[int | None, bytes] | None = None
        self._changed = self._looked

    def stalled(self) -> Leader | None:
        """Return the leader if its beat has not changed for `LEASE_SECONDS`."""
        inode = _inode_at(self._path)
        seen = (inode, self._path.read_bytes() if inode is not None else b"")
        looked, now = self._looked, self._clock()
        self._looked = now
        if seen != self._seen or stood_still(looked, now, max(self._step, BEAT_SECONDS)):
            # If this process was not running, the leader on the same machine may not have been running either.
            self._seen, self._changed = seen, now
        if inode is None or now - self._changed <= LEASE_SECONDS:
            return None
        _, *process = seen[1].split() or [b""]
        return Leader(inode, int(process[0]) if process else None)


def end_writer(store: Path, process: int) -> bool:
    """Kill `process`, a stalled leader, if it writes to the store at this moment; return whether it did.

    The caller must not have the store open: a process that closes a descriptor of a file loses its locks on that file.

    Raises:
        TimeoutError: the process does not end, because the kernel waits for a disk on its behalf.
        PermissionError: it belongs to another user.

    """
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return False
    try:
        if _writer(store) != process:
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        end = select.poll()
        end.register(descriptor, select.POLLIN)
        if not end.poll(_END_SECONDS * 1000):
            raise TimeoutError(f"the stalled controller, process {process}, is inside a transaction and does not end")
        return True
    finally:
        os.close(descriptor)


def _writer(store: Path) -> int | None:
    """Return the process that writes to the store, or moves pages from its log, as this process's namespace counts."""
    try:
        file = os.open(store.with_name(f"{store.name}-shm"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, *_WRITER_LOCKS, 0)
        kind, _, _, _, process = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else process
    finally:
        os.close(file)


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
