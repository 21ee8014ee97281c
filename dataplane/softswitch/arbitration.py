"""Client arbitration by election id, for every role of the device: it decides which client may write.

P4Runtime specification, "Client Arbitration and Controller Replication". Requests are handled one at a time and a
Write never waits, so no write is in flight while the primary changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import grpc
from finsy.proto import U128, p4r, rpc_code

from switchml.dataplane.softswitch.errors import P4RuntimeError
from switchml.dataplane.softswitch.table_entry import invalid

__all__ = ["Arbitration", "Client"]

_LOG = logging.getLogger(__name__)

_MAX_CLIENTS = 64
_MAX_ROLES = 64


class Client:
    """One stream. ``notify`` passes a message to it without waiting."""

    def __init__(self, peer: str, notify: Callable[[p4r.StreamMessageResponse], None]) -> None:
        self.peer = peer
        self.notify = notify
        self.election_id: int | None = None
        self.role: _Role | None = None


class _Role:
    """A role's live clients, its primary, and the highest election id so far."""

    def __init__(self, device_id: int, name: str) -> None:
        self.name = name
        self.clients: list[Client] = []
        self.primary: Client | None = None
        self.highest: int | None = None
        self._device_id = device_id

    def notify(self, clients: list[Client]) -> None:
        for client in clients:
            update = p4r.MasterArbitrationUpdate(device_id=self._device_id)
            if self.name:
                update.role.name = self.name
            if self.highest is not None:
                update.election_id.CopyFrom(U128.encode(self.highest))
            if client is self.primary:
                update.status.code = rpc_code.OK
                update.status.message = "you are the primary client"
            elif self.primary is not None:
                update.status.code = rpc_code.ALREADY_EXISTS
                update.status.message = "you are a backup client: another client is primary"
            else:
                update.status.code = rpc_code.NOT_FOUND
                update.status.message = "there is no primary client"
            client.notify(p4r.StreamMessageResponse(arbitration=update))


class Arbitration:
    """The clients of one device."""

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id
        self._roles = {"": _Role(device_id, "")}

    def update(self, client: Client, message: p4r.MasterArbitrationUpdate) -> None:
        """Handle a MasterArbitrationUpdate and notify the clients that it concerns.

        Raises P4RuntimeError, which ends the client's stream.
        """
        if client.role is None:
            self.check_device(message.device_id)
        elif message.device_id != self._device_id:
            raise P4RuntimeError(grpc.StatusCode.FAILED_PRECONDITION, f"this stream is for device {self._device_id}")
        role = self._role_of(message)
        if client.role is not None and client.role is not role:
            raise P4RuntimeError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"this stream has role {client.role.name!r}: close it and open another one to change the role",
            )
        election_id = U128.decode(message.election_id) if message.HasField("election_id") else None
        if election_id is not None and any(c.election_id == election_id for c in role.clients if c is not client):
            raise invalid(f"election id {election_id} is already used by another client of role {role.name!r}")
        if client.role is None:
            if len(role.clients) >= _MAX_CLIENTS:
                raise P4RuntimeError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED, f"role {role.name!r} already has {_MAX_CLIENTS} streams"
                )
            self._roles[role.name] = role
            role.clients.append(client)
            client.role = role
        client.election_id = election_id
        self._elect(role, client)

    def close(self, client: Client) -> None:
        """Remove a client whose stream has ended; if it was the primary, its role has no primary any more."""
        role = client.role
        if role is None:
            return
        role.clients.remove(client)
        client.role = None
        if role.primary is client:
            role.primary = None
            _LOG.info("the primary client %s of role %r has disconnected", client.peer, role.name)
            role.notify(role.clients)

    def check_device(self, device_id: int) -> None:
        """Raise P4RuntimeError NOT_FOUND for any device but this one."""
        if device_id != self._device_id:
            raise P4RuntimeError(
                grpc.StatusCode.NOT_FOUND, f"there is no device {device_id} here; this is device {self._device_id}"
            )

    def check_primary(self, request: p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest) -> None:
        """Raise P4RuntimeError unless the request comes from the primary client of its device and role."""
        self.check_device(request.device_id)
        if request.role_id:
            raise P4RuntimeError(grpc.StatusCode.NOT_FOUND, "there are no numeric roles here: use the role's name")
        role = self._roles.get(request.role)
        if role is None:
            raise P4RuntimeError(grpc.StatusCode.NOT_FOUND, f"this device has no role {request.role[:80]!r}")
        election_id = U128.decode(request.election_id) if request.HasField("election_id") else None
        if role.primary is None or election_id is None or role.primary.election_id != election_id:
            shown = "not set" if election_id is None else str(election_id)
            raise P4RuntimeError(
                grpc.StatusCode.PERMISSION_DENIED,
                f"only the primary client may do this: election id {shown} is not that of the primary",
            )

    def _role_of(self, message: p4r.MasterArbitrationUpdate) -> _Role:
        name = message.role.name
        if message.role.id:
            raise invalid("roles have names since P4Runtime 1.4: role.id is not supported")
        if message.role.HasField("config"):
            raise invalid(f"role {name[:80]!r}: no role configuration is known here; leave role.config unset")
        role = self._roles.get(name)
        if role is not None:
            return role
        if len(self._roles) >= _MAX_ROLES:
            raise P4RuntimeError(grpc.StatusCode.RESOURCE_EXHAUSTED, f"the device already has {_MAX_ROLES} roles")
        return _Role(self._device_id, name)

    def _elect(self, role: _Role, client: Client) -> None:
        election_id = client.election_id
        if election_id is not None and (role.highest is None or election_id >= role.highest):
            others = [other for other in role.clients if other is not client]
            if role.primary is not client:
                _LOG.info("%s is the primary client of role %r, election id %d", client.peer, role.name, election_id)
            role.primary = client
            role.highest = election_id
            role.notify(others)
            role.notify([client])
        elif role.primary is client:
            role.primary = None
            role.notify(role.clients)
        else:
            role.notify([client])
