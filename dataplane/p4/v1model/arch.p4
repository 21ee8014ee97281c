// Includes BMv2's architecture (v1model) and defines TNA's names for it, so that common/ works with both.
#ifndef SWITCHML_ARCH_P4
#define SWITCHML_ARCH_P4

#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

// v1model itself defines PortId_t.
typedef bit<16> MulticastGroupId_t;
typedef bit<16> ReplicationId_t;
typedef bit<64> bitmap_t;       // one bit for each rank of a job
typedef bit<1> filled_t;        // 1: the phase has values
typedef bit<1> ParserStatus_t;  // 0: the parser reached its end without error

const bit<32> WORKER_ENTRIES = 4096;

// The type of a table's direct counter, and the statement with which an action counts (not needed on v1model).
#define DIRECT_COUNTER direct_counter(CounterType.packets_and_bytes)
#define COUNT_ENTRY(name)

// Additional members of headers_t and metadata_t on this target.
#define TARGET_HEADERS
#define TARGET_METADATA

// Whether a packet may grow in the switch. BMv2 exits if one grows by more than 512 bytes.
#define CAN_GROW (4 * VALUES <= 512)

// How floats are added: not at all, or in one of the ways of floats.py. Chosen as in -DFLOATS=FLOATS_DIGITS.
#define FLOATS_NONE 0
#define FLOATS_DIGITS 1
#define FLOATS_FULL 2
#define FLOATS_A 3
#ifndef FLOATS
#define FLOATS FLOATS_NONE
#endif

// The format of contributions whose values are not in another one that the pipeline takes.
#define FORMAT_OF_WORDS FORMAT_INT32

// True if contributions may have floats (constants.toml, [format]).
#define CAN_ADD_FLOATS (FLOATS != FLOATS_NONE)
#define CAN_ADD_INTEGERS 1

// True if contributions may have codes, whose packets grow to words. A pipeline for floats has none.
#define CAN_EXPAND_CODES (!CAN_ADD_FLOATS && 3 * VALUES <= 512)

// 1: the pipeline takes packets of RDMA cards (encapsulation.p4).
#define CAN_DECAPSULATE_ROCEV2 1
// The number that tells the senders of one host apart.
#define SENDER meta.sender

// Whether some copies of a RESULT can leave without its values.
#define CAN_REMOVE_VALUES 1

// The parent's bit in a bitmap: the last one.
const bitmap_t FINAL = 64w1 << 63;

#endif
