"""The processes of one group of ranks, and the commands that tell them what to measure.

A group stays while others are measured: its ranks then sleep in a read. So peers alternate within seconds, and each
joins its group once.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from switchml.benchmarks.errors import RankFailed
from switchml.common.processes import last_lines

__all__ = ["Launcher", "RankGroup", "rank_group", "start"]

JOIN_SECONDS: Final = 120.0
TURN_SECONDS: Final = 600.0
_END_SECONDS: Final = 20.0
_KILL_SECONDS: Final = 5.0
_STEP_SECONDS: Final = 0.5  # between two checks whether a process has ended
_READ_BYTES: Final = 1 << 16

Launcher = Callable[[Path, Path], "list[subprocess.Popen[bytes]]"]
"""Start the processes of a group, which connect to the Unix socket of the first path and log to the second one."""


class _Rank:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._rest = b""

    def read_line(self) -> bytes | None:
        """Return the next line, or None until it has arrived. Raises EOFError at the end."""
        data = self.connection.recv(_READ_BYTES)
        if not data:
            raise EOFError
        line, newline, rest = (self._rest + data).partition(b"\n")
        if not newline:
            self._rest = line
            return None
        self._rest = rest
        return line


class RankGroup:
    """The ranks of one group, in the order of their ranks. Created by `rank_group`."""

    def __init__(self, name: str, processes: Sequence[subprocess.Popen[bytes]], log: Path) -> None:
        self.name = name
        self._processes = processes
        self._log = log
        self._ranks: list[_Rank] = []
        self.failed = False

    def command(self, line: str, seconds: float = TURN_SECONDS) -> list[dict[str, Any]]:
        """Send a command to all ranks; return their answers by rank. Raises RankFailed."""
        self.send(line)
        return self._answers(time.monotonic() + seconds, line)

    def send(self, line: str) -> None:
        """Send a command to all ranks without waiting for answers. Raises RankFailed."""
        try:
            for rank in self._ranks:
                rank.connection.sendall(f"{line}\n".encode("ascii"))
        except OSError as error:
            raise self._failure(f"cannot be told `{line}`: {error.strerror}") from error

    def _answers(self, deadline: float, line: str) -> list[dict[str, Any]]:
        answers: dict[int, dict[str, Any]] = {}
        with selectors.DefaultSelector() as selector:
            for number, rank in enumerate(self._ranks):
                selector.register(rank.connection, selectors.EVENT_READ, number)
            while len(answers) < len(self._ranks):
                for key, _ in selector.select(_STEP_SECONDS):
                    number = key.data
                    try:
                        answer = self._ranks[number].read_line()
                    except (EOFError, OSError) as error:
                        raise self._failure(f"rank {number} closed its connection during `{line}`") from error
                    if answer is None:
                        continue
                    selector.unregister(key.fileobj)
                    answers[number] = json.loads(answer)
                    if "error" in answers[number]:
                        raise self._failure(f"rank {number}, `{line}`: {answers[number]['error']}")
                if time.monotonic() >= deadline:
                    missing = ", ".join(str(number) for number in range(len(self._ranks)) if number not in answers)
                    raise self._failure(f"ranks {missing} did not answer `{line}` in time")
        return [answers[number] for number in range(len(self._ranks))]

    def join(self, listener: socket.socket, world_size: int) -> None:
        """Wait until all ranks have connected and identified themselves."""
        deadline = time.monotonic() + JOIN_SECONDS
        unordered: list[_Rank] = []
        listener.settimeout(_STEP_SECONDS)
        try:
            while len(unordered) < world_size:
                with contextlib.suppress(TimeoutError):
                    unordered.append(_Rank(listener.accept()[0]))
                ended = [process for process in self._processes if process.poll() is not None]
                if ended and len(unordered) < world_size:
                    raise self._failure(f"a process ended with status {ended[0].returncode} before it joined")
                if time.monotonic() >= deadline:
                    raise self._failure(f"{world_size - len(unordered)} of {world_size} ranks did not join in time")
            self._ranks = unordered
            ranks = [answer["rank"] for answer in self._answers(deadline, "join")]
            if sorted(ranks) != list(range(world_size)):
                raise self._failure(f"ranks {ranks} joined instead of 0 to {world_size - 1}")
            self._ranks = [rank for _, rank in sorted(zip(ranks, unordered, strict=True), key=lambda pair: pair[0])]
        except BaseException:
            self._ranks = unordered
            raise

    def end(self) -> None:
        """Let all ranks leave their group and wait for their ends. Raises RankFailed."""
        self.send("end")
        deadline = time.monotonic() + _END_SECONDS
        for process in self._processes:
            try:
                status = process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired as error:
                raise self._failure(f"process {process.pid} does not end") from error
            if status != 0:
                raise self._failure(f"process {process.pid} ended with status {status}")

    def kill(self) -> None:
        """End the remaining processes: first in order, so that mpirun ends its ranks, and then by force."""
        for rank in self._ranks:
            rank.connection.close()
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + _KILL_SECONDS
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        self._signal(signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def _signal(self, number: int) -> None:
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)

    def _failure(self, what: str) -> RankFailed:
        self.failed = True
        lines = "".join(f"\n  {line}" for line in last_lines(self._log, 12))
        return RankFailed(f"{self.name}: {what}.\nThe end of its output:{lines or ' (none)'}")


@contextlib.contextmanager
def rank_group(name: str, world_size: int, directory: Path, launch: Launcher) -> Iterator[RankGroup]:
    """Yield a group that `launch` starts, with its socket and log in `directory`. Raises RankFailed.

    Its processes are ended with the context.

    Every process leads a new session, so that it has a separate autogroup (`take_share`).
    """
    path, log = directory / f"{name}.sock", directory / f"{name}.log"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(world_size)
        group = RankGroup(name, launch(path, log), log)
        try:
            group.join(listener, world_size)
            yield group
            if not group.failed:
                group.end()
        finally:
            group.kill()
            path.unlink(missing_ok=True)


def start(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process of a group, its output appended to `log`. Raises RankFailed."""
    with log.open("ab") as output:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=dict(environment),
                cwd=log.parent,  # `python -m` searches there first, and it holds no modules
            )
        except OSError as error:
            raise RankFailed(f"{command[0]} cannot be started: {error.strerror}") from error
