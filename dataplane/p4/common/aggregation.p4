// Processes an admitted packet once the state of its slot is known: the sums, and what happens to the packet. Each register
// is accessed once.
//
// The target provides the controls that hold state: SlotExponent, SlotCheck, SlotNext, SlotValues, JobCounter, SlotFormat
// if it adds floats, and SlotOwner if it can remove values.
#ifndef SWITCHML_AGGREGATION_P4
#define SWITCHML_AGGREGATION_P4

#include "headers.p4"
#include "refusal.p4"
#include "slot_decision.p4"

// Writes the header fields of a RESULT, or of this switch's contribution to its parent, that are the same for every copy:
// all but the destination, which egress writes. The lengths remain those of the packet that caused it, which is
// well-formed, until ResultValues changes them.
control ResultHeaders(inout headers_t hdr, inout metadata_t meta) {
    apply {
        hdr.ethernet.src = meta.switch_mac;
        hdr.ipv4.identification = 0;
        hdr.ipv4.flags = IPV4_DONT_FRAGMENT;
        hdr.ipv4.fragment_offset = 0;
        hdr.ipv4.ttl = PROTOCOL_IPV4_TTL;
        hdr.ipv4.src = meta.switch_ip;
        meta.new_ipv4_header = 1;
        hdr.udp.src = PROTOCOL_UDP_PORT;
        hdr.udp.checksum = 0;  // no UDP checksum (RFC 768): the SwitchML check covers the values
    }
}

// Names in a RESULT of the parent the rank below that completed its phase, if any did, so that this rank knows that its
// own packet was answered. Hosts see one switch.
control CompletingRank(inout switchml_t packet, in metadata_t meta) {
    apply {
        if (meta.from_parent == 1) {
            packet.worker = TREE_NO_RANK;
            if (meta.completed_here == 1) {
                packet.worker = packet.owner;
            }
#if !CAN_REMOVE_VALUES
            packet.owner = 0;
#endif
        }
    }
}

// Makes a RESULT carry values exactly when its phase has values. If the packet that completed the phase, or that asks
// for a resend, came without values and another rank's had some, it grows. The ranks of a phase need not agree on
// whether they send values.
control ResultValues(inout headers_t hdr, in metadata_t meta) {
#if CAN_GROW
    @hidden
    action grow() {
        hdr.values.setValid();
        hdr.udp.length = UDP_LENGTH_VALUES;
        hdr.ipv4.total_length = IPV4_LENGTH_VALUES;
        hdr.switchml.count = VALUES;
        hdr.switchml.flags = hdr.switchml.flags & ~FLAG_WITHOUT_VALUES;
    }

    @hidden
    table result_values_table {
        key = {
            meta.verdict: ternary;
            meta.has_values: ternary;
            meta.filled_before[0:0]: ternary;
        }
        actions = {
            grow;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (VERDICT_COMPLETED, 0, 1): grow();
            (VERDICT_RESENT, 0, 1): grow();
            (VERDICT_FORWARDED, 0, 1): grow();
        }
        size = 3;
    }

    apply {
        result_values_table.apply();
    }
#else
    apply {}
#endif
}

// Updates the slot's exponent, check, smallest chunk and values as meta.phase_predicate, meta.seen and
// meta.filled_before require. Afterwards the packet holds the same ones as the slot.
control Summation(inout headers_t hdr, in metadata_t meta) {
    SlotExponent() slot_exponent;
    SlotCheck() slot_check;
    SlotNext() slot_next;
#if CAN_REMOVE_VALUES
    SlotOwner() slot_owner;
#endif
#if CAN_ADD_INTEGERS
    SlotValues() slot_values;
#endif
#if CAN_ADD_FLOATS
    SlotFormat() slot_format;
#endif

    apply {
#if CAN_ADD_FLOATS
        slot_format.apply(hdr.switchml, meta.phase_predicate, meta.seen);
#endif
        slot_exponent.apply(hdr.switchml, meta.phase_predicate, meta.seen);
        slot_check.apply(hdr.switchml, meta.phase_predicate, meta.seen);
        slot_next.apply(hdr.switchml, meta.phase_predicate, meta.seen);
#if CAN_REMOVE_VALUES
        slot_owner.apply(hdr.switchml, meta.phase_predicate, meta.seen);
#endif
#if CAN_ADD_FLOATS
        // The target adds floats when the verdict is known.
        if (hdr.switchml.format != FORMAT_FLOAT32)
#endif
#if CAN_ADD_INTEGERS
        slot_values.apply(hdr.values, hdr.switchml.slot, meta.phase_predicate, meta.seen, meta.has_values,
                          meta.filled_before);
#endif
    }
}

// Concludes ingress: afterwards every SwitchML packet has a verdict, a drop reason, or both.
control Conclusion(inout headers_t hdr, inout metadata_t meta, in PortId_t ingress_port,
                   in ParserStatus_t parser_status) {
    Refusal() refusal;
    SlotDecision() slot_decision;
    ResultHeaders() result_headers;
    ResultValues() result_values;
    JobCounter() job_counter;
    CompletingRank() completing_rank;

    apply {
        refusal.apply(hdr, meta, parser_status);
        slot_decision.apply(meta);
        if (meta.verdict != VERDICT_NONE) {
            job_counter.apply(hdr.switchml.job, meta.verdict);
        }
        if (meta.verdict == VERDICT_COMPLETED) {
            result_headers.apply(hdr, meta);
            hdr.switchml.kind = KIND_RESULT;
            meta.destination = DESTINATION_GROUP;
        } else if (meta.verdict == VERDICT_RESENT) {
            result_headers.apply(hdr, meta);
            hdr.switchml.kind = KIND_RESULT;
            meta.destination = DESTINATION_PORT;
            meta.port = ingress_port;
        } else if (meta.verdict == VERDICT_FORWARDED) {
            result_headers.apply(hdr, meta);
            meta.destination = DESTINATION_GROUP;
            meta.group = meta.group | TREE_PARENT_GROUP;
        }
        completing_rank.apply(hdr.switchml, meta);
        result_values.apply(hdr, meta);
    }
}

#endif
