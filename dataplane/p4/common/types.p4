// Compile-time parameters, and the per-packet metadata that the controls share.
#ifndef SWITCHML_TYPES_P4
#define SWITCHML_TYPES_P4

#include "constants.p4"

// Values per packet: a property of the pipeline that an annotation in the p4info tells the controller.
#ifndef VALUES
#define VALUES 64
#endif

// Number of pool indexes. Each has two halves, so every slot register has twice as many entries.
#ifndef SLOTS
#define SLOTS 2048
#endif

typedef bit<48> mac_t;
typedef bit<32> ipv4_t;
typedef bit<16> slot_t;    // pool index << 1 | half, as in the header: the index into every slot register

const bit<32> SLOT_ENTRIES = 2 * SLOTS;

// Values of a reason and a verdict that are not set. In constants.toml both start at 1.
const bit<8> DROP_REASON_NONE = 0;
const bit<4> VERDICT_NONE = 0;

// Where a packet goes at the end of ingress.
typedef bit<2> destination_t;
const destination_t DESTINATION_NONE = 0;   // nowhere: it is dropped, or its values stay in the slot
const destination_t DESTINATION_PORT = 1;
const destination_t DESTINATION_GROUP = 2;

// The result of comparing a contribution's phase with the phase in the slot.
typedef bit<3> phase_predicate_t;
const phase_predicate_t PHASE_STALE = 0;  // older, or the packet is not for a slot
const phase_predicate_t PHASE_SAME = 1;
const phase_predicate_t PHASE_NEWER = 2;  // newer, or the slot holds another epoch and is therefore free
const phase_predicate_t PHASE_REPLACED = 4;  // the same, and the packet is the parent's RESULT

// All zero when a packet arrives.
struct metadata_t {
    // The switch's own addresses; 0 until the controller has set them.
    mac_t switch_mac;
    ipv4_t switch_ip;
    bit<1> switch_mac_set;
    bit<1> switch_ip_set;
    bit<1> own_mac_source;  // the source address is the switch's own: forged
    bit<1> own_ip_source;
    bit<1> ours;            // a SwitchML packet: UDP to PROTOCOL_UDP_PORT
    bit<1> has_values;      // the packet came with values

#if CAN_DECAPSULATE_ROCEV2
    bit<32> sender;         // the sender's UDP port, or its queue pair with bit 24 set
    bit<1> bad_icrc;
#endif

    // From the sender's entry in the worker table.
    bit<1> admitted;
    bitmap_t worker_bit;
    bitmap_t job_mask;
    bit<16> epoch;
    bit<1> has_parent;      // the job has a parent above this switch
    bit<1> from_parent;     // the sender is the parent
    bit<1> completed_here;  // the parent's RESULT names this switch

    // From comparing the contribution with its slot.
    phase_predicate_t phase_predicate;
    bitmap_t seen;    // the sender's bit if it has contributed to this phase before, else 0
    bitmap_t bitmap;  // the ranks that have contributed to this phase, including the sender; then those that have not
    filled_t filled_before;  // 1: this phase had values before this packet

    // Decisions.
    bit<8> reason;
    bit<4> verdict;
    destination_t destination;
    PortId_t port;
    MulticastGroupId_t group;  // that of the job, or of a flooded frame
    bit<1> new_ipv4_header;  // the switch wrote the IPv4 header, so its checksum must be computed
    bit<1> forwarded;        // ordinary traffic to one port
    bit<1> flooded;          // ordinary traffic to a multicast group; no copy goes back through the ingress port

#if CAN_REMOVE_VALUES
    bitmap_t listeners;  // in egress, the ranks that this copy of a RESULT goes to
#endif

    TARGET_METADATA
}

#endif
