"""The sessions of the agents, one for each, and the check that they are alive."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Container, Iterable, Mapping
from ipaddress import AddressValueError, IPv4Address
from typing import Protocol

from switchml.common.clock import Clock, stood_still
from switchml.common.names import NAME_RULE, full_name, is_name
from switchml.common.version import VERSION
from switchml.controller.config import EVERY_AGENT
from switchml.controller.errors import AgentExists, InvalidRequest, NoRoom, VersionMismatch
from switchml.controller.proto import switchml_pb2 as pb
from switchml.controller.records import parse_mac
from switchml.controller.version import require_same_release
from switchml.dataplane.constants import PROTOCOL_MAX_WORLD, PROTOCOL_VERSION

__all__ = ["HEARTBEAT_SECONDS", "MAX_AGENTS", "SILENCE_SECONDS", "AgentSession", "Agents", "welcome"]

_LOG = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0
SILENCE_SECONDS = 4.0
_CHECK_SECONDS = 0.5
_MAX_QUEUED = 4096
_MAX_RANKS = 4096
_MAX_MESSAGE_BYTES = 4096  # the largest MTU of InfiniBand and RoCE
MAX_AGENTS = PROTOCOL_MAX_WORLD  # so that each rank of the largest job can be on a separate host


class _Switch(Protocol):
    """The properties of a switch with which an agent's registration is compared."""

    @property
    def name(self) -> str: ...
    @property
    def highest_port(self) -> int: ...
    @property
    def neighbours(self) -> Mapping[int, str]: ...
    def require_tenant(self, tenant: str) -> None: ...


class AgentSession:
    """One stream of an agent: its registration, the messages that wait to be sent, and the reason for its end.

    `name` is the agent's full name, which no agent of another organization has.
    """

    def __init__(
        self,
        registration: pb.Register,
        name: str,
        switch: str,
        tenant: str = "",
        shared: bool = False,
        clock: Clock = time.monotonic,
    ) -> None:
        self._clock = clock
        self.registration = registration
        self.name = name
        self.switch = switch
        self.tenant = tenant
        self.shared = shared
        self.last_heartbeat = time.time()
        self.heard = clock()
        self.outgoing: asyncio.Queue[pb.ControllerMessage] = asyncio.Queue()
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def live(self) -> bool:
        """True if the agent can be given ranks."""
        return not self.ended.done()

    def serves(self, tenant: str) -> bool:
        """Return whether ranks of this tenant's jobs may be placed at it."""
        return self.shared or self.tenant == tenant

    def heartbeat(self) -> None:
        """Record that a message of the agent has arrived."""
        self.last_heartbeat, self.heard = time.time(), self._clock()

    def send(self, message: pb.ControllerMessage) -> None:
        """Queue a message; end the session of an agent that does not read its messages."""
        if self.outgoing.qsize() >= _MAX_QUEUED:
            self.end(f"it has not taken {_MAX_QUEUED} messages")
        elif self.live:
            self.outgoing.put_nowait(message)

    def end(self, why: str) -> None:
        """End the session; only the first call has an effect."""
        if self.live:
            self.ended.set_result(why)


