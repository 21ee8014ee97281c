"""The agent's session with the controller: one gRPC stream, opened again whenever it breaks."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import grpc

from switchml.common.clock import Clock, stood_still
from switchml.common.deadline import within
from switchml.common.grpc_connections import KEEPALIVE_OPTIONS
from switchml.common.tls import CONTROLLER_NAME, Security, TlsError
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto import switchml_pb2_grpc as pb_grpc
from switchml.controller.proto.words import enum_word
from switchml.host_agent.epoch_change import have_reached
from switchml.host_agent.errors import RegistrationRefused
from switchml.host_agent.jobs import Jobs
from switchml.host_agent.local_job import LocalJob
from switchml.host_agent.messages import Failure

__all__ = ["Session", "failure_of"]

_log = logging.getLogger(__name__)

# Generated code has no types.
_AgentsStub: Any = pb_grpc.AgentsStub
_JobsStub: Any = pb_grpc.JobsStub

_WELCOME_SECONDS: Final = 10.0
_FIRST_BACKOFF: Final = 0.1
_LONGEST_BACKOFF: Final = 1.0
# With a standby, an agent must not wait for a stalled controller: a little longer than the standby waits.
_SILENCE_SECONDS: Final = 3.0
_SILENCE_STEP_SECONDS: Final = 0.25
_STANDBY_WELCOME_SECONDS: Final = 2.0
_JOBS_GET_SECONDS: Final = 0.8  # the process that asks waits for 1 s
_FETCH_SECONDS: Final = 2.5  # the controller waits for 3 s
_FETCH_STEP_SECONDS: Final = 0.005
_HEARTBEAT_BOUNDS: Final = (0.05, 60.0)
_DELIVERY_SECONDS: Final = 1.0  # the longest time for which a process that closes its rank waits for the controller

# The controller has understood and refused; the same registration will be refused again.
_FINAL: Final = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
)

_ERRORS: Final = {
    pb.REVOCATION_REASON_JOB_COMPLETED: "JobStopped",
    pb.REVOCATION_REASON_JOB_STOPPED: "JobStopped",
    pb.REVOCATION_REASON_WORKER_LOST: "WorkerLost",
    pb.REVOCATION_REASON_CALL_MISMATCH: "CollectiveMismatch",
    pb.REVOCATION_REASON_INTEGRITY: "IntegrityError",
    pb.REVOCATION_REASON_JOB_FAILED: "JobFailed",
    pb.REVOCATION_REASON_SWITCH_LOST: "SwitchLost",
    pb.REVOCATION_REASON_EPOCH_SPENT: "EpochSpent",
}


def failure_of(revocation: pb.Revocation) -> Failure:
    """Return the failure that the job's processes are told."""
    reason = enum_word(pb.RevocationReason, revocation.reason)
    return Failure(
        _ERRORS.get(revocation.reason, "JobFailed"),
        list(revocation.ranks),
        revocation.message or f"the controller ended the job ({reason.lower().replace('_', ' ')})",
    )


