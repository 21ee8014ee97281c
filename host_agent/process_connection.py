"""The connection of one training process, from its attachment to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Sequence
from typing import Final, Protocol

from switchml.common.deadline import within
from switchml.common.peer_credentials import peer_credentials
from switchml.common.version import VERSION, same_release
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto.words import enum_word
from switchml.host_agent.attachments import Attachments
from switchml.host_agent.errors import AttachRefused, BadMessage
from switchml.host_agent.local_job import LocalJob, LocalRank
from switchml.host_agent.messages import (
    MESSAGE_BYTES,
    Attach,
    CheckFailed,
    Close,
    JobFailure,
    Missing,
    RanksClosed,
    encode,
    parse,
)

__all__ = ["ControllerSession", "ProcessConnection"]

_log = logging.getLogger(__name__)

_ATTACH_SECONDS: Final = 5.0  # from the connection to the request for a rank


class ControllerSession(Protocol):
    """The session with the controller, as far as processes need it."""

    async def missing_ranks(self, job: LocalJob, rank: int) -> list[int]:
        """Return the ranks that block `rank` of `job`."""

    async def delivered(self) -> None:
        """Wait until the controller has acted on all reports."""


class ProcessConnection:
    """Serve one process. It never blocks on sending: a process that does not read its answers is disconnected."""

    def __init__(self, sock: socket.socket, attachments: Attachments, session: ControllerSession) -> None:
        self._socket = sock
        self._attachments = attachments
        self._session = session
        self._pid, self._uid, _ = peer_credentials(sock)
        self._job: LocalJob | None = None
        self._number = 0  # of the rank that it has or had
        self._rank: LocalRank | None = None  # while it is attached and its job lives

    @property
    def pid(self) -> int:
        """The process id, as the kernel reports it."""
        return self._pid

    def fail(self, failure: JobFailure) -> None:
        """Tell the process that its job has ended, or refuse its request if it has no rank yet."""
        if self._rank is not None:
            self._rank = None
            self._send(failure.to_message())

    def ranks_closed(self, closed: RanksClosed) -> None:
        """Tell the process that other ranks have closed; one that attaches now is told after that."""
        if self._rank is not None:
            self._send(closed.to_message())

    def move(self, job: LocalJob, rank: LocalRank, descriptors: Sequence[int]) -> None:
        """Tell the process that it is `rank` in a new epoch of its job."""
        self._job, self._rank, self._number = job, rank, rank.rank
        succession = job.assignment.succession
        message = self._description("moved", job, rank)
        message |= {"lost": list(succession.lost), "message": succession.message}
        self._send(message, descriptors)

    def refuse(self, error: str, message: str) -> None:
        """Report why the request fails, and disconnect."""
        self._send({"type": "refused", "error": error, "message": message})
        self._socket.close()

    async def serve(self) -> None:
        """Serve the process until it closes or disconnects; a disconnection is reported to the controller at once."""
        try:
            if self._uid not in (os.geteuid(), 0):
                self.refuse(
                    "BadRequest", f"the agent serves user {os.geteuid()}; this process belongs to user {self._uid}"
                )
                return
            await self._attach()
            await self._converse()
        except AttachRefused as refused:
            _log.info("process %d was refused: %s", self._pid, refused)
            self.refuse(refused.error, str(refused))
        except BadMessage as bad:
            _log.warning("process %d was disconnected: %s", self._pid, bad)
            self.refuse("BadRequest", str(bad))
        except OSError as error:
            _log.info("connection of process %d: %s", self._pid, error)
        finally:
            self._socket.close()
            self._detach(f"process {self._pid} ended without closing its communicator")

    async def _attach(self) -> None:
        try:
            data = await within(_ATTACH_SECONDS, self._receive())
        except asyncio.TimeoutError:
            raise BadMessage(f"no attach message came within {_ATTACH_SECONDS:g} s") from None
        if not data:
            raise BrokenPipeError("the process closed its connection without asking for a rank")
        request = parse(data)
        if not isinstance(request, Attach):
            raise BadMessage("the first message must be attach")
        if not same_release(request.version):
            raise AttachRefused(
                "VersionMismatch",
                f"this process has switchml {request.version} and the agent {VERSION}; "
                "install the same MAJOR.MINOR for both",
            )
        if request.create:
            attached = await self._attach_created(request)
        else:
            attached = await self._attachments.attach(request, self)
        self._job, self._rank, descriptors = attached
        self._number = self._rank.rank
        self._send(self._description("attached", self._job, self._rank), descriptors)
        if self._job.closed is not None:
            self.ranks_closed(self._job.closed)

    def _description(self, kind: str, job: LocalJob, rank: LocalRank) -> dict[str, object]:
        assignment = job.assignment
        return {
            "type": kind,
            "job_id": assignment.job,
            "name": assignment.name,
            "epoch": assignment.epoch,
            "rank": rank.rank,
            "world_size": assignment.world_size,
            "slots": assignment.slots,
            "values_per_packet": assignment.values_per_packet,
            "on_failure": enum_word(pb.OnFailure, assignment.on_failure or pb.ON_FAILURE_ABORT).lower(),
            "generation": assignment.generation,
            "priority": assignment.priority,
            "joined": list(assignment.succession.joined),
            "check_key": assignment.check_key.hex(),
            "version": VERSION,
        }

    async def _attach_created(self, request: Attach) -> tuple[LocalJob, LocalRank, tuple[int, ...]]:
        """Wait for the other ranks, and watch whether the process disconnects; it may not send messages."""
        gone = asyncio.ensure_future(self._receive())
        try:
            return await self._attachments.attach_created(request, self, gone)
        finally:
            gone.cancel()
            gone.add_done_callback(_forget_error)

    def _detach(self, loss: str, close: Close | None = None) -> None:
        if self._job is not None and self._rank is not None:
            # A process that closed before it learned of a new epoch has made no call in that.
            known = close is not None and close.epoch == self._job.assignment.epoch
            self._attachments.detach(self._job, self._rank, loss, close.calls if close is not None and known else 0)
            self._rank = None

    async def _converse(self) -> None:
        """Answer messages until the process closes its rank or disconnects."""
        while data := await self._receive():
            request = parse(data)
            if isinstance(request, Close):
                self._detach(request.loss, request)
                await self._session.delivered()  # so that the next job to start finds this one's resources free
                self._send({"type": "closed"})
                return
            if isinstance(request, Missing):
                self._send({"type": "missing", "ranks": await self._find_missing()})
            elif isinstance(request, CheckFailed):
                if self._job is not None and self._rank is not None:
                    self._attachments.report_check(self._job, self._rank, request)
            else:
                raise BadMessage("this connection has its rank; another rank needs another connection")

    async def _find_missing(self) -> list[int]:
        assert self._job is not None  # because it is attached
        # Also after the job has ended: another rank that ran into its timeout a little earlier may have ended it.
        return await self._session.missing_ranks(self._job, self._number)

    async def _receive(self) -> bytes:
        """Return the next message (or the beginning of one that is too long), or b"" at the end of the connection."""
        return await asyncio.get_running_loop().sock_recv(self._socket, MESSAGE_BYTES + 1)

    def _send(self, message: dict[str, object], descriptors: Sequence[int] = ()) -> None:
        """Send a message with descriptors, which are then closed."""
        try:
            socket.send_fds(self._socket, [encode(message)], descriptors, socket.MSG_NOSIGNAL)
        except OSError as error:  # BlockingIOError: the process has not read earlier messages
            _log.info("process %d cannot be told %s: %s", self._pid, message["type"], error)
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def _forget_error(task: asyncio.Future[bytes]) -> None:
    """Retrieve the exception of an abandoned receive; a broken connection shows again later."""
    if not task.cancelled():
        task.exception()
