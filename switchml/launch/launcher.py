"""Run a command once per worker: one log per rank, signals forwarded, and the first failure ends the others."""

import contextlib
import dataclasses
import errno
import fcntl
import os
import queue
import selectors
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import FrameType
from typing import BinaryIO, Final, TypeAlias

from switchml.common.errors import CommandNotExecutableError, CommandNotFoundError
from switchml.common.open_files import require_open_files

__all__ = ["Consequence", "Launch", "LaunchObserver", "check_command", "run_workers"]

GRACE_SECONDS: Final = 5.0
DECISION_SECONDS: Final = 30.0  # for decisions about failed workers when no worker is left
_FILES_OF_WORKER: Final = 3
_OTHER_FILES: Final = 64
_READ_BYTES: Final = 65536
_LONGEST_LINE: Final = 65536
_PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM)


Consequence: TypeAlias = Mapping[str, str] | bool
"""The consequence of a worker's failure: an environment with which it is restarted, or whether the others continue."""


@dataclasses.dataclass(frozen=True)
class Launch:
    """The outcome of all workers. Exit codes are those of a shell: 128 + n for signal n.

    For a restarted worker, it is the outcome of its last process.
    """

    exit_codes: tuple[int, ...]
    failed: tuple[int, ...]  # the ranks that failed, in the order of their ends
    interrupted: int | None  # the signal that this process received and forwarded


class LaunchObserver:
    """Observes the workers of a launch; the methods of this class ignore what they are told, and end the others.

    They are called in the thread of `run_workers`, and should be quick.
    """

    def output(self, rank: int, line: bytes) -> None:
        """Called for each line that a worker writes, without its line end."""

    def ended(self, rank: int, exit_code: int) -> None:
        """Called when a worker's process has ended."""

    def interrupted(self, number: int) -> None:
        """Called when this process has received a first SIGINT or SIGTERM, before that is forwarded."""

    def failed(self, rank: int, exit_code: int) -> Future[Consequence] | None:  # noqa: ARG002
        """Return the future of the decision about a rank that has failed; None to end the others."""
        return None


def check_command(command: str, path: str | None = None) -> str:
    """Return the program that `command` names, as a shell would find it on `path` (default: $PATH).

    Raises CommandNotFoundError and CommandNotExecutableError.
    """
    found = shutil.which(command, path=path)
    if found is not None:
        return found
    if os.sep in command:
        place = Path(command)
        if place.is_dir():
            raise CommandNotExecutableError(f"{command} is a directory, not a program")
        if place.exists():
            raise CommandNotExecutableError(f"{command} is not executable; change that with `chmod +x {command}`")
        raise CommandNotFoundError(f"{command} does not exist")
    raise CommandNotFoundError(f"{command} is not on PATH")


class _Worker:
    """One rank's process, its output and the unfinished last line."""

    def __init__(
        self, rank: int, command: Sequence[str], environment: Mapping[str, str], log: Path, again: bool = False
    ) -> None:
        self.rank = rank
        self.log: BinaryIO = log.open("ab" if again else "wb", buffering=0)
        # A program that follows the log may hold the lock at this moment, and then misses the end.
        with contextlib.suppress(OSError):
            fcntl.flock(self.log, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self.log_fails = False
        self.rest = b""
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                # So that signals reach it only once, from this process, and through its group its children.
                start_new_session=True,
            )
            self.pidfd = os.pidfd_open(self.process.pid)
        except BaseException:
            self.log.close()
            raise
        assert self.process.stdout is not None
        self.pipe = self.process.stdout.fileno()
        os.set_blocking(self.pipe, False)

    def read(self, emit: Callable[[int, bytes], None]) -> bool:
        """Process what is in the pipe; return False at its end."""
        try:
            data = os.read(self.pipe, _READ_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        self._take(data, emit)
        return True

    def drain(self, emit: Callable[[int, bytes], None]) -> None:
        """Read the remaining output; a grandchild that keeps the pipe open is not waited for."""
        with contextlib.suppress(BlockingIOError):
            while True:
                data = os.read(self.pipe, _READ_BYTES)
                if not data:
                    break
                self._take(data, emit)
        if self.rest:
            emit(self.rank, self.rest)
            self.rest = b""

    def _keep(self, data: bytes, emit: Callable[[int, bytes], None]) -> None:
        """Write data to the log; a failure is reported but does not end the job."""
        try:
            while data:
                data = data[self.log.write(data) :]
        except OSError as error:
            if not self.log_fails:
                text = f"switchml-ctl: output is missing in {self.log.name}: {error.strerror}"
                emit(self.rank, text.encode(errors="replace"))
            self.log_fails = True
        else:
            self.log_fails = False

    def _take(self, data: bytes, emit: Callable[[int, bytes], None]) -> None:
        self._keep(data, emit)
        *lines, self.rest = (self.rest + data).split(b"\n")
        if len(self.rest) > _LONGEST_LINE:
            lines, self.rest = [*lines, self.rest], b""
        for line in lines:
            emit(self.rank, line)

    def signal(self, number: int) -> None:
        """Send a signal to the process and its descendants in its session's first group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def close(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.close()
        os.close(self.pidfd)


@contextlib.contextmanager
def _wake_ups() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield a socket that wakes a selector, and the one to write to for that.

    In the main thread, the numbers of SIGINT and SIGTERM are written to it.
    """
    receiver, sender = socket.socketpair()
    receiver.setblocking(False)
    sender.setblocking(False)
    with receiver, sender, _signals_to(sender):
        yield receiver, sender


@contextlib.contextmanager
def _signals_to(sender: socket.socket) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ignore(_number: int, _frame: FrameType | None) -> None:
        pass

    before = {number: signal.signal(number, ignore) for number in _PASSED_ON}
    wakeup = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)


