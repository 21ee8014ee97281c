// What can be counted by name: drops by reason, verdicts by job. A counter belongs to one side of the switch here, so
// that each has its own of drops: their sum is what v1model counts in one.
#ifndef SWITCHML_COUNTERS_P4
#define SWITCHML_COUNTERS_P4

#include "arch.p4"
#include "../common/headers.p4"

control IngressDropCounter(in bit<8> reason) {
    @name(".SwitchMLIngress.drop_counter")
    Counter<bit<64>, bit<8>>(256, CounterType_t.PACKETS_AND_BYTES) drop_counter;

    apply {
        drop_counter.count(reason);
    }
}

// Without the bytes of our own header, which is still in front of the frame in egress.
control EgressDropCounter(in headers_t hdr, in bit<8> reason) {
    @name(".SwitchMLEgress.drop_counter")
    Counter<bit<64>, bit<8>>(256, CounterType_t.PACKETS_AND_BYTES) drop_counter;

    apply {
        drop_counter.count(reason, sizeInBytes(hdr.carried));
    }
}

control JobCounter(in bit<16> job, in bit<4> verdict) {
    @name(".SwitchMLIngress.job_counter")
    Counter<bit<64>, bit<14>>(16 * PROTOCOL_MAX_JOBS, CounterType_t.PACKETS_AND_BYTES) job_counter;

    apply {
        job_counter.count(job[9:0] ++ verdict);
    }
}

#endif
