"""The connection of one rank to the agent on this host: a SEQPACKET socket, and one JSON object in each message.

A control thread watches the socket and the native code's attention descriptor. It does not keep a communicator alive.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from switchml.client.errors import ConnectError
from switchml.common.peer_credentials import peer_credentials

__all__ = ["AgentConnection", "Attachment", "JobFailure", "attach"]

MESSAGE_BYTES: Final = 64 * 1024  # of an answer or event, which may name all ranks of a job
_VERDICT_SECONDS: Final = 10.0  # for the controller to compare the calls of all ranks after a failed check
_LOSS_CHARACTERS: Final = 500
_SEND_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Attachment:
    """The job and the rank that this process is attached to, as the agent described them."""

    job_id: int
    name: str
    epoch: int
    rank: int
    world_size: int
    check_key: bytes = field(repr=False)  # of the epoch, which only its ranks and their agents know
    generation: int = 0
    joined: tuple[int, ...] = ()  # ranks whose processes are new in this epoch
    on_failure: str = "abort"
    priority: int = 0


@dataclass(frozen=True)
class JobFailure:
    """The reason why the job cannot continue, as the agent reported it."""

    error: str
    ranks: tuple[int, ...]
    message: str


OnClosed = Callable[[tuple[int, ...], int], None]
"""Learns that ranks have closed, and after how many calls."""

OnMove = Callable[[Attachment, Sequence[int], JobFailure], "int | None"]
"""Changes to another epoch after the loss of ranks; returns the new attention descriptor."""


def attach(
    path: Path, request: Mapping[str, object], timeout: float
) -> tuple[AgentConnection, Attachment, tuple[int, ...]]:
    """Connect to the agent at `path` and attach as `request` says.

    Returns:
        The connection, the attachment, and descriptors that the caller closes: the rank's shared memory, the doorbell
        and, if a switch on this host shares that memory, the results of the job.

    Raises:
        ConnectError: no agent answers there within `timeout` seconds, it belongs to another user, or it refuses.

    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    descriptors: list[int] = []
    try:
        sock.settimeout(timeout)
        _connect(sock, path)
        try:
            sock.send(json.dumps(request).encode(), socket.MSG_NOSIGNAL)
            data, descriptors, flags, _ = socket.recv_fds(sock, MESSAGE_BYTES + 1, 3, socket.MSG_CMSG_CLOEXEC)
        except TimeoutError as error:
            raise ConnectError(
                f"the agent at {path} did not answer within {timeout:g} s; it may be suspended: see its log"
            ) from error
        except OSError as error:
            raise ConnectError(f"the agent at {path} ended the connection: {error.strerror}; see its log") from error
        if not data:
            raise ConnectError(f"the agent at {path} closed the connection without an answer; see its log")
        answer = _parse(data)
        if answer.get("type") == "refused":
            raise ConnectError(str(answer.get("message")), str(answer.get("error")))
        attachment = _attachment(answer)
        if attachment is None or len(descriptors) not in (2, 3) or flags & socket.MSG_CTRUNC:
            raise ConnectError(
                f"the program that listens at {path} does not answer like an agent; "
                "check SWITCHML_AGENT, and that this process may open more files (ulimit -n)"
            )
    except BaseException:
        sock.close()
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    sock.settimeout(_SEND_SECONDS)
    return AgentConnection(sock), attachment, tuple(descriptors)


def _connect(sock: socket.socket, path: Path) -> None:
    try:
        sock.connect(os.fspath(path))
    except FileNotFoundError as error:
        raise ConnectError(
            f"there is no agent socket at {path}; start an agent on this host (`switchml-ctl up`, or "
            "`switchml-agent --socket ...`), or correct SWITCHML_AGENT or SWITCHML_RUN_DIR"
        ) from error
    except PermissionError as error:
        raise ConnectError(
            f"the agent socket {path} may not be opened by user {os.geteuid()}; "
            "an agent serves the user that it runs as: run this process, or the agent, as that user"
        ) from error
    except TimeoutError as error:
        raise ConnectError(
            f"the agent at {path} does not accept connections; it may be suspended: see its log"
        ) from error
    except OSError as error:
        what = "its agent has ended" if isinstance(error, ConnectionRefusedError) else str(error)
        raise ConnectError(f"the agent socket {path} cannot be used: {what}; start the agent again") from error
    _require_own(sock, path)