def run_workers(
    command: Sequence[str],
    environments: Sequence[Mapping[str, str]],
    log_directory: Path,
    observer: LaunchObserver,
) -> Launch:
    """Run `command` once with each environment (rank = its index) and wait until all have ended.

    Output goes to `log_directory`/rank-N.log and to the observer. The first rank that fails ends the others: they have
    5 s to notice by themselves, then get SIGTERM and 5 s later SIGKILL. However, the observer may decide about it: True
    lets the others continue, and an environment restarts the command as that rank. Until then the others continue; a
    decision that is not made within 30 s after the end of the last worker is not waited for. A first SIGINT or SIGTERM
    to this process is forwarded to all; a second one kills them.

    Raises CommandNotExecutableError if the kernel refuses the program, StartError if the ranks need more open files
    than are allowed, OSError if it refuses a process.
    """

    def start(rank: int, environment: Mapping[str, str], again: bool = False) -> _Worker:
        return _Worker(rank, command, environment, log_directory / f"rank-{rank}.log", again)

    require_open_files(_OTHER_FILES + _FILES_OF_WORKER * len(environments), f"a launch of {len(environments)} ranks")
    with _wake_ups() as (receiver, sender):
        group = _Group(observer, start, _Decisions(sender))
        try:
            for rank, environment in enumerate(environments):
                group.add(start(rank, environment))
        except OSError as error:
            group.kill()
            if error.errno == errno.ENOEXEC:
                raise CommandNotExecutableError(
                    f"{command[0]} is not a program that this machine can execute (a script must begin with #!)"
                ) from error
            raise
        except BaseException:
            group.kill()
            raise
        try:
            group.run(receiver)
        except BaseException:
            group.kill()
            raise
    codes = tuple(code for _, code in sorted(group.exit_codes.items()))
    return Launch(codes, tuple(group.failed), group.interrupted)


class _Decisions:
    """The decisions about failed workers, which another thread makes; each wakes the thread that runs the group."""

    def __init__(self, sender: socket.socket) -> None:
        self._sender = sender
        self._made: queue.SimpleQueue[tuple[int, Consequence]] = queue.SimpleQueue()
        self.awaited: set[int] = set()
        """The ranks without a decision."""

    def expect(self, rank: int, decision: Future[Consequence]) -> None:
        self.awaited.add(rank)
        decision.add_done_callback(lambda made: self._add(rank, made.result()))

    def _add(self, rank: int, consequence: Consequence) -> None:
        self._made.put((rank, consequence))
        with contextlib.suppress(OSError):  # it is not waited for any more
            self._sender.send(bytes(1))

    def take(self) -> Iterator[tuple[int, Consequence]]:
        """Yield those that were made and are still awaited."""
        while not self._made.empty():
            rank, consequence = self._made.get()
            if rank in self.awaited:  # otherwise interrupted before
                self.awaited.remove(rank)
                yield rank, consequence


