// Counts drops by reason and verdicts by job.
#ifndef SWITCHML_COUNTERS_P4
#define SWITCHML_COUNTERS_P4

#include "arch.p4"
#include "../common/types.p4"

// Declared outside the controls because ingress and egress both count drops.
counter<bit<8>>(32, CounterType.packets_and_bytes) drop_counter;

control DropCounter(in bit<8> reason) {
    apply {
        drop_counter.count(reason);
    }
}

control JobCounter(in bit<16> job, in bit<4> verdict) {
    @name(".SwitchMLIngress.job_counter")
    counter<bit<20>>(16 * PROTOCOL_MAX_JOBS, CounterType.packets_and_bytes) job_counter;

    apply {
        job_counter.count(job ++ verdict);
    }
}

#endif
