"""The northbound gRPC services, which call the controller's objects."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import grpc

from switchml.common.deadline import within
from switchml.common.grpc_guard import Requests
from switchml.common.message_bounds import BoundExceeded
from switchml.common.turns import FairTurns, become, in_turns, measured
from switchml.common.version import VERSION
from switchml.controller.admission.request import JobRequest
from switchml.controller.admission.slots import SlotPools
from switchml.controller.agents import Agents, AgentSession, welcome
from switchml.controller.errors import ControllerError, InternalError, InvalidRequest, StoreError
from switchml.controller.jobs.lifecycle import Lifecycle
from switchml.controller.jobs.register import JobRegister
from switchml.controller.northbound.agent_messages import AgentMessages
from switchml.controller.northbound.probes import Probes
from switchml.controller.northbound.profiles import Profiles
from switchml.controller.northbound.roles import CALLER, require_agent, require_tenant
from switchml.controller.northbound.views import (
    JobViews,
    agent_view,
    event_view,
    job_view,
    loss_view,
    referred_job,
    switch_detail,
    switch_view,
)
from switchml.controller.proto import events_pb2 as events_pb
from switchml.controller.proto import events_pb2_grpc as events_grpc
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto import switchml_pb2_grpc as pb_grpc
from switchml.controller.records import Job
from switchml.controller.rpc_errors import abort
from switchml.controller.store.database import Store
from switchml.controller.store.events import EventKind, EventLog, Selection
from switchml.controller.switches import ManagedSwitch, Switches
from switchml.dataplane.constants import PROTOCOL_VERSION

__all__ = ["AgentsService", "ControlService", "EventsService", "JobsService", "SwitchesService"]

_LOG = logging.getLogger(__name__)
_REGISTER_SECONDS = 10.0

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
_Context: TypeAlias = grpc.aio.ServicerContext


def _answered(
    method: Callable[[Any, _Request, _Context], Awaitable[_Response]],
) -> Callable[[Any, _Request, _Context], Awaitable[_Response]]:
    """Turn ControllerErrors into statuses, and unexpected exceptions into INTERNAL with a traceback in the log."""

    @functools.wraps(method)
    async def wrapper(self: Any, request: _Request, context: _Context) -> _Response:
        try:
            return await method(self, request, context)
        except ControllerError as error:
            await abort(context, error)
        except Exception as error:
            _LOG.exception("%s failed", method.__qualname__)
            await abort(context, InternalError(f"internal error in the controller, see its log: {error!r}"))

    return wrapper


class JobsService(pb_grpc.JobsServicer):
    """The service Jobs."""

    def __init__(self, jobs: JobRegister, lifecycle: Lifecycle, profiles: Profiles) -> None:
        self._jobs = jobs
        self._views = JobViews(jobs)
        self._lifecycle = lifecycle
        self._profiles = profiles

    @_answered
    async def Start(self, request: pb.StartJobRequest, _: _Context) -> pb.Job:  # noqa: N802
        """Bring a job up."""
        return job_view(await self._lifecycle.start(JobRequest(request, CALLER.get().tenant)))

    @_answered
    async def Get(self, request: pb.JobReference, _: _Context) -> pb.Job:  # noqa: N802
        """Return a job."""
        return await self._views.view(self._find(request))

    @_answered
    async def List(self, request: pb.ListJobsRequest, _: _Context) -> pb.ListJobsResponse:  # noqa: N802
        """Return jobs."""
        jobs = self._jobs.listed(request.include_ended)
        return pb.ListJobsResponse(jobs=[job_view(job) async for job in in_turns(jobs)])

    async def Watch(self, request: pb.JobReference, context: _Context) -> AsyncIterator[pb.Job]:  # noqa: N802
        """Stream a job."""
        try:
            async for message in self._views.watch(self._find(request)):
                yield message
        except ControllerError as error:
            await abort(context, error)

    @_answered
    async def Stop(self, request: pb.JobReference, _: _Context) -> pb.Job:  # noqa: N802
        """End a job."""
        job = self._find(request)
        require_tenant(job)
        await self._lifecycle.stop(job)
        return await self._views.view(job)

    @_answered
    async def ReportExit(self, request: pb.ExitReport, _: _Context) -> pb.Job:  # noqa: N802
        """Record the exit status of a process."""
        job = self._find(request.job)
        require_tenant(job)
        self._lifecycle.report_exit(job, request.rank, request.exit_code, request.final)
        return await self._views.view(job)

    @_answered
    async def Profile(self, request: pb.ProfileRequest, _: _Context) -> pb.JobProfile:  # noqa: N802
        """Return the profile of a job."""
        return await self._profiles.collect(self._find(request.job), request.calls)

    def _find(self, reference: pb.JobReference) -> Job:
        """Return the job that a request refers to.

        Raises:
            InvalidRequest: it refers to no job.
            JobNotFound: no job has the id or name.

        """
        wanted = referred_job(reference)
        if wanted is None:
            raise InvalidRequest("say which job, by id or by name")
        return self._jobs.find(wanted)


class AgentsService(pb_grpc.AgentsServicer):
    """The service Agents."""

    def __init__(
        self,
        agents: Agents,
        messages: AgentMessages,
        jobs: JobRegister,
        probes: Probes,
        events: EventLog,
        turns: FairTurns,
    ) -> None:
        self._turns = turns
        self._probes = probes
        self._agents = agents
        self._events = events
        self._messages = messages
        self._jobs = jobs

    async def Session(self, requests: Requests, context: _Context) -> None:  # noqa: N802
        """Serve one agent until its stream ends, it is silent too long, or the controller stops."""
        try:
            registration = await _registration(requests)
            require_agent(registration.name)
            caller = CALLER.get()
            session = self._agents.register(registration, caller.tenant, caller.organization)
        except ControllerError as error:
            _LOG.warning("an agent at %s was refused: %s", context.peer(), error)
            self._events.record(EventKind.AGENT_REFUSED, error.message)
            await abort(context, error)
        self._events.record(
            EventKind.AGENT_CONNECTED,
            f"on {session.registration.host}",
            agent=session.name,
            switch=session.switch,
        )
        if not caller.known:
            become(self._turns.account("", f"agent {session.name}"))
        requests.most_bytes = functools.partial(self._messages.most_bytes, session)
        session.send(welcome())
        self._messages.registered(session)
        reading = asyncio.create_task(self._read(session, requests), name=f"from agent {session.name}")
        writing = asyncio.create_task(_write(session, context), name=f"to agent {session.name}")
        ends: set[asyncio.Future[Any]] = {reading, writing, session.ended}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Tasks that wait for this agent are told of its loss first: cancelling the tasks here may take a while.
            self._note_end(session, _why_ended(reading, writing))
            reading.cancel()
            writing.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)
        if not reading.cancelled() and isinstance(refusal := reading.exception(), BoundExceeded):
            raise refusal

    def _note_end(self, session: AgentSession, why: str) -> None:
        session.end(why)
        if not self._agents.stopping:
            why = session.ended.result()
            _LOG.warning("agent %s on %s is lost: %s", session.name, session.registration.host, why)
            self._events.record(EventKind.AGENT_LOST, why, agent=session.name, switch=session.switch)
            self._messages.lost(session, why)

    async def _read(self, session: AgentSession, requests: Requests) -> None:
        await measured(self._take_all(session, requests))

    async def _take_all(self, session: AgentSession, requests: Requests) -> None:
        async for message in requests:
            try:
                self._messages.take(session, message)
            except StoreError as error:
                _LOG.error("a message of agent %s could not be written to the store: %s", session.name, error)

    @_answered
    async def List(self, _: pb.ListAgentsRequest, __: _Context) -> pb.ListAgentsResponse:  # noqa: N802
        """Return agents."""
        used = self._jobs.ranks_in_use()
        views = [agent_view(one, used[one.name]) async for one in in_turns(self._agents.sessions())]
        return pb.ListAgentsResponse(agents=views)

    @_answered
    async def Probe(self, request: pb.ProbeRequest, _: _Context) -> pb.ProbeResult:  # noqa: N802
        """Measure the paths between all agents."""
        return await self._probes.run(request.bytes)


async def _registration(requests: Requests) -> pb.Register:
    """Return the stream's first message.

    Raises:
        InvalidRequest: it is not Register, or does not come.

    """
    try:
        first: pb.AgentMessage = await within(_REGISTER_SECONDS, anext(requests))
    except (StopAsyncIteration, asyncio.TimeoutError):
        raise InvalidRequest(f"a session begins with Register, within {_REGISTER_SECONDS:g} s") from None
    if not first.HasField("register"):
        raise InvalidRequest(f"a session begins with Register, not with {first.WhichOneof('message')}")
    return first.register


async def _write(session: AgentSession, context: _Context) -> None:
    while True:
        await context.write(await session.outgoing.get())


def _why_ended(reading: asyncio.Task[None], writing: asyncio.Task[None]) -> str:
    for task in (reading, writing):
        error = task.exception() if task.done() and not task.cancelled() else None
        if error is not None:
            # gRPC raises these if the agent ends during a read or a write.
            if isinstance(error, BoundExceeded):
                return f"it sent a message that is too large: {error}"
            if not isinstance(error, grpc.RpcError | grpc.aio.InternalError | asyncio.InvalidStateError):
                _LOG.error("%s failed", task.get_name(), exc_info=error)
            return f"its stream broke: {error!r}"
    return "its stream was closed"


class SwitchesService(pb_grpc.SwitchesServicer):
    """The service Switches."""

    def __init__(self, switches: Switches, pools: SlotPools, agents: Agents, events: EventLog) -> None:
        self._switches = switches
        self._pools = pools
        self._events = events
        self._agents = agents

    @_answered
    async def List(self, _: pb.ListSwitchesRequest, __: _Context) -> pb.ListSwitchesResponse:  # noqa: N802
        """Return switches."""
        return pb.ListSwitchesResponse(switches=map(self._view, self._switches))

    @_answered
    async def Show(self, request: pb.ShowSwitchRequest, _: _Context) -> pb.SwitchDetail:  # noqa: N802
        """Read one switch."""
        switch, contents, verdicts = await self._switches.read(request.name)
        return switch_detail(self._view(switch), contents, verdicts)

    @_answered
    async def SetLoss(self, request: pb.SetLossRequest, _: _Context) -> pb.SetLossResponse:  # noqa: N802
        """Make one switch lose packets on purpose."""
        switch = self._switches.get(request.name).name
        shares = {name: getattr(request, name) for name in ("ingress", "egress") if request.HasField(name)}
        losses = await self._switches.set_loss(switch, request.ports, shares, self._agents.ports_on(switch))
        ports = ", ".join(f"port {loss.port}: {loss.ingress:.4g}/{loss.egress:.4g}" for loss in losses)
        self._events.record(EventKind.LOSS_SET, ports or "no port loses packets any more", switch=switch)
        return pb.SetLossResponse(ports=map(loss_view, losses))

    @_answered
    async def Drain(self, request: pb.DrainRequest, _: _Context) -> pb.Switch:  # noqa: N802
        """Close one switch to new jobs, or open it again."""
        switch = self._switches.drain(request.name, request.drained)
        kind = EventKind.SWITCH_DRAINED if switch.drained else EventKind.SWITCH_UNDRAINED
        self._events.record(kind, f"{self._pools.of(switch).ranges_used} jobs on it", switch=switch.name)
        return self._view(switch)

    def _view(self, switch: ManagedSwitch) -> pb.Switch:
        return switch_view(switch, self._pools.of(switch))


class EventsService(events_grpc.EventsServicer):
    """The service Events."""

    def __init__(self, events: EventLog, jobs: JobRegister) -> None:
        self._events = events
        self._jobs = jobs

    async def Read(self, request: events_pb.ReadEventsRequest, context: _Context) -> AsyncIterator[events_pb.Event]:  # noqa: N802
        """Stream the event log; refuse a job that is neither in the log nor in the store."""
        job = referred_job(request.job)
        try:
            selection = Selection(request.since, frozenset(request.kinds), request.level, request.switch)
            if job is not None and not self._events.latest(job, most=1):
                self._jobs.find(job)
        except ControllerError as error:
            await abort(context, error)
        async for event in self._events.read(job, request.after, request.latest, request.follow, selection):
            yield event_view(event)


class ControlService(pb_grpc.ControlServicer):
    """The service Control."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._started = time.time()

    @_answered
    async def Info(self, _: pb.InfoRequest, __: _Context) -> pb.InfoResponse:  # noqa: N802
        """Return version, start and store of this controller."""
        return pb.InfoResponse(
            version=VERSION,
            protocol_version=PROTOCOL_VERSION,
            started=self._started,
            store_path=str(self._store.path),
            term=self._store.term,
        )
