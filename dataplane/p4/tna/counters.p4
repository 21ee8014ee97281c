// Counts drops by reason and verdicts by job. On TNA a counter belongs to either ingress or egress, so each has its own
// drop counter; the sum of the two is what v1model counts in one.
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

// Does not count the bytes of the bridged metadata, which precedes the frame in egress.
control EgressDropCounter(in headers_t hdr, in bit<8> reason) {
    @name(".SwitchMLEgress.drop_counter")
    Counter<bit<64>, bit<8>>(256, CounterType_t.PACKETS_AND_BYTES) drop_counter;

    apply {
        drop_counter.count(reason, sizeInBytes(hdr.bridged));
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
