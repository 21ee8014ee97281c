// Generated from dataplane/constants.toml by tools/generate; do not edit.
#ifndef SWITCHML_CONSTANTS_P4
#define SWITCHML_CONSTANTS_P4

const bit<8> PROTOCOL_VERSION = 1;
const bit<16> PROTOCOL_UDP_PORT = 0xBEE0;
const bit<32> PROTOCOL_HEADER_BYTES = 32;
const bit<8> PROTOCOL_IPV4_TTL = 64;
const bit<32> PROTOCOL_MAX_WORKERS = 64;
const bit<32> PROTOCOL_MAX_WORLD = 4096;
const bit<32> PROTOCOL_MAX_JOBS = 1024;
const bit<32> PROTOCOL_MAX_VALUES = 2048;
const bit<32> PROTOCOL_MAX_SLOT_INDEX = 32767;

const bit<16> ROCEV2_UDP_PORT = 4791;
const bit<8> ROCEV2_OPCODE = 100;
const bit<24> ROCEV2_QUEUE_PAIR = 0x80BEE0;
const bit<16> ROCEV2_PARTITION_KEY = 0xFFFF;
const bit<16> ROCEV2_OVERHEAD_BYTES = 24;

const bit<8> KIND_CONTRIBUTION = 1;
const bit<8> KIND_RESULT = 2;

const bit<8> FORMAT_INT32 = 1;
const bit<8> FORMAT_FLOAT32 = 2;
const bit<8> FORMAT_NATURAL8 = 4;
const bit<8> FORMAT_DYNAMIC8 = 5;

const bit<32> DYNAMIC8_UNIT_BITS = 25;
const bit<32> DYNAMIC8_START_0 = 18;
const bit<32> DYNAMIC8_START_1 = 109;
const bit<32> DYNAMIC8_START_2 = 713;
const bit<32> DYNAMIC8_START_3 = 5243;
const bit<32> DYNAMIC8_START_4 = 0xA7F0;
const bit<32> DYNAMIC8_START_5 = 0x5D70A;
const bit<32> DYNAMIC8_START_6 = 0x36CCCD;
const bit<32> DYNAMIC8_STEP_1 = 151;
const bit<32> DYNAMIC8_STEP_2 = 755;
const bit<32> DYNAMIC8_STEP_3 = 3775;
const bit<32> DYNAMIC8_STEP_4 = 18874;
const bit<32> DYNAMIC8_STEP_5 = 0x170A4;
const bit<32> DYNAMIC8_STEP_6 = 0x73333;

const bit<8> FLAG_WITHOUT_VALUES = 1;
const bit<8> FLAG_LAST_CHUNK = 2;
const bit<8> FLAG_RETRANSMISSION = 4;

const bit<8> OWNER_EVERYONE = 0;
const bit<8> OWNER_FIRST = 1;

const bit<16> EXPONENT_MAX_FINITE = 254;
const bit<16> EXPONENT_NON_FINITE = 255;
const bit<16> EXPONENT_UNKNOWN = 256;

const bit<4> VERDICT_AGGREGATED = 1;
const bit<4> VERDICT_COMPLETED = 2;
const bit<4> VERDICT_RESENT = 3;
const bit<4> VERDICT_DUPLICATE = 4;
const bit<4> VERDICT_STALE = 5;
const bit<4> VERDICT_WRONG_EPOCH = 6;
const bit<4> VERDICT_FORWARDED = 7;

const bit<16> TREE_PARENT_GROUP = 1024;
const bit<16> TREE_FIRST_PARENT_INSTANCE = 256;
const bit<8> TREE_NO_RANK = 255;
const bit<32> TREE_PARENT_NUMBER = 63;

const bit<8> DROP_REASON_RUNT = 1;
const bit<8> DROP_REASON_BAD_VERSION = 2;
const bit<8> DROP_REASON_BAD_KIND = 3;
const bit<8> DROP_REASON_FORGED_RESULT = 4;
const bit<8> DROP_REASON_BAD_FORMAT = 5;
const bit<8> DROP_REASON_BAD_EXPONENT = 6;
const bit<8> DROP_REASON_BAD_COUNT = 7;
const bit<8> DROP_REASON_BAD_LENGTH = 8;
const bit<8> DROP_REASON_BAD_HALF = 9;
const bit<8> DROP_REASON_UNKNOWN_JOB = 10;
const bit<8> DROP_REASON_SLOT_OUT_OF_RANGE = 11;
const bit<8> DROP_REASON_UNKNOWN_WORKER = 12;
const bit<8> DROP_REASON_WRONG_EPOCH = 13;
const bit<8> DROP_REASON_STALE = 14;
const bit<8> DROP_REASON_DUPLICATE = 15;
const bit<8> DROP_REASON_NO_RANK_ADDRESS = 16;
const bit<8> DROP_REASON_NO_ROUTE = 17;
const bit<8> DROP_REASON_INJECTED_LOSS = 18;
const bit<8> DROP_REASON_BAD_ICRC = 19;

#endif
