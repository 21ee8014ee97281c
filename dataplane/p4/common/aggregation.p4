// One CONTRIBUTION, from the checks to the RESULT. Each register is touched once, in an order that a pipeline of
// stages can keep: worker table, epoch, phase, bitmap, then exponent, check and values side by side.
//
// The target brings the controls that hold state, under these names: WorkerAdmission, SlotState, SlotExponent,
// SlotCheck, SlotValues and JobCounter.
#ifndef SWITCHML_AGGREGATION_P4
#define SWITCHML_AGGREGATION_P4

#include "headers.p4"
#include "malformed.p4"
#include "refusal.p4"
#include "slot_decision.p4"

// What a RESULT has whatever the rank: all but the destination, which egress writes into each copy. Lengths are those
// of the contribution, which was found well-formed.
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

control Aggregation(inout headers_t hdr, inout metadata_t meta, in PortId_t ingress_port, in bit<1> parser_failed) {
    MalformedCheck() malformed_check;
    WorkerAdmission() worker_admission;
    Refusal() refusal;
    SlotState() slot_state;
    SlotDecision() slot_decision;
    SlotExponent() slot_exponent;
    SlotCheck() slot_check;
    SlotValues() slot_values;
    ResultHeaders() result_headers;
    JobCounter() job_counter;

    bit<1> admitted;
    relation_t relation;
    bitmap_t bitmap;

    apply {
        malformed_check.apply(hdr, meta, parser_failed);
        if (meta.reason == DROP_REASON_NONE) {
            worker_admission.apply(hdr, meta, ingress_port, admitted);
            if (admitted == 0) {
                refusal.apply(hdr, meta);
            } else {
                if (hdr.switchml.epoch != meta.epoch) {
                    meta.verdict = VERDICT_WRONG_EPOCH;
                    meta.reason = DROP_REASON_WRONG_EPOCH;
                } else {
                    slot_state.apply(hdr.switchml, meta.worker_bit, relation, bitmap);
                    slot_decision.apply(meta, relation, bitmap);
                    slot_exponent.apply(hdr.switchml, meta.operation);
                    slot_check.apply(hdr.switchml, meta.operation);
                    // An exponent-only packet carries no values and leaves the lanes as they are. One phase of a slot
                    // sees both kinds only by a worker's error; the RESULT is then of the kind of the packet that
                    // completed it or asked for it, and its check does not hold.
                    if (hdr.values.isValid()) {
                        slot_values.apply(hdr.values, hdr.switchml.slot, meta.operation);
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
                }
                job_counter.apply(hdr.switchml.job, meta.verdict);
            }
        }
    }
}

#endif
