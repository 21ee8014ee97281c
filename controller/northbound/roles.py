"""The rights of callers, and the caller of the current call.

The role, the name and the tenant of a caller are in its certificate (switchml.common.tls). Without TLS (over a Unix
socket, over loopback, or with --insecure) every caller is an administrator and has no tenant.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

import grpc

from switchml.common.names import NAME_LENGTH, full_name
from switchml.common.role import Role
from switchml.common.tls import Identity, identity_of
from switchml.common.turns import FairTurns, become
from switchml.controller.admission.quotas import Quotas
from switchml.controller.errors import PermissionDenied, TooManyCalls
from switchml.controller.northbound.call_limits import CallLimits
from switchml.controller.records import Job
from switchml.controller.rpc_errors import ACTOR_KEY, abort
from switchml.controller.store.events import ACTOR, EventKind, EventLog

__all__ = ["CALLER", "RIGHTS", "Access", "Caller", "require_agent", "require_tenant"]

_READERS: Final = frozenset({Role.VIEWER, Role.OPERATOR, Role.ADMIN, Role.AGENT})
_OPERATORS: Final = frozenset({Role.OPERATOR, Role.ADMIN})
_ADMINS: Final = frozenset({Role.ADMIN})

RIGHTS: Final[dict[str, frozenset[Role]]] = {
    f"/switchml.v1.{method}": roles
    for roles, methods in (
        (_READERS, ("Jobs/Get", "Jobs/List", "Jobs/Watch", "Jobs/Profile", "Agents/List")),
        (_READERS, ("Switches/List", "Switches/Show", "Events/Read", "Control/Info")),
        (_OPERATORS, ("Jobs/Start", "Jobs/Stop", "Jobs/ReportExit")),
        (_ADMINS, ("Switches/SetLoss", "Switches/Drain", "Agents/Probe")),
        (frozenset({Role.AGENT}), ("Agents/Session",)),
    )
    for method in methods
}
"""The roles that may make each call; a call that is not listed here is refused for all roles."""

_REPEAT_SECONDS: Final = 60.0
_MOST_REPEATS: Final = 1000


@dataclass(frozen=True)
class Caller:
    """The caller of a call; one without TLS is not `known`, and has all rights.

    It is known by `name` together with `organization`; `tenant` is the organization, unless the configuration makes it
    a member of another tenant.
    """

    name: str = ""
    role: Role = Role.ADMIN
    organization: str = ""
    tenant: str = ""
    known: bool = False

    @property
    def full_name(self) -> str:
        """The name that no caller of the same role in another organization has."""
        return full_name(self.name, self.organization)


CALLER: ContextVar[Caller] = ContextVar("caller", default=Caller())  # noqa: B039 - it is frozen
"""The caller of the call that is being served."""


class Access:
    """Checks every call; refusals are recorded in the event log, those of one caller and call once a minute.

    Calls are served in the `turns` of their callers.
    """

    def __init__(self, events: EventLog, quotas: Quotas, turns: FairTurns) -> None:
        self._events = events
        self._quotas = quotas
        self._turns = turns
        self.calls = CallLimits()
        self._refused: OrderedDict[tuple[str, str], float] = OrderedDict()  # time.monotonic()

    async def check(self, method: str, context: grpc.aio.ServicerContext) -> ExitStack:
        """Record the caller, and abort the call if it is not allowed; the returned context counts it while it lasts."""
        identity = identity_of(context)
        if identity is None:
            ACTOR.set(_said(context))
            CALLER.set(Caller())
            become(self._turns.account("", ""))
            return self.calls.begin(context.peer())
        ACTOR.set(f"{identity.subject} at {context.peer()}")
        try:
            role = _allowed_role(identity, method)
            tenant = self._quotas.tenant(full_name(identity.name, identity.tenant), identity.tenant)
            caller = Caller(identity.name, role, identity.tenant, tenant, known=True)
            CALLER.set(caller)
            become(self._turns.account(tenant, f"{role.value} {caller.full_name}"))
            return self.calls.begin(context.peer(), caller.full_name, role)
        except (PermissionDenied, TooManyCalls) as refusal:
            self._note(identity.subject, method, refusal.message)
            await abort(context, refusal)
            raise

    def _note(self, subject: str, method: str, message: str) -> None:
        now = time.monotonic()
        if now - self._refused.get((subject, method), -_REPEAT_SECONDS) < _REPEAT_SECONDS:
            return
        self._refused[subject, method] = now
        self._refused.move_to_end((subject, method))
        if len(self._refused) > _MOST_REPEATS:
            self._refused.popitem(last=False)
        self._events.record(EventKind.ACCESS_REFUSED, message)


def _allowed_role(identity: Identity, method: str) -> Role:
    """Return the role of a caller that may make a call.

    Raises:
        PermissionDenied: it may not.

    """
    allowed = RIGHTS.get(method, frozenset())
    if max(len(identity.name), len(identity.tenant)) > NAME_LENGTH:
        raise PermissionDenied(f"a name (CN) and an organization (O) have at most {NAME_LENGTH} characters")
    if identity.role in allowed and identity.name:
        return identity.role
    named = identity.role.value if identity.role is not None else "no known role (OU)"
    who = f"{identity.subject} has the role {named}" if identity.name else f"{identity.subject} has no name (CN)"
    needed = ", ".join(sorted(role.value for role in allowed)) or "(no role has it)"
    raise PermissionDenied(f"{who}, and {method.rpartition('.')[2]} needs one of: {needed}")


def _said(context: grpc.aio.ServicerContext) -> str:
    """Return the caller of a call without a certificate: the name that it gives itself, and its address."""
    said = dict(context.invocation_metadata() or ()).get(ACTOR_KEY, b"")
    name = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return f"{name[:100]} at {context.peer()}" if name else str(context.peer())


def require_agent(name: str) -> None:
    """Check that the caller's certificate is that of the agent of this name.

    Raises:
        PermissionDenied: it is that of another agent.

    """
    caller = CALLER.get()
    if caller.known and caller.name != name:
        raise PermissionDenied(
            f"the certificate of agent {caller.name} does not speak for agent {name[:64]!r}; start it with --name"
            f" {caller.name}, or issue a certificate for the other name"
        )


def require_tenant(job: Job) -> None:
    """Check that the caller may change a job: an operator those of its tenant, an administrator all.

    Raises:
        PermissionDenied: the job belongs to another tenant.

    """
    caller = CALLER.get()
    if caller.role is not Role.ADMIN and caller.tenant != job.tenant:
        raise PermissionDenied(
            f"job {job.name} belongs to {_tenant(job.tenant)}, and operator {caller.name} to {_tenant(caller.tenant)}"
        )


def _tenant(name: str) -> str:
    return f"tenant {name}" if name else "no tenant"
