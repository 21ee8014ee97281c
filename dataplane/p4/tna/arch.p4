// Includes Tofino's native architecture (TNA), and defines what this target adds to the common types. The program's file
// has defined what is different in each program.
#ifndef SWITCHML_ARCH_P4
#define SWITCHML_ARCH_P4

#include <core.p4>
#include <tna.p4>

typedef bit<32> bitmap_t;        // one bit for each rank of a job: a stateful ALU computes with words of 32 bits
typedef bit<8> filled_t;         // 1: the phase has values; 8 bits is the narrowest word of a stateful ALU
typedef bit<16> ParserStatus_t;  // 0: the parser reached its end without error

// Ternary entries of 185 bits take five TCAMs for every 512 of them, and a stage has 24.
const bit<32> WORKER_ENTRIES = 1536;

// The type of a table's direct counter, and the statement with which an action counts.
#define DIRECT_COUNTER DirectCounter<bit<64>>(CounterType_t.PACKETS_AND_BYTES)
#define COUNT_ENTRY(name) name.count();

// Bridged metadata: precedes every packet between ingress and egress, and a RESULT with values while it is recirculated
// (recirculation.p4). It never leaves the switch.
header bridged_metadata_t {
    bit<4> verdict;
    BRIDGED_FLAGS
    bit<1> flooded;
    bit<1> new_ipv4_header;
    @padding bit<7> unused_2;
    PortId_t port;             // the ingress port, from before a recirculation
    MulticastGroupId_t group;  // the multicast group of the job, for a completed slot
}

// Additional members of metadata_t on this target.
#define TARGET_METADATA                                                                                         \
    PortId_t recirculation_port;                                                                                \
    bit<32> phase_now; /* phase of the slot after this packet: equal to the packet's unless that is stale */    \
    bit<32> new_epoch; /* epoch of the packet if it is the first of its phase, else 0, which is never an epoch */

// Whether a packet may grow in the switch.
#define CAN_GROW 1

// 1: the pipeline takes packets of RDMA cards (encapsulation.p4).
#define CAN_DECAPSULATE_ROCEV2 0
// The number that tells the senders of one host apart.
#define SENDER hdr.udp.src

// Whether some copies of a RESULT can leave without its values. The egress parser cannot pass over them, because it
// reads at most 160 bytes of a packet.
#define CAN_REMOVE_VALUES 0

// True if contributions may have codes. Expanding them takes a lookup in front of the stateful ALU of every lane, and the
// lanes begin in the stage after the one that has decided what they do; no stages are left.
#define CAN_EXPAND_CODES 0

// True if contributions may have floats as well as integers.
#define CAN_ADD_FLOATS 0

// The parent's bit in a bitmap: the last one.
const bitmap_t FINAL = 32w1 << 31;

#endif
