// One CONTRIBUTION after its slot was asked: the sums, side by side, and what becomes of the packet. Each register is
// touched once.
//
// The target brings the controls that hold state, under these names: SlotExponent, SlotCheck, SlotValues and
// JobCounter.
#ifndef SWITCHML_AGGREGATION_P4
#define SWITCHML_AGGREGATION_P4

#include "headers.p4"
#include "refusal.p4"
#include "slot_decision.p4"

// The headers that a RESULT has whatever the rank: all but the destination, which egress writes into each copy. Lengths
// are those of the contribution, which was found well-formed, until ResultValues changes them.
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
        hdr.udp.checksum = 0;  // none (RFC 768): the values are covered by our own check
        hdr.switchml.kind = KIND_RESULT;
    }
}

// A RESULT has values exactly when its phase has: where the packet that completed the phase, or asks again, has none and
// others had, it grows. The ranks of one phase need not agree whether they have any.
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
        }
        size = 2;
    }

    apply {
        result_values_table.apply();
    }
#else
    apply {}
#endif
}

// Whatever meta.relation, meta.seen and meta.filled_before say is done to the slot's exponent, check and values.
// Afterwards the packet holds what the slot does.
control Summation(inout headers_t hdr, in metadata_t meta) {
    SlotExponent() slot_exponent;
    SlotCheck() slot_check;
    SlotValues() slot_values;

    apply {
        slot_exponent.apply(hdr.switchml, meta.relation, meta.seen);
        slot_check.apply(hdr.switchml, meta.relation, meta.seen);
        slot_values.apply(hdr.values, hdr.switchml.slot, meta.relation, meta.seen, meta.has_values,
                          meta.filled_before);
    }
}

// Every packet of ours has a verdict or a drop reason in the end, or both.
control Conclusion(inout headers_t hdr, inout metadata_t meta, in PortId_t ingress_port,
                   in ParserStatus_t parser_status) {
    Refusal() refusal;
    SlotDecision() slot_decision;
    ResultHeaders() result_headers;
    ResultValues() result_values;
    JobCounter() job_counter;

    apply {
        refusal.apply(hdr, meta, parser_status);
        slot_decision.apply(meta);
        if (meta.verdict != VERDICT_NONE) {
            job_counter.apply(hdr.switchml.job, meta.verdict);
        }
        if (meta.verdict == VERDICT_COMPLETED) {
            result_headers.apply(hdr, meta);
            meta.destination = DESTINATION_GROUP;
            meta.group = meta.job_group;
        } else if (meta.verdict == VERDICT_RESENT) {
            result_headers.apply(hdr, meta);
            meta.destination = DESTINATION_PORT;
            meta.port = ingress_port;
        }
        result_values.apply(hdr, meta);
    }
}

#endif
