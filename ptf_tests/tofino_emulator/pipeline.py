"""A pipe of the switch around the program: the hardware before ingress, after egress and between them.

Time does not pass: queues are never full, and packets are lost only if the program drops them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from ptf_tests.tofino_emulator.generate_statements import PORT_METADATA_BYTES
from ptf_tests.tofino_emulator.program import Program
from ptf_tests.tofino_emulator.state import Port, State
from ptf_tests.tofino_emulator.undefined import ModelError

__all__ = ["Pipeline", "recirculates"]

_MAX_PASSES = 8
_FIRST_RECIRCULATION_PORT, _LAST_RECIRCULATION_PORT = 68, 71  # of each pipe, without a connector
_PORT_IN_PIPE = 0x7F


def recirculates(port: int, data: Port | None) -> bool:
    """Return whether packets that leave through a device port return through it."""
    if data is not None and data.data.get("$LOOPBACK_MODE", "BF_LPBK_NONE") != "BF_LPBK_NONE":
        return True
    return _FIRST_RECIRCULATION_PORT <= port & _PORT_IN_PIPE <= _LAST_RECIRCULATION_PORT


class Pipeline:
    """Process frames; ``transmit`` is called with a device port and a frame for each that leaves.

    Recirculating packets wait in ``recirculating``, which ``receive`` empties; a test that lets other packets pass
    during a recirculation calls ``admit`` and ``recirculate`` itself.
    """

    def __init__(self, program: Mapping[str, Any], state: State, transmit: Callable[[int, bytes], None]) -> None:
        self.program = Program(program, state)
        self.recirculating: deque[tuple[int, bytes]] = deque()
        self._state, self._transmit = state, transmit
        self._loads = state.loads
        self._ingress_head = _Head(self.program.ingress.headers["ig_intr_md"])
        self._egress_head = _Head(self.program.egress.headers["eg_intr_md"])

    def receive(self, port: int, frame: bytes) -> None:
        """Process a frame from a port, including its recirculations. Raises ModelError."""
        self.admit(port, frame)
        passes = 1
        while self.recirculating:
            passes += 1
            if passes > _MAX_PASSES:
                raise ModelError(f"a packet from port {port} still recirculates after {_MAX_PASSES} passes")
            self.recirculate()

    def recirculate(self) -> None:
        """Process the packet that has waited longest for its recirculation."""
        self.admit(*self.recirculating.popleft())

    def admit(self, port: int, frame: bytes) -> None:
        """Process one pass of a frame."""
        if self._loads != self._state.loads:
            self.program.bind(self._state)
            self._loads = self._state.loads
        head = self._ingress_head(ingress_port=port) + bytes(PORT_METADATA_BYTES)
        done = self.program.ingress(head + frame, len(frame))
        if done is None:
            return
        packet, results, leftovers = done
        # Fields that were never set are not presented to the traffic manager.
        unicast, group_a, group_b, rid, exclusion_1, exclusion_2, bypass = (
            value if isinstance(value, int) else None for value in results
        )
        if exclusion_2:
            raise ModelError("level 2 exclusion is not modelled")
        copies = [] if unicast is None else [(unicast, rid or 0, True)]
        for group in (group_a, group_b):
            if group is not None:
                copies += self._replicas(group, exclusion_1)
        for out_port, out_rid, first in copies:
            if leftovers and not (bypass and recirculates(out_port, self._state.ports.get(out_port))):
                leftovers[0].fail()
            if bypass:
                self._leave(out_port, packet)
            else:
                self._egress(out_port, out_rid, first, packet)

    def _replicas(self, group: int, exclusion: int | None) -> list[tuple[int, int, bool]]:
        """Return (port, replication id, is the first) of each copy; an unknown group has none."""
        found = self._state.groups.get(group)
        if found is None:
            return []
        copies: list[tuple[int, int, bool]] = []
        for number, node_id in enumerate(found.node_ids):
            excludable = number < len(found.xid_valid) and found.xid_valid[number]
            if excludable and exclusion is not None and found.xid[number] == exclusion:
                continue
            node = self._state.nodes[node_id]
            if node.lags:
                raise ModelError(f"multicast node {node_id} has link aggregation groups, which are not modelled")
            copies += [(port, node.rid, not copies) for port in node.ports]
        return copies

    def _egress(self, port: int, rid: int, first: bool, packet: bytes) -> None:
        head = self._egress_head(
            egress_port=port, egress_rid=rid, egress_rid_first=int(first), pkt_length=len(packet) & 0xFFFF
        )
        done = self.program.egress(head + packet, len(packet))
        if done is None:
            return
        packet, _, leftovers = done
        if leftovers:
            leftovers[0].fail()
        self._leave(port, packet)

    def _leave(self, port: int, frame: bytes) -> None:
        if recirculates(port, self._state.ports.get(port)):
            self.recirculating.append((port, frame))
        else:
            self._transmit(port, frame)


class _Head:
    """Packs intrinsic metadata: fields by name, all others 0."""

    def __init__(self, fields: Mapping[str, int]) -> None:
        self._size = sum(fields.values()) // 8
        self._shifts: dict[str, int] = {}
        left = sum(fields.values())
        for name, width in fields.items():
            left -= width
            self._shifts[name] = left

    def __call__(self, **values: int) -> bytes:
        bits = 0
        for name, value in values.items():
            bits |= value << self._shifts[name]
        return bits.to_bytes(self._size, "big")
