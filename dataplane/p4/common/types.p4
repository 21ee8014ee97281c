// The compile-time choices, and what the controls tell each other about one packet.
#ifndef SWITCHML_TYPES_P4
#define SWITCHML_TYPES_P4

#include "constants.p4"

// Values per packet: a property of the pipeline, told to the controller by an annotation in the p4info.
#ifndef VALUES
#define VALUES 64
#endif

// Pool indexes. Each has two halves, so every slot register has twice as many entries.
#ifndef SLOTS
#define SLOTS 2048
#endif

typedef bit<48> mac_t;
typedef bit<32> ipv4_t;
typedef bit<16> slot_t;    // pool index << 1 | half, as it stands in the header: the index of every slot register

const bit<32> SLOT_ENTRIES = 2 * SLOTS;

// A reason or a verdict that is not set. constants.toml starts both at 1.
const bit<8> DROP_REASON_NONE = 0;
const bit<4> VERDICT_NONE = 0;

// What becomes of a packet at the end of ingress.
typedef bit<2> destination_t;
const destination_t DESTINATION_NONE = 0;   // it ends here: dropped, or its values stay in the slot
const destination_t DESTINATION_PORT = 1;
const destination_t DESTINATION_GROUP = 2;

// How a contribution's phase stands to the one that the slot holds.
typedef bit<2> relation_t;
const relation_t PHASE_STALE = 0;  // or the packet is for no slot
const relation_t PHASE_SAME = 1;
const relation_t PHASE_NEWER = 2;  // or the slot holds another epoch: it is free

// All zero when a packet arrives.
struct metadata_t {
    // The switch's own addresses; 0 until the controller has set them.
    mac_t switch_mac;
    ipv4_t switch_ip;
    bit<1> switch_mac_set;
    bit<1> switch_ip_set;
    bit<1> own_mac_source;  // the source address is the switch's own: forged
    bit<1> own_ip_source;
    bit<1> ours;            // UDP to our port
    bit<1> has_values;      // the packet brought values

    // What the worker table says of the sender.
    bit<1> admitted;
    bitmap_t worker_bit;
    bitmap_t job_mask;
    bit<16> epoch;
    MulticastGroupId_t job_group;

    // What the slot says of the contribution.
    relation_t relation;
    bitmap_t seen;    // the sender's bit if it has contributed to this phase before, else 0
    bitmap_t bitmap;  // the ranks that have contributed to this phase, the sender among them
    filled_t filled_before;  // 1: this phase had values before this packet

    // What was decided.
    bit<8> reason;
    bit<4> verdict;
    destination_t destination;
    PortId_t port;
    MulticastGroupId_t group;
    bit<1> new_ipv4_header;  // the switch wrote it: its checksum is to be computed
    bit<1> forwarded;        // ordinary traffic for one port
    bit<1> flooded;          // ordinary traffic for a whole group: no copy goes back to where it came from

    TARGET_METADATA
}

#endif
