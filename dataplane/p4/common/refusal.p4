// Why the worker table does not know a sender.
#ifndef SWITCHML_REFUSAL_P4
#define SWITCHML_REFUSAL_P4

#include "headers.p4"

control Refusal(in headers_t hdr, inout metadata_t meta) {
    bit<1> in_range;

    @name(".SwitchMLIngress.describe_job")
    action describe_job(slot_t slot_value, slot_t slot_mask) {
        in_range = (bit<1>)((hdr.switchml.slot & slot_mask) == slot_value);
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

    apply {
        in_range = 0;
        if (!job_table.apply().hit) {
            meta.reason = DROP_REASON_UNKNOWN_JOB;
        } else if (in_range == 0) {
            meta.reason = DROP_REASON_SLOT_OUT_OF_RANGE;
        } else {
            meta.reason = DROP_REASON_UNKNOWN_WORKER;
        }
    }
}

#endif