class Session:
    """Keep the agent registered with the controller at `controller`, and carry out its orders.

    `controller` is HOST:PORT or unix:/PATH, or several of these separated by commas: of two controllers only the leader
    answers; `security` protects the connection. When the controller is lost, jobs continue, and the next controller is
    told about them. `clock` measures the controller's silence.
    """

    def __init__(
        self,
        controller: str,
        registration: pb.Register,
        jobs: Jobs,
        security: Security | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._security = security or Security()
        addresses = controller.split(",")
        self._controllers = itertools.cycle(addresses)
        self._controller = next(self._controllers)
        self._has_standby = len(addresses) > 1
        self._welcome_seconds = _STANDBY_WELCOME_SECONDS if self._has_standby else _WELCOME_SECONDS
        self._clock = clock
        self._heard = 0.0  # time of the controller's last message
        self._registration = registration
        self._jobs = jobs
        self._outgoing: asyncio.Queue[pb.AgentMessage] | None = None  # while registered
        self._heartbeats = 0  # number reported on this stream; the controller answers each
        # Numbers of heartbeats without an answer, and the futures that wait for those answers.
        self._unanswered: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._answers = 0
        self._channel: Any = None
        self._quiescing: dict[int, asyncio.Task[None]] = {}  # by job
        self._asking: dict[int, asyncio.Task[dict[int, int]]] = {}  # by job: requests for its ranks' positions
        self.on_registered: Callable[[], None] = lambda: None
        jobs.report = self._report
        jobs.delivered = self.delivered

    async def run(self) -> None:
        """Stay registered until cancelled.

        Raises:
            RegistrationRefused: the controller refuses this agent.

        """
        backoff = _FIRST_BACKOFF
        reported = ""
        while True:
            try:
                # A new channel each time, which reads the certificates again. It shares no connections with others,
                # because shared ones wait longer and longer after failed attempts. Proxies are never used.
                options = [
                    ("grpc.enable_http_proxy", 0),
                    ("grpc.use_local_subchannel_pool", 1),
                    *KEEPALIVE_OPTIONS,
                ]
                async with self._security.aio_channel(self._controller, CONTROLLER_NAME, options) as channel:
                    self._channel = channel
                    await self._converse(channel)
                reason = "it ended the session"
            except grpc.aio.AioRpcError as error:
                if error.code() in _FINAL:
                    raise RegistrationRefused(
                        f"the controller at {self._controller} refused this agent: {error.details()}"
                    ) from error
                reason = f"{error.code().name}: {error.details()}"
            except asyncio.TimeoutError:
                reason = "it does not answer"
            except TlsError as error:
                reason = str(error)
            finally:
                was_registered = self._outgoing is not None
                self._forget_stream()
            if was_registered:
                backoff, reported = _FIRST_BACKOFF, ""
            if reason != reported:
                _log.warning("no controller at %s (%s); trying again", self._controller, reason)
                reported = reason
            self._controller = next(self._controllers)
            await asyncio.sleep(backoff * random.uniform(0.5, 1.0))  # noqa: S311 - spreads agents, guards nothing
            backoff = min(2 * backoff, _LONGEST_BACKOFF)

    @property
    def registered(self) -> bool:
        """True while a controller has accepted the registration."""
        return self._outgoing is not None

    async def missing_ranks(self, job: LocalJob, rank: int) -> list[int]:
        """Return the ranks that block `rank` of `job`; only those of this host while the controller is unreachable."""
        number = job.assignment.job
        if number not in self._asking:
            # All ranks of this host may ask at the same time, and the answer names every rank of the job.
            asking = self._asking[number] = asyncio.create_task(self._positions(number))
            asking.add_done_callback(lambda _: self._asking.pop(number))
        return self._jobs.stalled(job, rank, await asyncio.shield(self._asking[number]))

    async def _positions(self, job: int) -> dict[int, int]:
        """Ask the controller for the positions of a job's ranks; return none if it does not answer."""
        if self._channel is None:
            return {}
        try:
            answer = await _JobsStub(self._channel).Get(pb.JobReference(id=job), timeout=_JOBS_GET_SECONDS)
        except grpc.aio.AioRpcError:
            return {}
        return {rank.rank: rank.position for rank in answer.ranks}

    def _report(self, message: pb.AgentMessage) -> None:
        if self._outgoing is not None:
            self._heartbeats += message.HasField("heartbeat")
            self._outgoing.put_nowait(message)

    async def delivered(self) -> None:
        """Wait until the controller has acted on all reports, for a limited time, unless it is unreachable."""
        if self._outgoing is None:
            return
        self._beat()
        answered = asyncio.get_running_loop().create_future()
        self._unanswered.append((self._heartbeats, answered))
        await asyncio.wait({answered}, timeout=_DELIVERY_SECONDS)

    def _note_answer(self) -> None:
        """Wake the waiters of the answers that have arrived; the controller handles messages in order."""
        self._answers += 1
        while self._unanswered and self._unanswered[0][0] <= self._answers:
            _, answered = self._unanswered.popleft()
            if not answered.done():
                answered.set_result(None)

    def _forget_stream(self) -> None:
        """Reset the heartbeat count: heartbeats without an answer on an ended stream are never answered."""
        self._outgoing, self._channel = None, None
        self._heartbeats = self._answers = 0
        while self._unanswered:
            _, answered = self._unanswered.popleft()
            if not answered.done():
                answered.set_result(None)

    async def _converse(self, channel: Any) -> None:
        """Register and serve one stream until it ends."""
        call = _AgentsStub(channel).Session()
        try:
            await within(self._welcome_seconds, self._register(call))
            welcome = await within(self._welcome_seconds, call.read())
            if welcome is grpc.aio.EOF:
                await _raise_status(call)
                return
            period = welcome.welcome.heartbeat_seconds
            if welcome.WhichOneof("message") != "welcome" or not math.isfinite(period):
                raise RegistrationRefused(f"the server at {self._controller} is not a switchml controller")
            period = min(max(period, _HEARTBEAT_BOUNDS[0]), _HEARTBEAT_BOUNDS[1])
            _log.info("registered as %s with %s", self._registration.name, self._controller)
            self._outgoing = asyncio.Queue()
            for message in self._jobs.summary():
                self._outgoing.put_nowait(message)
            self.on_registered()
            tasks = [
                asyncio.create_task(self._write(call, self._outgoing)),
                asyncio.create_task(self._beat_steadily(self._outgoing, period)),
                asyncio.create_task(self._read(call)),
            ]
            if self._has_standby:
                tasks.append(asyncio.create_task(self._watch()))
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                tasks += self._quiescing.values()
                self._quiescing.clear()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            for task in done:
                task.result()
            await _raise_status(call)
        finally:
            call.cancel()

    async def _register(self, call: Any) -> None:
        try:
            await call.write(pb.AgentMessage(register=self._registration))
        except asyncio.InvalidStateError:
            await _raise_status(call)

    async def _write(self, call: Any, outgoing: asyncio.Queue[pb.AgentMessage]) -> None:
        with contextlib.suppress(asyncio.InvalidStateError):  # the stream has ended; its status gives the reason
            while True:
                await call.write(await outgoing.get())

    async def _beat_steadily(self, outgoing: asyncio.Queue[pb.AgentMessage], period: float) -> None:
        while True:
            if outgoing.empty():  # otherwise the controller is slower than this agent, and the next heartbeat suffices
                self._beat()
            await asyncio.sleep(period)

    def _beat(self) -> None:
        self._report(pb.AgentMessage(heartbeat=pb.Heartbeat(ranks=self._jobs.statuses())))

    async def _watch(self) -> None:
        """Raise asyncio.TimeoutError once the controller has answered no heartbeat for too long."""
        self._heard = before = self._clock()
        while True:
            await asyncio.sleep(_SILENCE_STEP_SECONDS)
            now = self._clock()
            if stood_still(before, now, _SILENCE_STEP_SECONDS):
                self._heard = now  # this process was suspended, so it could not receive anything
            elif now - self._heard > _SILENCE_SECONDS:
                raise asyncio.TimeoutError
            before = now

    async def _read(self, call: Any) -> None:
        while (message := await call.read()) is not grpc.aio.EOF:
            self._heard = self._clock()
            kind = message.WhichOneof("message")
            if kind == "alive":
                self._note_answer()
            elif kind == "assignment":
                self._jobs.assign(message.assignment)
            elif kind == "activation":
                self._jobs.activate(message.activation)
            elif kind == "revocation":
                self._jobs.revoke(message.revocation, failure_of(message.revocation))
            elif kind == "ranks_closed":
                self._jobs.ranks_closed(message.ranks_closed)
            elif kind == "pause":
                self._jobs.pause(message.pause)
            elif kind == "rendezvous_refusal":
                self._jobs.refuse(message.rendezvous_refusal)
            elif kind == "rendezvous_return":
                self._jobs.give_back(message.rendezvous_return)
            elif kind == "quiesce":
                self._quiesce(message.quiesce)
            elif kind == "profile_order":
                self._report(pb.AgentMessage(rank_profiles=self._jobs.profiles(message.profile_order)))
            else:
                _log.warning("the controller sent a message that this agent does not know (%s)", kind)

    def _quiesce(self, quiesce: pb.Quiesce) -> None:
        before = self._quiescing.pop(quiesce.job, None)
        if before is not None:
            before.cancel()
        step = self._fetch(quiesce) if quiesce.targets else self._freeze(quiesce)
        self._quiescing[quiesce.job] = asyncio.create_task(step, name=f"quiesce of job {quiesce.job}")

    async def _freeze(self, quiesce: pb.Quiesce) -> None:
        positions = await self._jobs.freeze(quiesce)
        if positions is not None:
            self._report(pb.AgentMessage(positions=positions))

    async def _fetch(self, quiesce: pb.Quiesce) -> None:
        """Let ranks fetch what others hold, and report when they have; the controller's wait is limited."""
        deadline = time.monotonic() + _FETCH_SECONDS
        while (positions := await self._jobs.fetch(quiesce)) is not None:
            if have_reached(positions, quiesce):
                self._report(pb.AgentMessage(positions=positions))
                return
            if time.monotonic() >= deadline:
                _log.error(
                    "job %d: the results that other ranks hold were not fetched within %g s",
                    quiesce.job,
                    _FETCH_SECONDS,
                )
                return
            await asyncio.sleep(_FETCH_STEP_SECONDS)


async def _raise_status(call: Any) -> None:
    """Raise the error with which a stream ended, if any."""
    code = await call.code()
    if code is not grpc.StatusCode.OK:
        raise grpc.aio.AioRpcError(
            code, await call.initial_metadata(), await call.trailing_metadata(), details=await call.details()
        )
