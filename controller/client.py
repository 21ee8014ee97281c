"""A synchronous, typed client of the controller, which raises the exceptions of switchml.controller.errors."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

from switchml.common.grpc_address import UNIX
from switchml.common.grpc_connections import KEEPALIVE_OPTIONS
from switchml.common.job_numbers import HIGHEST_PORT
from switchml.common.names import parse_job_reference
from switchml.common.probe_bounds import MOST_SECONDS
from switchml.common.tls import CONTROLLER_NAME, Security, TlsError, speaks_tls
from switchml.controller.errors import (
    AgentNotFound,
    ConfigError,
    ControllerError,
    ControllerUnavailable,
    DeadlineExceeded,
    InvalidRequest,
    JobNotFound,
)
from switchml.controller.proto import events_pb2 as events_pb
from switchml.controller.proto import events_pb2_grpc as events_grpc
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.proto import switchml_pb2_grpc as pb_grpc
from switchml.controller.retry import ABSENCE_SECONDS, Retry, ask
from switchml.controller.rpc_errors import ACTOR_KEY, from_rpc_error

__all__ = ["DEFAULT_SECONDS", "ControllerClient"]

DEFAULT_SECONDS = 15.0
"""The default limit of a call."""

_START_SECONDS = 60.0
_HIGHEST = 2**32 - 1  # the largest number that fits the messages


class _Stubs:
    """The services of the controller on one channel."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.jobs = pb_grpc.JobsStub(channel)  # type: ignore[no-untyped-call]
        self.agents = pb_grpc.AgentsStub(channel)  # type: ignore[no-untyped-call]
        self.switches = pb_grpc.SwitchesStub(channel)  # type: ignore[no-untyped-call]
        self.events = events_grpc.EventsStub(channel)  # type: ignore[no-untyped-call]
        self.control = pb_grpc.ControlStub(channel)  # type: ignore[no-untyped-call]