class _Group:
    """All ranks of one launch."""

    def __init__(
        self,
        observer: LaunchObserver,
        start: Callable[[int, Mapping[str, str], bool], _Worker],
        decisions: _Decisions,
    ) -> None:
        self._observer = observer
        self._start = start
        self._decisions = decisions
        self._workers: dict[int, _Worker] = {}
        self._selector = selectors.DefaultSelector()
        self._ending = False
        self._last_end = 0.0  # the time of the latest end of a worker
        self._escalation: list[tuple[float, int]] = []  # (time, signal), soonest first
        self.exit_codes: dict[int, int] = {}
        self.failed: list[int] = []
        self.interrupted: int | None = None

    def add(self, worker: _Worker) -> None:
        self._workers[worker.rank] = worker
        self.exit_codes[worker.rank] = 0
        self._selector.register(worker.pipe, selectors.EVENT_READ, worker)
        self._selector.register(worker.pidfd, selectors.EVENT_READ, worker)

    def run(self, receiver: socket.socket) -> None:
        self._selector.register(receiver, selectors.EVENT_READ)
        with self._selector:
            while self._workers or self._decisions.awaited:
                for key, _ in self._selector.select(self._timeout()):
                    worker: _Worker | None = key.data
                    if worker is None:
                        for number in receiver.recv(4096):
                            if number in _PASSED_ON:
                                self._interrupt(number)
                    elif worker.rank not in self._workers:
                        pass  # ended while this round's events were handled
                    elif key.fd == worker.pidfd:
                        self._end(worker)
                    elif not worker.read(self._observer.output):
                        self._selector.unregister(worker.pipe)
                for rank, consequence in self._decisions.take():
                    self._follow(rank, consequence)
                while self._escalation and time.monotonic() >= self._escalation[0][0]:
                    self._signal(self._escalation.pop(0)[1])
                if not self._workers and time.monotonic() >= self._last_end + DECISION_SECONDS:
                    return

    def _timeout(self) -> float | None:
        """Return the time until something must be done although nothing happens."""
        if not self._workers:
            return max(0.0, self._last_end + DECISION_SECONDS - time.monotonic())
        return max(0.0, self._escalation[0][0] - time.monotonic()) if self._escalation else None

    def kill(self) -> None:
        for worker in self._workers.values():
            worker.signal(signal.SIGKILL)
            worker.process.wait()
            worker.close()
        self._workers.clear()
        self._selector.close()

    def _signal(self, number: int) -> None:
        for worker in self._workers.values():
            worker.signal(number)

    def _interrupt(self, number: int) -> None:
        if self.interrupted is not None:
            self._signal(signal.SIGKILL)
            return
        self.interrupted = number
        self._decisions.awaited.clear()
        self._observer.interrupted(number)
        self._signal(number)

    def _end(self, worker: _Worker) -> None:
        status = worker.process.wait()
        exit_code = status if status >= 0 else 128 - status
        worker.drain(self._observer.output)
        with contextlib.suppress(KeyError):  # its pipe has ended before
            self._selector.unregister(worker.pipe)
        self._selector.unregister(worker.pidfd)
        worker.close()
        del self._workers[worker.rank]
        self._last_end = time.monotonic()
        self.exit_codes[worker.rank] = exit_code
        self._observer.ended(worker.rank, exit_code)
        if exit_code == 0:
            return
        self.failed.append(worker.rank)
        if self._ending or self.interrupted is not None:
            return
        decision = self._observer.failed(worker.rank, exit_code)
        if decision is None:
            self._end_all()
        else:
            self._decisions.expect(worker.rank, decision)

    def _follow(self, rank: int, consequence: Consequence) -> None:
        if not consequence:
            self._end_all()
        elif isinstance(consequence, Mapping) and not self._ending:
            self.add(self._start(rank, consequence, True))

    def _end_all(self) -> None:
        """Give the other workers time to end by themselves, then end them."""
        now = time.monotonic()
        self._ending = True
        self._decisions.awaited.clear()
        self._escalation = [(now + GRACE_SECONDS, signal.SIGTERM), (now + 2 * GRACE_SECONDS, signal.SIGKILL)]
