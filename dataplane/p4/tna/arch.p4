// Tofino's native architecture, and what this target adds to the common types.
#ifndef SWITCHML_ARCH_P4
#define SWITCHML_ARCH_P4

#include <core.p4>
#include <tna.p4>

typedef bit<32> bitmap_t;        // one bit for each rank of a job: a stateful ALU computes with words of 32 bits
typedef bit<8> filled_t;         // 1: some rank has brought values to the phase; the narrowest word of a stateful ALU
typedef bit<16> ParserStatus_t;  // 0: the parser came to its end

// Ternary entries of 177 bits take five TCAMs for every 512 of them, and a stage has 24.
const bit<32> WORKER_ENTRIES = 1536;

// The counter of a table's entries, and what an action says to count.
#define DIRECT_COUNTER DirectCounter<bit<64>>(CounterType_t.PACKETS_AND_BYTES)
#define COUNT_ENTRY(name) name.count();

// In front of every packet between ingress and egress, and between the two passes of one that leaves as a RESULT with
// values (second_pass.p4). It never leaves the switch.
header carried_t {
    bit<4> verdict;
    @padding bit<2> unused_1;
    bit<1> flooded;
    bit<1> new_ipv4_header;
    @padding bit<7> unused_2;
    PortId_t port;             // that the packet came in through, at its first pass
    MulticastGroupId_t group;  // of a completed slot's job
}

// What headers_t and metadata_t hold for this target alone.
#define TARGET_HEADERS carried_t carried;
#define TARGET_METADATA                                                                                    \
    PortId_t second_pass_port;                                                                             \
    bit<32> phase_now; /* the slot's, after this packet: the packet's own unless it is stale */            \
    bit<32> new_epoch; /* the packet's if the slot now begins its phase, else 0, which is nobody's epoch */

// Whether a packet may leave longer than it came.
#define CAN_GROW 1

#endif
