"""The bounds of the texts, byte strings and lists in P4Runtime requests; docs/reference/limits.md has the same table.

They are wider than what an entity may have, because an error of one entity must not fail the others in its batch.
"""

from __future__ import annotations

from typing import Final

from switchml.common.message_bounds import Bound, Bounds, octets, rows, text

__all__ = ["BOUNDS", "MESSAGE_BYTES"]

_BATCH: Final = rows(4096)
MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of a request: gRPC's default limit, which the specification requires at least."""
_ROLE: Final = text(256)
_TEXT: Final = text(1024)
_VALUE: Final = octets(16 * 1024)
_ENTRIES: Final = rows(1024)

_TEXTS: Final = (
    *("Any.type_url", "P4Data.enum", "P4Data.enum_value", "P4Data.error", "P4HeaderUnion.valid_header_name"),
    "Status.message",
)
_VALUES: Final = (
    *("Any.value", "Exact.value", "LPM.value", "Optional.value", "Range.low", "Range.high"),
    *("Ternary.value", "Ternary.mask", "Param.value", "PacketMetadata.value", "P4Data.bitstring", "P4Varbit.bitstring"),
    *("TableEntry.metadata", "MulticastGroupEntry.metadata", "PacketOut.payload"),
    *("Replica.port", "BackupReplica.port", "Member.watch_port", "ActionProfileAction.watch_port"),
)
_LISTS: Final = (
    *("TableEntry.match", "Action.params", "MulticastGroupEntry.replicas", "CloneSessionEntry.replicas"),
    *("Replica.backup_replicas", "ActionProfileActionSet.action_profile_actions", "ActionProfileGroup.members"),
    *("ValueSetEntry.members", "ValueSetMember.match", "PacketOut.metadata", "P4HeaderUnionStack.entries"),
    *("P4HeaderStack.entries", "P4StructLike.members", "Status.details"),
)

BOUNDS: Final = Bounds(
    {
        "WriteRequest.role": _ROLE,
        "WriteRequest.updates": _BATCH,
        "ReadRequest.role": _ROLE,
        "ReadRequest.entities": _BATCH,
        "SetForwardingPipelineConfigRequest.role": _ROLE,
        "ForwardingPipelineConfig.p4info": octets(1024 * 1024),
        "ForwardingPipelineConfig.p4_device_config": octets(MESSAGE_BYTES),
        "Role.name": _ROLE,
        "P4Header.bitstrings": Bound(1024, 16 * 1024, "bytes"),
        **dict.fromkeys(_TEXTS, _TEXT),
        **dict.fromkeys(_VALUES, _VALUE),
        **dict.fromkeys(_LISTS, _ENTRIES),
    }
)
