"""The agent's session with the controller: one gRPC stream, opened again whenever it breaks."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import random
from collections.abc import Callable
from typing import Any, Final

import grpc

from switchml.common.clock import Clock, stood_still
from switchml.common.deadline import within
from switchml.common.grpc_connections import KEEPALIVE_OPTIONS
from switchml.common.tls import CONTROLLER_NAME, Security, TlsError
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto import switchml_pb2_grpc as pb_grpc
from switchml.host_agent.agent import Agent
from switchml.host_agent.errors import RegistrationRefused
from switchml.host_agent.local_job import LocalJob
from switchml.host_agent.outbox import Outbox

__all__ = ["Session"]

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
_JOBS_GET_SECONDS: Final = 3.0  # the process that asks waits for 4 s
_HEARTBEAT_BOUNDS: Final = (0.05, 60.0)

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


class Session:
    """Keep the agent registered with the controller at `controller`, and let it carry out the controller's orders.

    `controller` is HOST:PORT or unix:/PATH, or several of these separated by commas: of two controllers only the leader
    answers; `security` protects the connection. `outbox` has the agent's messages. When the controller is lost, jobs
    continue, and the next controller is told about them. `clock` measures the controller's silence.
    """

    def __init__(
        self,
        controller: str,
        security: Security,
        registration: pb.Register,
        agent: Agent,
        outbox: Outbox,
        clock: Clock,
    ) -> None:
        self._controllers = controller.split(",")
        self._security = security
        self._registration = registration
        self._orders = agent.orders
        self._reports = agent.reports
        self._outbox = outbox
        self._clock = clock
        self._heard = 0.0  # time of the controller's last message
        self._channel: Any = None
        self._asking: dict[int, asyncio.Task[dict[int, int]]] = {}  # by job: requests for its ranks' positions

    async def run(self, on_registered: Callable[[], None]) -> None:
        """Stay registered until cancelled, and call `on_registered` after each registration.

        Raises:
            RegistrationRefused: the controller refuses this agent.

        """
        backoff = _FIRST_BACKOFF
        reported = ""
        for controller in itertools.cycle(self._controllers):
            try:
                # A new channel each time, which reads the certificates again. It shares no connections with others,
                # because shared ones wait longer and longer after failed attempts. Proxies are never used.
                options = [
                    ("grpc.enable_http_proxy", 0),
                    ("grpc.use_local_subchannel_pool", 1),
                    *KEEPALIVE_OPTIONS,
                ]
                async with self._security.aio_channel(controller, CONTROLLER_NAME, options) as channel:
                    self._channel = channel
                    await self._converse(controller, on_registered)
                reason = "it ended the session"
            except grpc.aio.AioRpcError as error:
                if error.code() in _FINAL:
                    raise RegistrationRefused(
                        f"the controller at {controller} refused this agent: {error.details()}"
                    ) from error
                reason = f"{error.code().name}: {error.details()}"
            except asyncio.TimeoutError:
                reason = "it does not answer"
            except TlsError as error:
                reason = str(error)
            finally:
                was_registered = self._outbox.connected
                self._channel = None
                self._outbox.disconnect()
            if was_registered:
                backoff, reported = _FIRST_BACKOFF, ""
            if reason != reported:
                _log.warning("no controller at %s (%s); trying again", controller, reason)
                reported = reason
            await asyncio.sleep(backoff * random.uniform(0.5, 1.0))  # noqa: S311 - spreads agents, guards nothing
            backoff = min(2 * backoff, _LONGEST_BACKOFF)

    async def missing_ranks(self, job: LocalJob, rank: int) -> list[int]:
        """Return the ranks that block `rank` of `job`; only those of this host while the controller is unreachable."""
        number = job.assignment.job
        if len(job.ranks) == job.assignment.world_size:
            return self._reports.stalled(job, rank, {})
        if number not in self._asking:
            # All ranks of this host may ask at the same time, and the answer names every rank of the job.
            asking = self._asking[number] = asyncio.create_task(self._positions(number))
            asking.add_done_callback(lambda _: self._asking.pop(number))
        return self._reports.stalled(job, rank, await asyncio.shield(self._asking[number]))

    async def _positions(self, job: int) -> dict[int, int]:
        """Ask the controller for the positions of a job's ranks; return none if it does not answer."""
        if self._channel is None:
            return {}
        try:
            answer = await _JobsStub(self._channel).Get(pb.JobReference(id=job), timeout=_JOBS_GET_SECONDS)
        except grpc.aio.AioRpcError:
            return {}
        return {rank.rank: rank.position for rank in answer.ranks}

    async def delivered(self) -> None:
        """Wait until the controller has acted on all reports, for a limited time, unless it is unreachable."""
        if self._outbox.connected:
            self._beat()
            await self._outbox.answered()

    async def _converse(self, controller: str, on_registered: Callable[[], None]) -> None:
        """Register with `controller` and serve one stream until it ends."""
        has_standby = len(self._controllers) > 1
        welcome_seconds = _STANDBY_WELCOME_SECONDS if has_standby else _WELCOME_SECONDS
        call = _AgentsStub(self._channel).Session()
        try:
            await within(welcome_seconds, self._register(call))
            welcome = await within(welcome_seconds, call.read())
            if welcome is grpc.aio.EOF:
                await _raise_status(call)
                return
            period = welcome.welcome.heartbeat_seconds
            if welcome.WhichOneof("message") != "welcome" or not math.isfinite(period):
                raise RegistrationRefused(f"the server at {controller} is not a switchml controller")
            period = min(max(period, _HEARTBEAT_BOUNDS[0]), _HEARTBEAT_BOUNDS[1])
            _log.info("registered as %s with %s", self._registration.name, controller)
            outgoing = self._outbox.connect()
            for message in self._reports.summary():
                self._outbox.put(message)
            on_registered()
            tasks = [
                asyncio.create_task(self._write(call, outgoing)),
                asyncio.create_task(self._beat_steadily(outgoing, period)),
                asyncio.create_task(self._read(call)),
            ]
            if has_standby:
                tasks.append(asyncio.create_task(self._watch()))
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                tasks += self._orders.cancel_begun()
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
        self._outbox.put(pb.AgentMessage(heartbeat=pb.Heartbeat(ranks=self._reports.statuses())))

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
            if message.HasField("alive"):
                self._outbox.note_answer()
            else:
                self._orders.carry_out(message)


async def _raise_status(call: Any) -> None:
    """Raise the error with which a stream ended, if any."""
    code = await call.code()
    if code is not grpc.StatusCode.OK:
        raise grpc.aio.AioRpcError(
            code, await call.initial_metadata(), await call.trailing_metadata(), details=await call.details()
        )
