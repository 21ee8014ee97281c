"""The bounds of all texts and lists in the requests of clients and the messages of agents.

docs/reference/limits.md has the same table; tests/unit/test_bounds.py compares both with each other and with the
.proto files.
"""

from __future__ import annotations

from typing import Final

from switchml.common.job_numbers import MAXIMUM_AGGREGATORS
from switchml.common.message_bounds import Bounds, rows, text, texts
from switchml.common.names import NAME_LENGTH
from switchml.common.printable import REASON_LENGTH, WORD_LENGTH
from switchml.controller.jobs.rendezvous import MAX_KEY
from switchml.controller.northbound.probes import MOST_AGENTS
from switchml.controller.northbound.profiles import MOST_BUCKETS, MOST_CALLS
from switchml.dataplane.constants import PROTOCOL_MAX_SLOT_INDEX, PROTOCOL_MAX_WORLD

__all__ = ["BOUNDS"]

_ADDRESS: Final = 256  # of hosts, sockets, versions
_PORTS: Final = 4096
_KINDS: Final = 64  # of events, more than there are

BOUNDS: Final = Bounds(
    {
        "StartJobRequest.name": text(NAME_LENGTH),
        "StartJobRequest.switch": text(NAME_LENGTH),
        "StartJobRequest.aggregators": texts(MAXIMUM_AGGREGATORS, NAME_LENGTH),
        "StartJobRequest.agents": texts(MOST_AGENTS, 2 * NAME_LENGTH + 1),
        "JobReference.name": text(NAME_LENGTH),
        "DrainRequest.name": text(NAME_LENGTH),
        "ShowSwitchRequest.name": text(NAME_LENGTH),
        "ReadEventsRequest.kinds": texts(_KINDS, WORD_LENGTH),
        "ReadEventsRequest.level": text(WORD_LENGTH),
        "ReadEventsRequest.switch": text(NAME_LENGTH),
        "SetLossRequest.name": text(NAME_LENGTH),
        "SetLossRequest.ports": rows(_PORTS),
        "Register.version": text(_ADDRESS),
        "Register.name": text(NAME_LENGTH),
        "Register.host": text(_ADDRESS),
        "Register.address": text(_ADDRESS),
        "Register.mac": text(_ADDRESS),
        "Register.socket": text(_ADDRESS),
        "Register.switch": text(NAME_LENGTH),
        "Register.instance": text(_ADDRESS),
        "Heartbeat.ranks": rows(PROTOCOL_MAX_WORLD),
        "AssignmentReady.endpoints": rows(PROTOCOL_MAX_WORLD),
        "Endpoint.address": text(_ADDRESS),
        "AssignmentFailed.reason": text(REASON_LENGTH),
        "RankEvent.detail": text(REASON_LENGTH),
        "Call.operation": text(WORD_LENGTH),
        "Call.dtype": text(WORD_LENGTH),
        "Call.op": text(WORD_LENGTH),
        "RankAnnouncement.key": text(MAX_KEY),
        "RankAnnouncement.aggregators": texts(MAXIMUM_AGGREGATORS, NAME_LENGTH),
        "ProbeAnswer.failure": text(REASON_LENGTH),
        "Positions.ranks": rows(PROTOCOL_MAX_WORLD),
        "RankPositions.phases": rows(PROTOCOL_MAX_SLOT_INDEX + 1),
        "RankProfiles.ranks": rows(PROTOCOL_MAX_WORLD),
        "RankProfile.agent": text(NAME_LENGTH),
        "RankProfile.calls_by_duration": rows(MOST_BUCKETS),
        "RankProfile.round_trips_by_duration": rows(MOST_BUCKETS),
        "RankProfile.latest": rows(MOST_CALLS),
        "CallProfile.operation": text(WORD_LENGTH),
        "CallProfile.dtype": text(WORD_LENGTH),
    }
)