def _require_own(sock: socket.socket, path: Path) -> None:
    """Check, before anything is sent, that this user or root listens at `path`, because the agent gets the tensors.

    Raises:
        ConnectError: another user listens there.

    """
    owner = peer_credentials(sock).uid
    if owner not in (os.geteuid(), 0):
        raise ConnectError(
            f"user {owner} listens at the agent socket {path}, but this process is run by user {os.geteuid()}: nothing "
            "was sent; an agent serves the user that it runs as, so start one as this user, or correct SWITCHML_AGENT"
        )


def _parse(data: bytes) -> dict[str, Any]:
    """Return the message, or {} if the bytes are not a message."""
    try:
        message = json.loads(data) if len(data) <= MESSAGE_BYTES else None
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _attachment(answer: dict[str, Any]) -> Attachment | None:
    numbers = [answer.get(key) for key in ("job_id", "epoch", "rank", "world_size", "generation", "priority")]
    name = answer.get("name")
    if answer.get("type") not in ("attached", "moved") or not isinstance(name, str):
        return None
    if any(type(number) is not int for number in numbers):
        return None
    job_id, epoch, rank, world_size, generation, priority = (int(n) for n in numbers if n is not None)
    try:
        check_key = bytes.fromhex(str(answer.get("check_key")))
    except ValueError:
        return None
    joined, on_failure = _ranks(answer, "joined"), str(answer.get("on_failure"))
    return Attachment(job_id, name, epoch, rank, world_size, check_key, generation, joined, on_failure, priority)


def _ranks(message: dict[str, Any], key: str = "ranks") -> tuple[int, ...]:
    ranks = message.get(key)
    return tuple(r for r in ranks if type(r) is int) if isinstance(ranks, list) else ()