class Agents:
    """Sessions by the full names of agents. The last session of each is kept after its end, so that it can be shown.

    ``shut_down`` sets ``stopping``: sessions that end afterwards have not lost their ranks. ``clock`` measures silence.
    Agents in ``shared`` carry ranks of every tenant; if EVERY_AGENT is in it, all agents do.
    """

    def __init__(
        self, find_switch: Callable[[str], _Switch], clock: Clock = time.monotonic, shared: Container[str] = frozenset()
    ) -> None:
        self._clock = clock
        self._shared = shared
        self._find_switch = find_switch
        self._sessions: dict[str, AgentSession] = {}
        self.stopping = False

    def register(self, registration: pb.Register, tenant: str = "", organization: str = "") -> AgentSession:
        """Open a session of an agent of `tenant`; jobs that its processes begin belong to this tenant.

        The agent is known by its name together with the `organization` in its certificate.

        Raises:
            InvalidRequest: a field has a value that is not allowed, or another switch is at its switch port.
            VersionMismatch: software or wire protocol are of another version.
            SwitchNotFound: it names a switch that is not configured.
            PermissionDenied: the switch is for another tenant.
            AgentExists: this agent is live in another process.
            NoRoom: there are too many agents.

        """
        _validate(registration)
        switch = self._find_switch(registration.switch)
        switch.require_tenant(tenant)
        _require_number(registration, "switch_port", switch.highest_port)
        port = registration.switch_port
        if port in switch.neighbours:
            raise InvalidRequest(
                f"agent {registration.name}: port {port} of switch {switch.name} leads to switch"
                f" {switch.neighbours[port]}, not to a host; give the agent the port of its host (--switch-port), or"
                " correct the `parent` of the switches in the controller's configuration"
            )
        name = full_name(registration.name, organization)
        present = self._sessions.get(name)
        if present is not None and present.live:
            if present.registration.instance != registration.instance:
                raise AgentExists(
                    f"agent {name} is live on {present.registration.host} with process id"
                    f" {present.registration.pid}; stop that one or give this one another name"
                )
            present.end("it opened another session")
        self._make_room(name)
        shared = name in self._shared or EVERY_AGENT in self._shared
        session = AgentSession(registration, name, switch.name, tenant, shared, self._clock)
        self._sessions[name] = session
        _LOG.info("agent %s on %s registered for switch %s", session.name, registration.host, switch.name)
        return session

    def _make_room(self, name: str) -> None:
        """Forget the agents that ended the longest time ago, so that names cannot fill the memory."""
        while name not in self._sessions and len(self._sessions) >= MAX_AGENTS:
            gone = [session for session in self._sessions.values() if not session.live]
            if not gone:
                raise NoRoom(f"there are {MAX_AGENTS} live agents, and no more can register", agents=MAX_AGENTS)
            del self._sessions[min(gone, key=lambda session: session.heard).name]

    def live_session(self, name: str) -> AgentSession | None:
        """Return the live session of an agent."""
        session = self._sessions.get(name)
        return session if session is not None and session.live else None

    def tell(self, names: Iterable[str], message: pb.ControllerMessage) -> int:
        """Send a message to those of these agents that are live; return their number."""
        sessions = [session for name in names if (session := self.live_session(name)) is not None]
        for session in sessions:
            session.send(message)
        return len(sessions)

    def live_on(self, switch: str) -> list[AgentSession]:
        """Return the live sessions of a switch's agents, by name."""
        found = [session for session in self._sessions.values() if session.live and session.switch == switch]
        return sorted(found, key=lambda session: session.name)

    def ports_on(self, switch: str) -> set[int]:
        """Return the ports of a switch that live agents are attached to."""
        return {session.registration.switch_port for session in self.live_on(switch)}

    def shut_down(self) -> None:
        """End all sessions; the agents continue to work and connect again."""
        self.stopping = True
        for session in self._sessions.values():
            session.end("the controller is stopping")

    def sessions(self) -> list[AgentSession]:
        """Return the last session of each agent, by name."""
        return [session for _, session in sorted(self._sessions.items())]

    async def run(self) -> None:
        """End sessions that have been silent too long, until cancelled."""
        checked = self._clock()
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            now = self._clock()
            stalled, checked = stood_still(checked, now, _CHECK_SECONDS), now
            for session in self._sessions.values():
                if stalled:
                    # This process did not run (for example, it was suspended), so it could not receive heartbeats.
                    session.heard = now
                elif session.live and now - session.heard > SILENCE_SECONDS:
                    session.end(f"no heartbeat for {SILENCE_SECONDS:g} s")


def _validate(registration: pb.Register) -> None:
    for field in ("name", "version", "host", "address", "mac", "socket", "switch", "instance"):
        value = getattr(registration, field)
        if not value.isprintable():
            raise InvalidRequest(f"agent {registration.name!r}: {field} must be printable, not {value!r}")
    if registration.protocol_version != PROTOCOL_VERSION:
        raise VersionMismatch(
            f"agent {registration.name!r} speaks protocol version {registration.protocol_version} and this controller"
            f" {PROTOCOL_VERSION}; install the same release on both",
            theirs=registration.protocol_version,
            ours=PROTOCOL_VERSION,
        )
    require_same_release(f"agent {registration.name!r}", registration.version)
    if not is_name(registration.name):
        raise InvalidRequest(f"agent name {registration.name!r} must be {NAME_RULE}")
    for field in ("host", "socket", "instance"):
        if not getattr(registration, field):
            raise InvalidRequest(f"agent {registration.name}: {field} is empty")
    try:
        IPv4Address(registration.address)
        parse_mac(registration.mac)
    except (AddressValueError, ValueError) as error:
        raise InvalidRequest(f"agent {registration.name}: {error}") from None
    _require_number(registration, "max_ranks", _MAX_RANKS)
    if registration.largest_message:
        _require_number(registration, "largest_message", _MAX_MESSAGE_BYTES)


def _require_number(registration: pb.Register, field: str, high: int) -> None:
    value = getattr(registration, field)
    if not 1 <= value <= high:
        raise InvalidRequest(f"agent {registration.name}: {field} is {value} and must be 1 to {high}")


def welcome() -> pb.ControllerMessage:
    """Return the answer to Register."""
    return pb.ControllerMessage(welcome=pb.Welcome(version=VERSION, heartbeat_seconds=HEARTBEAT_SECONDS))
