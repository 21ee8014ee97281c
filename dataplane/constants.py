# Generated from dataplane/constants.toml by tools/generate; do not edit.
"""Wire constants, verdicts and drop reasons."""

from enum import IntEnum, IntFlag
from typing import Final


class Kind(IntEnum):
    """Members of [kind] in constants.toml."""

    CONTRIBUTION = 1
    RESULT = 2


class Format(IntEnum):
    """Members of [format] in constants.toml."""

    INT32 = 1
    FLOAT32 = 2
    NATURAL8 = 4
    DYNAMIC8 = 5


class Flag(IntFlag):
    """Members of [flag] in constants.toml."""

    WITHOUT_VALUES = 1
    LAST_CHUNK = 2
    RETRANSMISSION = 4


class Verdict(IntEnum):
    """Members of [verdict] in constants.toml."""

    AGGREGATED = 1
    COMPLETED = 2
    RESENT = 3
    DUPLICATE = 4
    STALE = 5
    WRONG_EPOCH = 6
    FORWARDED = 7


class DropReason(IntEnum):
    """Members of [drop_reason] in constants.toml."""

    RUNT = 1
    BAD_VERSION = 2
    BAD_KIND = 3
    FORGED_RESULT = 4
    BAD_FORMAT = 5
    BAD_EXPONENT = 6
    BAD_COUNT = 7
    BAD_LENGTH = 8
    BAD_HALF = 9
    UNKNOWN_JOB = 10
    SLOT_OUT_OF_RANGE = 11
    UNKNOWN_WORKER = 12
    WRONG_EPOCH = 13
    STALE = 14
    DUPLICATE = 15
    NO_RANK_ADDRESS = 16
    NO_ROUTE = 17
    INJECTED_LOSS = 18
    BAD_ICRC = 19


PROTOCOL_VERSION: Final = 1
PROTOCOL_UDP_PORT: Final = 0xBEE0
PROTOCOL_HEADER_BYTES: Final = 32
PROTOCOL_IPV4_TTL: Final = 64
PROTOCOL_MAX_WORKERS: Final = 64
PROTOCOL_MAX_WORLD: Final = 4096
PROTOCOL_MAX_JOBS: Final = 1024
PROTOCOL_MAX_VALUES: Final = 2048
PROTOCOL_MAX_SLOT_INDEX: Final = 32767

ROCEV2_UDP_PORT: Final = 4791
ROCEV2_OPCODE: Final = 100
ROCEV2_QUEUE_PAIR: Final = 0x80BEE0
ROCEV2_PARTITION_KEY: Final = 0xFFFF
ROCEV2_OVERHEAD_BYTES: Final = 24
ROCEV2_QUEUE_PAIRS: Final = 0x1000000
ROCEV2_GRH_BYTES: Final = 40

DYNAMIC8_UNIT_BITS: Final = 25
DYNAMIC8_START_0: Final = 18
DYNAMIC8_START_1: Final = 109
DYNAMIC8_START_2: Final = 713
DYNAMIC8_START_3: Final = 5243
DYNAMIC8_START_4: Final = 0xA7F0
DYNAMIC8_START_5: Final = 0x5D70A
DYNAMIC8_START_6: Final = 0x36CCCD
DYNAMIC8_STEP_1: Final = 151
DYNAMIC8_STEP_2: Final = 755
DYNAMIC8_STEP_3: Final = 3775
DYNAMIC8_STEP_4: Final = 18874
DYNAMIC8_STEP_5: Final = 0x170A4
DYNAMIC8_STEP_6: Final = 0x73333

OWNER_EVERYONE: Final = 0
OWNER_FIRST: Final = 1
OWNER_EXCEPT: Final = 128

EXPONENT_MAX_FINITE: Final = 254
EXPONENT_NON_FINITE: Final = 255
EXPONENT_UNKNOWN: Final = 256

NEXT_EXPONENT_BITS: Final = 9
NEXT_NONE: Final = 0xFFFFFFFF

TREE_PARENT_GROUP: Final = 1024
TREE_FIRST_PARENT_INSTANCE: Final = 256
TREE_NO_RANK: Final = 255
TREE_PARENT_NUMBER: Final = 63
