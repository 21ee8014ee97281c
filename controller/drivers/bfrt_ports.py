"""The ports of a Tofino: found by their front-panel names, and set up according to the configuration.

A device port is the chip's number of a port. The device port of a front-panel port depends on the board, so the driver
asks the switch; it contains no table of device ports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc

from switchml.controller.drivers.bfrt_entities import TableNames
from switchml.controller.drivers.bfrt_schema import BadAnswer, BfrtSchema, BfrtTable, SchemaMismatch, Value
from switchml.controller.drivers.bfrt_session import BfrtError, BfrtSession
from switchml.dataplane.bfruntime import bfruntime_pb2 as pb
from switchml.dataplane.tofino_port import TofinoPort

__all__ = ["PORT_METADATA", "PORT_TABLES", "RECIRCULATION_PORT", "BfrtPorts", "pipe_of", "port_metadata_values"]

PORT_TABLES: Final[dict[str, TableNames]] = {
    "$PORT": TableNames(
        ("$DEV_PORT",), {}, ("$SPEED", "$FEC", "$PORT_ENABLE", "$AUTO_NEGOTIATION", "$LOOPBACK_MODE", "$PORT_UP")
    ),
    "$PORT_STR_INFO": TableNames(("$PORT_NAME",), {}, ("$DEV_PORT",)),
    "$PORT_HDL_INFO": TableNames(("$CONN_ID", "$CHNL_ID"), {}, ("$DEV_PORT",)),
}
"""The fixed tables of ports; $PORT_HDL_INFO is used if a release has no $PORT_STR_INFO."""

_SPEED = "BF_SPEED_{}"
# The names of values in different releases: the first one that the switch knows is written, all are understood.
_FEC = {
    "none": ("BF_FEC_TYP_NONE",),
    "firecode": ("BF_FEC_TYP_FIRECODE", "BF_FEC_TYP_FC"),
    "rs": ("BF_FEC_TYP_REED_SOLOMON", "BF_FEC_TYP_RS"),
}
_AUTONEGOTIATION = {
    "default": ("PM_AN_DEFAULT",),
    "on": ("PM_AN_FORCE_ENABLE",),
    "off": ("PM_AN_FORCE_DISABLE",),
}
_LOOPBACK = {"host": ("BF_LPBK_NONE",), "recirculation": ("BF_LPBK_MAC_NEAR",)}

PORT_METADATA = "$PORT_METADATA"
RECIRCULATION_PORT, IS_RECIRCULATED = "recirculation_port", "is_recirculated"


def pipe_of(device_port: int) -> int:
    """Return the pipe of a device port: its upper 2 bits, above 7 bits for the port (TNA's PortId_t)."""
    return device_port >> 7


@dataclass(frozen=True)
class _Place:
    """A configured port and its device port."""

    settings: TofinoPort
    device_port: int


class BfrtPorts:
    """The ports of one connected switch.

    Methods raise BfrtError, SchemaMismatch and BadAnswer; their messages name the port.
    """

    def __init__(self, schema: BfrtSchema, ports: Sequence[TofinoPort]) -> None:
        self._settings = ports
        self._port = schema.find("$PORT")
        self._metadata = _port_metadata_table(schema)
        self._schema = schema
        names = PORT_TABLES["$PORT"]
        if lacks := self._port.missing(names.keys, names.data, names.actions):
            raise SchemaMismatch("; ".join(lacks))
        self._places: dict[str, _Place] = {}

    async def set_up(self, session: BfrtSession) -> int:
        """Find all configured ports, set up those that differ, and return the number of updates written."""
        self._places = {one.name: _Place(one, await self._find(session, one)) for one in self._settings}
        by_device: dict[int, str] = {}
        for name, place in self._places.items():
            if other := by_device.get(place.device_port):
                raise SchemaMismatch(f"ports {other} and {name} are the same device port {place.device_port}")
            by_device[place.device_port] = name
        updates = [update for place in self._places.values() for update in await self._difference(session, place)]
        updates += await self._metadata_difference(session)
        await session.write(updates)
        attribute = pb.TableAttribute(table_id=self._port.id, port_status_notify=pb.PortStatusChg(enable=True))
        notify = pb.Update(type=pb.Update.INSERT, entity=pb.Entity(table_attribute=attribute))
        await session.write([notify])
        return len(updates)

    # ---- names -----------------------------------------------------------------------------------------------------

    def device_port(self, number: int) -> int | None:
        """Return the device port of an agent's switch port; None if it is not configured."""
        return next((place.device_port for place in self._hosts() if place.settings.number == number), None)

    def describe(self, device_port: int) -> str:
        """Return the readable name of a device port."""
        for name, place in self._places.items():
            if place.device_port == device_port:
                return f"{name} (device port {device_port})"
        return f"with device port {device_port}"

    def changed(self, entry: pb.TableEntry) -> int:
        """Return the device port that a notification is about; raises BadAnswer."""
        port = self._port.read_key(entry.key).get("$DEV_PORT") if entry.table_id == self._port.id else None
        if not isinstance(port, int):
            raise BadAnswer("a notification came that names no port")
        return port

    def _hosts(self) -> list[_Place]:
        return [place for place in self._places.values() if place.settings.role == "host"]

    async def _find(self, session: BfrtSession, port: TofinoPort) -> int:
        if port.internal:
            return int(port.name)
        key: dict[str, Value] = {"$PORT_NAME": port.name}
        try:
            table = self._schema.find("$PORT_STR_INFO")
        except SchemaMismatch:
            table = self._schema.find("$PORT_HDL_INFO")
            connector, channel = map(int, port.name.split("/"))
            key = {"$CONN_ID": connector, "$CHNL_ID": channel}
        try:
            _, values = await _read(session, table, key)
        except BfrtError as error:
            if error.lost:
                raise
            raise SchemaMismatch(f"the switch knows no port {port.name} on its front panel: {error}") from None
        number = values.get("$DEV_PORT")
        if not isinstance(number, int):
            raise BadAnswer(f"table {table.name} has no $DEV_PORT for port {port.name}")
        return number

    # ---- set-up ----------------------------------------------------------------------------------------------------

    async def _difference(self, session: BfrtSession, place: _Place) -> list[pb.Update]:
        """Return the updates that set a port up; a port without a speed is internal and always exists."""
        settings = place.settings
        if not settings.speed:
            return []
        choices = {
            "$SPEED": (_SPEED.format(settings.speed),),
            "$FEC": _FEC[settings.fec],
            "$AUTO_NEGOTIATION": _AUTONEGOTIATION[settings.autonegotiation],
            "$LOOPBACK_MODE": _LOOPBACK[settings.role],
        }
        wanted: dict[str, Value] = {name: self._choice(name, known) for name, known in choices.items()}
        wanted["$PORT_ENABLE"] = True
        key: dict[str, Value] = {"$DEV_PORT": place.device_port}
        held = await _read_if_there(session, self._port, key)
        kind = pb.Update.INSERT
        if held is not None:
            kind = pb.Update.MODIFY
            same = {name for name, known in choices.items() if held.get(name) in known}
            same |= {"$PORT_ENABLE"} if held.get("$PORT_ENABLE") is True else set()
            wanted = {name: value for name, value in wanted.items() if name not in same}
        if not wanted:
            return []
        entry = pb.TableEntry(table_id=self._port.id, key=self._port.key(key), data=self._port.values(wanted))
        return [pb.Update(type=kind, entity=pb.Entity(table_entry=entry))]

    def _choice(self, name: str, known: Sequence[str]) -> str:
        allowed = self._port.data[name].choices
        for one in known:
            if not allowed or one in allowed:
                return one
        raise SchemaMismatch(f"the switch knows no {name} {' or '.join(known)}, only {', '.join(allowed)}")

    async def _metadata_difference(self, session: BfrtSession) -> list[pb.Update]:
        """Return the updates of the port metadata, which tells the program which ports recirculate packets."""
        table = self._metadata
        if table is None:
            return []
        key_name = next(iter(table.keys))
        updates = []
        for place in self._places.values():
            port = place.device_port
            returns = place.settings.role == "recirculation"
            if returns and not port:
                raise SchemaMismatch(
                    f"port {place.settings.name} is device port 0, which the program takes for no port: configure"
                    " another recirculation port"
                )
            recirculation = 0 if returns else self._recirculation_port(place)
            wanted = port_metadata_values(table, recirculation, returns)
            held = await _read_if_there(session, table, {key_name: port})
            if held is None or any(held.get(name) != value for name, value in wanted.items()):
                kind = pb.Update.INSERT if held is None else pb.Update.MODIFY
                entry = pb.TableEntry(table_id=table.id, key=table.key({key_name: port}), data=table.values(wanted))
                updates.append(pb.Update(type=kind, entity=pb.Entity(table_entry=entry)))
        return updates

    def _recirculation_port(self, place: _Place) -> int:
        """Return a recirculation port of the same pipe; the ports of a pipe share them in turn."""
        pipe = pipe_of(place.device_port)
        ours = [one for one in self._places.values() if pipe_of(one.device_port) == pipe]
        shared = [one.device_port for one in ours if one.settings.role == "recirculation"]
        if not shared:
            raise SchemaMismatch(
                f"port {place.settings.name} lies in pipe {pipe}, for which no recirculation port is configured: add a"
                ' [[switches.ports]] with role = "recirculation" whose port is in that pipe'
            )
        hosts = [one for one in ours if one.settings.role == "host"]
        return shared[hosts.index(place) % len(shared)]


def port_metadata_values(table: BfrtTable, port: int, returns: bool) -> dict[str, Value]:
    """Return the port metadata of a port: its recirculation port, and whether packets from it are recirculated ones.

    The table's padding fields must be present and are 0.
    """
    values: dict[str, Value] = dict.fromkeys(table.data, 0)
    values[RECIRCULATION_PORT], values[IS_RECIRCULATED] = port, int(returns)
    return values


def _port_metadata_table(schema: BfrtSchema) -> BfrtTable | None:
    """Return the program's port metadata table, or None if the program does not recirculate packets."""
    try:
        table = schema.find(PORT_METADATA)
    except SchemaMismatch:
        return None
    known = {RECIRCULATION_PORT, IS_RECIRCULATED} <= table.data.keys()
    return table if known and len(table.keys) == 1 else None


async def _read(session: BfrtSession, table: BfrtTable, key: Mapping[str, Value]) -> tuple[str, dict[str, Any]]:
    asked = pb.Entity(table_entry=pb.TableEntry(table_id=table.id, key=table.key(key)))
    async for entry in session.read([asked]):
        if entry.table_id == table.id:
            return table.read_values(entry.data)
    raise BfrtError(grpc.StatusCode.NOT_FOUND, f"table {table.name} has no entry {dict(key)}")


async def _read_if_there(session: BfrtSession, table: BfrtTable, key: Mapping[str, Value]) -> dict[str, Any] | None:
    try:
        _, values = await _read(session, table, key)
    except BfrtError as error:
        if error.lost:
            raise
        # Not every release answers NOT_FOUND for an entry that does not exist.
        return None
    return values