class AgentConnection:
    """The connection of an attached rank. If it ends without `close`, the agent reports the rank as lost."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread: threading.Thread | None = None
        self._ends_itself = False  # the control thread closed this connection, and must not wait for its own end
        self._closed = threading.Event()  # the agent confirmed the close
        self._asking = threading.Lock()  # one question about missing ranks at a time
        self._answered = threading.Event()
        self._missing: tuple[int, ...] = ()

    def start(
        self,
        attention_fd: int,
        on_failure: Callable[[JobFailure], None],
        on_attention: Callable[[], None],
        on_closed: OnClosed,
        on_move: OnMove,
    ) -> None:
        """Start the control thread, which calls `on_failure`, `on_attention`, `on_closed` and, for an epoch, `on_move`.

        The callbacks must not keep the owner of this connection alive.
        """
        self._thread = threading.Thread(
            target=self._listen,
            args=(attention_fd, on_failure, on_attention, on_closed, on_move),
            name="switchml-control",
            daemon=True,
        )
        self._thread.start()

    def check_failed(self, position: int, call: Mapping[str, object]) -> None:
        """Tell the agent that the result at stream `position` does not fit this rank's `call`."""
        self._send({"type": "check_failed", "position": position, "call": call})

    def missing(self, timeout: float) -> tuple[int, ...]:
        """Return the ranks that the others wait for; empty if the agent does not know them within `timeout` seconds."""
        with self._asking:
            self._answered.clear()
            self._missing = ()
            if self._send({"type": "missing"}):
                self._answered.wait(timeout)
            return self._missing

    def close(self, epoch: int, calls: int, loss: str) -> None:
        """End the connection after this number of calls in `epoch`; with a `loss`, report this rank as lost."""
        message: dict[str, object] = {"type": "close", "epoch": epoch, "calls": calls}
        if loss:
            message["loss"] = "".join(c if c.isprintable() else " " for c in loss[:_LOSS_CHARACTERS])
        self._ends_itself = threading.current_thread() is self._thread
        if self._send(message) and self._thread is not None and not self._ends_itself:
            self._closed.wait(_CLOSE_SECONDS)
        os.eventfd_write(self._wake, 1)
        if self._ends_itself:
            return
        if self._thread is not None:
            self._thread.join()
        self._close_descriptors()

    def disown(self) -> None:
        """Close a forked child's copy of the socket, which would hide the parent's death from the agent."""
        self._sock.close()

    def _close_descriptors(self) -> None:
        if self._wake >= 0:
            os.close(self._wake)
            self._wake = -1
            self._sock.close()

    def _send(self, message: Mapping[str, object]) -> bool:
        """Send a message and return whether that worked. If not, the agent has ended; the control thread notices."""
        with contextlib.suppress(OSError):
            self._sock.send(json.dumps(message).encode(), socket.MSG_NOSIGNAL)
            return True
        return False

    def _listen(
        self,
        attention_fd: int,
        on_failure: Callable[[JobFailure], None],
        on_attention: Callable[[], None],
        on_closed: OnClosed,
        on_move: OnMove,
    ) -> None:
        poll = select.poll()
        for descriptor in (self._sock.fileno(), self._wake, attention_fd):
            poll.register(descriptor, select.POLLIN)
        verdict_due: float | None = None
        while True:
            wait = None if verdict_due is None else max(0.0, verdict_due - time.monotonic()) * 1000
            ready = {descriptor for descriptor, _ in poll.poll(wait)}
            if self._wake in ready:
                break
            if attention_fd in ready:
                poll.unregister(attention_fd)  # the callback is called only once
                on_attention()
                verdict_due = time.monotonic() + _VERDICT_SECONDS
            if self._sock.fileno() in ready:
                message, descriptors = self._receive()
                kind = message.get("type")
                if kind == "missing":
                    self._missing = _ranks(message)
                    self._answered.set()
                elif kind == "closed":
                    self._closed.set()
                    poll.unregister(self._sock)  # the agent closes the connection next
                elif kind == "ranks_closed" and type(message.get("calls")) is int:
                    on_closed(_ranks(message), int(message["calls"]))
                elif kind == "moved":
                    with contextlib.suppress(KeyError):  # it is unregistered already if a check failed
                        poll.unregister(attention_fd)
                    verdict_due = None
                    moved = _moved(message, descriptors, on_move)
                    if isinstance(moved, JobFailure):
                        on_failure(moved)
                    elif moved is not None:
                        attention_fd = moved
                        poll.register(attention_fd, select.POLLIN)
                else:
                    verdict_due = None
                    on_failure(_failure(message))
                    if kind != "failed":
                        self._closed.set()
                        poll.unregister(self._sock)
            if verdict_due is not None and time.monotonic() >= verdict_due:
                verdict_due = None
                on_failure(JobFailure("IntegrityError", (), f"no verdict came within {_VERDICT_SECONDS:g} s"))
        if self._ends_itself:
            self._close_descriptors()

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._sock, MESSAGE_BYTES + 1, 3, socket.MSG_CMSG_CLOEXEC)
            return _parse(data), descriptors
        except OSError:
            return {}, []


def _moved(message: dict[str, Any], descriptors: list[int], on_move: OnMove) -> int | JobFailure | None:
    """Change to another epoch.

    Returns:
        The attention descriptor of the new epoch, None if the communicator no longer exists, or the reason why the
        change failed.

    """
    loss = JobFailure("WorldChanged", _ranks(message, "lost"), str(message.get("message")))
    attachment = _attachment(message)
    try:
        if attachment is None or len(descriptors) not in (2, 3):
            return JobFailure("AgentLost", (), "the agent's message about the new epoch is malformed")
        return on_move(attachment, descriptors, loss)
    except (OSError, ValueError) as error:
        return JobFailure("AgentLost", (), f"the memory of the new epoch cannot be used: {error}")
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _failure(message: dict[str, Any]) -> JobFailure:
    if message.get("type") in ("failed", "refused"):
        return JobFailure(str(message.get("error")), _ranks(message), str(message.get("message")))
    return JobFailure("AgentLost", (), "the agent on this host ended without a message, or is of another version")
