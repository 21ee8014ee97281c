// Finds the reason why a packet is refused: a SwitchML packet that is not admitted, or any packet that claims to come
// from the switch.
#ifndef SWITCHML_REFUSAL_P4
#define SWITCHML_REFUSAL_P4

#include "malformed.p4"

control Refusal(in headers_t hdr, inout metadata_t meta, in ParserStatus_t parser_status) {
    MalformedReason() malformed_reason;

    bit<1> job_known;
    slot_t range_of_packet;
    slot_t range_of_job;
    bit<1> in_range;

    @name(".SwitchMLIngress.describe_job")
    action describe_job(slot_t slot_value, slot_t slot_mask) {
        job_known = 1;
        range_of_packet = hdr.switchml.slot & slot_mask;
        range_of_job = slot_value;
    }

    @name(".SwitchMLIngress.job_table")
    table job_table {
        key = {
            hdr.switchml.job: exact @name("job");
        }
        actions = {
            describe_job;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = PROTOCOL_MAX_JOBS;
    }

    @hidden
    action refuse(bit<8> reason) {
        meta.reason = reason;
    }

    @hidden
    table refusal_table {
        key = {
            meta.ours: ternary;
            meta.admitted: ternary;
            meta.reason: ternary;
            meta.own_mac_source: ternary;
            meta.own_ip_source: ternary;
            job_known: ternary;
            in_range: ternary;
        }
        actions = {
            refuse;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            // These come before DROP_REASON_FORGED_RESULT.
            (_, 0, DROP_REASON_RUNT, _, _, _, _): refuse(DROP_REASON_RUNT);
            (_, 0, DROP_REASON_BAD_VERSION, _, _, _, _): refuse(DROP_REASON_BAD_VERSION);
            (_, 0, DROP_REASON_BAD_KIND, _, _, _, _): refuse(DROP_REASON_BAD_KIND);
            // The source is the switch's own address. Admitted packets need no such check, because a worker's address
            // is never the switch's. A forged RESULT need not use the SwitchML port: an agent may listen on any port,
            // and identifies the switch by its address.
            (_, 0, _, 1, _, _, _): refuse(DROP_REASON_FORGED_RESULT);
            (_, 0, _, _, 1, _, _): refuse(DROP_REASON_FORGED_RESULT);
            // The packet is well-formed, but its sender is not in the worker table.
            (1, 0, DROP_REASON_NONE, 0, 0, 0, _): refuse(DROP_REASON_UNKNOWN_JOB);
            (1, 0, DROP_REASON_NONE, 0, 0, 1, 0): refuse(DROP_REASON_SLOT_OUT_OF_RANGE);
            (1, 0, DROP_REASON_NONE, 0, 0, 1, 1): refuse(DROP_REASON_UNKNOWN_WORKER);
        }
        size = 8;
    }

    apply {
        job_known = 0;
        range_of_packet = 0;
        range_of_job = 0;
        in_range = 0;
        if (meta.ours == 1 && meta.admitted == 0) {
            malformed_reason.apply(hdr, meta, parser_status);
        }
        job_table.apply();
        if (range_of_packet == range_of_job) {
            in_range = 1;
        }
        refusal_table.apply();
#if CAN_DECAPSULATE_ROCEV2
        // It was not looked up in the worker table (admission.p4).
        if (meta.reason == DROP_REASON_UNKNOWN_WORKER && meta.bad_icrc == 1) {
            meta.reason = DROP_REASON_BAD_ICRC;
        }
#endif
    }
}

#endif
