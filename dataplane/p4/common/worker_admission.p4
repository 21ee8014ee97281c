// Admits senders: one entry of the worker table names a sender's port and addresses, job, rank, slots and epoch secret.
#ifndef SWITCHML_WORKER_ADMISSION_P4
#define SWITCHML_WORKER_ADMISSION_P4

#include "headers.p4"

control WorkerAdmission(in headers_t hdr, inout metadata_t meta, in PortId_t ingress_port) {
    @name(".SwitchMLIngress.worker_counter")
    DIRECT_COUNTER worker_counter;

    @name(".SwitchMLIngress.admit")
    action admit(bitmap_t worker_bit, bitmap_t job_mask, bit<16> epoch, MulticastGroupId_t group) {
        meta.admitted = 1;
        meta.worker_bit = worker_bit;
        meta.job_mask = job_mask;
        meta.epoch = epoch;
        meta.job_group = group;
        COUNT_ENTRY(worker_counter)
    }

    @name(".SwitchMLIngress.worker_table")
    @switchml_values_per_packet(VALUES)
    table worker_table {
        key = {
            ingress_port: exact @name("ingress_port");
            hdr.ethernet.src: exact @name("eth_src");
            hdr.ipv4.src: exact @name("ipv4_src");
            hdr.udp.src: exact @name("udp_src");
            hdr.switchml.job: exact @name("job");
            hdr.switchml.worker: exact @name("worker");
            hdr.switchml.secret: exact @name("secret");
            hdr.switchml.slot: ternary @name("slot");
        }
        actions = {
            admit;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        counters = worker_counter;
        size = WORKER_ENTRIES;
    }

    apply {
        worker_table.apply();
    }
}

#endif