class ControllerClient:
    """A connection to the controller at "host:port" or "unix:/path", or at the first of several that answers.

    Several addresses have commas between them; they are "ipv4:port".

    A job is given by its id (a number or its digits) or by its name. Every method takes at most ``timeout`` seconds and
    raises the ControllerError that the controller raised, ControllerUnavailable if no controller answers, or
    DeadlineExceeded.

    ``tls`` is a directory of certificates (switchml.common.tls). Without it an address must be on loopback, or the
    connection must be ``insecure``. Replaced certificates are used from the next call on. ``notice`` is called when a
    stream begins to wait for a controller that is away.

    Raises:
        ConfigError: certificates are missing or not usable.

    """

    def __init__(
        self,
        address: str,
        timeout: float = DEFAULT_SECONDS,
        tls: Path | str | None = None,
        insecure: bool = False,
        notice: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.address = address
        self._notice = notice
        self._security = Security.of(tls, insecure)
        self._stamp: object = None
        self._channels: list[grpc.Channel] = []
        self._metadata = ((ACTOR_KEY, _own_name().encode()),)
        self._timeout = timeout
        self._stubs()

    def _stubs(self) -> _Stubs:
        """Return the service stubs, over a new channel if the certificates have changed."""
        try:
            certificates = self._security.certificates_for(self.address)
            stamp = certificates.stamp() if certificates is not None else ()
            if stamp != self._stamp:
                # Refused connections are retried soon, so that a controller that has just been started is found. One
                # that has stopped, or whose host has vanished, is noticed by a stream too, which has no deadline.
                options = [
                    ("grpc.initial_reconnect_backoff_ms", 100),
                    ("grpc.max_reconnect_backoff_ms", 1000),
                    ("grpc.min_reconnect_backoff_ms", 5_000),  # the time that one attempt to connect may take
                    ("grpc.enable_http_proxy", 0),
                    *KEEPALIVE_OPTIONS,
                ]
                channel = self._security.channel(self.address, CONTROLLER_NAME, options)
                self._channels.append(channel)  # watches continue over the previous one
                self._stamp, self._present = stamp, _Stubs(channel)
        except TlsError as error:
            raise ConfigError(str(error)) from None
        return self._present

    def __enter__(self) -> ControllerClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; this ends running watches."""
        for channel in self._channels:
            channel.close()

    def retry(self) -> Retry:
        """Return the attempts of a program that only watches, for a controller that has answered before."""
        return Retry(ABSENCE_SECONDS, notice=self._notice)

    def info(self) -> pb.InfoResponse:
        """Return version, start and store of the controller."""
        answer: pb.InfoResponse = self._call(self._stubs().control.Info, pb.InfoRequest())
        return answer

    def start_job(self, request: pb.StartJobRequest, timeout: float = _START_SECONDS) -> pb.Job:
        """Start a job and return it READY.

        Raises:
            NoFloats: the switches of the job cannot add floats as such.
            InvalidRequest: worker count (1..4096), slots, name, priority or aggregators are not allowed.
            JobExists: a live job has the name.
            NoRoom: the switch has no such range of slots free.
            NoAgent: its live agents have too little room.
            SwitchNotFound, SwitchUnavailable, SwitchRefused: about the switch.
            AgentFailed, AgentTimeout: about an agent.
            JobEnded: the job was stopped before it was ready.

        """
        answer: pb.Job = self._call(self._stubs().jobs.Start, request, timeout)
        return answer

    def get_job(self, job: int | str) -> pb.Job:
        """Return a job.

        Raises:
            JobNotFound: no job has this id or name.

        """
        answer: pb.Job = self._call(self._stubs().jobs.Get, _reference(job))
        return answer

    def list_jobs(self, include_ended: bool = False) -> list[pb.Job]:
        """Return the live jobs, or all, oldest first."""
        return list(self._call(self._stubs().jobs.List, pb.ListJobsRequest(include_ended=include_ended)).jobs)

    def watch_job(self, job: int | str, timeout: float | None = None, retry: Retry | None = None) -> Iterator[pb.Job]:
        """Yield a job now, after each change and at least each second, until it has ended.

        While a controller that has answered is away, its last answer is repeated, for at most ABSENCE_SECONDS; with
        ``retry``, for as long as that allows, and the first answer is waited for as well.

        Raises:
            JobNotFound: no job has this id or name.

        """
        end = None if timeout is None else time.monotonic() + timeout
        last: pb.Job | None = None
        attempts = retry or self.retry()
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            try:
                for last in self._stream(self._stubs().jobs.Watch, _reference(job), left):
                    attempts.answered()
                    yield last
                return
            except ControllerError as error:
                over = end is not None and isinstance(error, DeadlineExceeded) and time.monotonic() >= end
                if over or (last is None and retry is None):
                    raise
                attempts.failed(error)
            if last is not None:
                yield last

    def stop_job(self, job: int | str) -> pb.Job:
        """End a live job and return it; an ended one is returned unchanged.

        Raises:
            JobNotFound: no job has this id or name.

        """
        answer: pb.Job = self._call(self._stubs().jobs.Stop, _reference(job))
        return answer

    def report_exit(self, job: int | str, rank: int, exit_code: int, final: bool = False) -> pb.Job:
        """Report the exit status of a worker's process (128 + signal for a signal); a live job loses the rank unless 0.

        ``final`` means that no other process is started in its place.

        Raises:
            JobNotFound, InvalidRequest: there is no such job or rank.

        """
        if not 0 <= rank <= _HIGHEST:
            raise InvalidRequest(f"there is no rank {rank}")
        report = pb.ExitReport(job=_reference(job), rank=rank, exit_code=exit_code, final=final)
        answer: pb.Job = self._call(self._stubs().jobs.ReportExit, report)
        return answer

    def profile_job(self, job: int | str, calls: int = 0) -> pb.JobProfile:
        """Return the profile of a live job, with up to ``calls`` (at most 63) of each rank's latest calls.

        Ranks whose agent does not answer within a few seconds are in its ``missing``.

        Raises:
            JobNotFound, JobEnded: there is no such job, or it has ended.
            NoRoom: too many profiles are being collected.

        """
        request = pb.ProfileRequest(job=_reference(job), calls=min(max(calls, 0), _HIGHEST))
        answer: pb.JobProfile = self._call(self._stubs().jobs.Profile, request)
        return answer

    def list_agents(self) -> list[pb.Agent]:
        """Return all agents that have registered since the controller started, by name."""
        return list(self._call(self._stubs().agents.List, pb.ListAgentsRequest()).agents)

    def probe_agents(self, nbytes: int = 0) -> pb.ProbeResult:
        """Let all live agents measure the round trips between each two and, with ``nbytes``, how fast they send these.

        Raises:
            InvalidRequest: ``nbytes`` is too large.
            FabricInUse: jobs live, or start during the probe, or another probe runs.
            NoAgent: fewer than 3 agents are live or answer, or there are too many.
            AgentTimeout: it takes too long.

        """
        request = pb.ProbeRequest(bytes=min(max(nbytes, 0), 2**64 - 1))
        answer: pb.ProbeResult = self._call(self._stubs().agents.Probe, request, MOST_SECONDS + self._timeout)
        return answer

    def get_agent(self, name: str) -> pb.Agent:
        """Return the agent of this name.

        Raises:
            AgentNotFound: none has registered since the controller started.

        """
        for agent in self.list_agents():
            if agent.name == name:
                return agent
        raise AgentNotFound(f"no agent {name!r} has registered with the controller at {self.address}")

    def list_switches(self) -> list[pb.Switch]:
        """Return the configured switches."""
        return list(self._call(self._stubs().switches.List, pb.ListSwitchesRequest()).switches)

    def show_switch(self, name: str = "") -> pb.SwitchDetail:
        """Return the tables, groups and counters of a switch, read from it now; without a name, of the only switch.

        Raises:
            SwitchNotFound, InvalidRequest: no switch has this name, or there are several and no name was given.
            SwitchUnavailable, SwitchRefused: it cannot be read.

        """
        answer: pb.SwitchDetail = self._call(self._stubs().switches.Show, pb.ShowSwitchRequest(name=name))
        return answer

    def read_events(
        self,
        job: int | str | None = None,
        after: int = 0,
        latest: int = 0,
        follow: bool = False,
        timeout: float | None = None,
        *,
        since: float = 0.0,
        kinds: Sequence[str] = (),
        level: str = "",
        switch: str = "",
    ) -> Iterator[events_pb.Event]:
        """Yield the events that the controller keeps, oldest first; with ``follow`` also each new one.

        ``job`` selects those of one job, ``after`` those with a higher number, ``latest`` at most that many past ones,
        ``since`` those from a time on, ``kinds`` those of some kinds, ``level`` those of at least this level, and
        ``switch`` those about one.

        Raises:
            InvalidRequest: events have no such kind or level.
            JobNotFound: no job has this id or name, and no kept event concerns a job that had it.

        """
        request = events_pb.ReadEventsRequest(
            job=None if job is None else _reference(job),
            after=after,
            latest=latest,
            follow=follow,
            since=since,
            kinds=kinds,
            level=level,
            switch=switch,
        )
        seconds = timeout or (None if follow else self._timeout)
        attempts = self.retry()
        answered = False
        while True:
            try:
                for event in self._stream(self._stubs().events.Read, request, seconds):
                    answered = True
                    attempts.answered()
                    yield event
                    request.after, request.latest = event.number, 0
                return
            except ControllerError as error:  # noqa: PERF203
                if not (follow and answered):
                    raise
                attempts.failed(error)

    def set_loss(
        self, name: str = "", ports: Iterable[int] = (), ingress: float | None = None, egress: float | None = None
    ) -> list[pb.PortLoss]:
        """Make a switch lose shares (0 to 1) of its packets on purpose; return all ports that lose packets now.

        None leaves a direction unchanged. The default ports are those that live agents are attached to, and those that
        lose packets now. The setting lasts until the switch's pipeline is loaded again.

        Raises:
            SwitchNotFound, InvalidRequest: there is no such switch; or a share or port is not allowed or missing.
            SwitchUnavailable, SwitchRefused: it cannot be set.

        """
        try:
            request = pb.SetLossRequest(name=name, ports=ports, ingress=ingress, egress=egress)
        except ValueError as error:  # a port that does not fit the message
            raise InvalidRequest(f"ports of a switch are 1 to {HIGHEST_PORT}: {error}") from None
        return list(self._call(self._stubs().switches.SetLoss, request).ports)

    def drain_switch(self, name: str = "", drained: bool = True) -> pb.Switch:
        """Close a switch to new jobs, or open it again; running jobs continue. Without a name, the only switch.

        Raises:
            SwitchNotFound, InvalidRequest: no switch has this name, or there are several and no name was given.

        """
        answer: pb.Switch = self._call(self._stubs().switches.Drain, pb.DrainRequest(name=name, drained=drained))
        return answer

    def wait_without_jobs(self, name: str) -> pb.Switch:
        """Wait, without a deadline, until no job is left on a switch, and return it; raise like `list_switches`."""
        retry = self.retry()
        while True:
            switch = next(switch for switch in ask(self.list_switches, retry) if switch.name == name)
            for job in ask(self.list_jobs, retry):
                if any(place.switch == name for place in job.switches):
                    for _ in self.watch_job(job.id):
                        pass
            if not switch.jobs:
                return switch

    def _stream(self, method: Callable[..., Any], request: object, timeout: float | None) -> Iterator[Any]:
        stream = method(request, timeout=timeout)
        try:
            yield from stream
        except grpc.RpcError as error:
            raise self._raised(error) from None
        finally:
            stream.cancel()

    def _call(self, method: Callable[..., Any], request: object, timeout: float | None = None) -> Any:
        try:
            return method(request, timeout=timeout or self._timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self._raised(error) from None

    def _raised(self, error: grpc.RpcError) -> ControllerError:
        """Return the exception for a failed call, with a hint if this side lacks TLS or a permission."""
        raised = from_rpc_error(error, self.address)
        if isinstance(raised, ControllerUnavailable) and self._security.certificates is None:
            for address in self.address.split(","):
                if address.startswith(UNIX) and _is_forbidden(address.removeprefix(UNIX)):
                    return ControllerUnavailable(
                        f"permission denied: the controller at {address} is another user's; run this as that user, or "
                        "choose another controller"
                    )
                if not address.startswith("unix:") and speaks_tls(address):
                    return ControllerUnavailable(
                        f"the controller at {address} speaks TLS and this client does not: give it a directory of "
                        "certificates (--tls DIRECTORY, SWITCHML_TLS or tls in config.toml)"
                    )
        return raised


def _own_name() -> str:
    """Return the user and host of this program, for the controller's event log."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = f"user {os.getuid()}"
    return f"{user} on {socket.gethostname()}"


def _is_forbidden(path: str) -> bool:
    """Return whether this user lacks the permission to connect to a Unix socket."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:  # which also fails if this process has no descriptor left
            probe.setblocking(False)
            probe.connect(path)
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def _reference(job: int | str) -> pb.JobReference:
    job = parse_job_reference(job) if isinstance(job, str) else job
    if isinstance(job, str):
        return pb.JobReference(name=job)
    if not 0 <= job <= _HIGHEST:
        raise JobNotFound(f"no job has the id {job}")
    return pb.JobReference(id=job)
