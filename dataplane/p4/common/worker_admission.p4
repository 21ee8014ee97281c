// Admits senders: one entry of the worker table names a sender's port and addresses, the kind of its packets, job, rank,
// slots and epoch secret. RESULTs come only from a parent, the switch above this one in a job's tree. It is one more rank,
// with the bit FINAL (docs/understand/protocol.md).
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
        meta.group = group;
        COUNT_ENTRY(worker_counter)
    }

    // Admits a sender below this switch in a job that has a parent. In both actions `job_mask` has the bits of all senders
    // below, not FINAL.
    @name(".SwitchMLIngress.admit_below")
    action admit_below(bitmap_t worker_bit, bitmap_t job_mask, bit<16> epoch, MulticastGroupId_t group) {
        meta.admitted = 1;
        meta.has_parent = 1;
        meta.worker_bit = worker_bit;
        meta.job_mask = job_mask;
        meta.epoch = epoch;
        meta.group = group;
        COUNT_ENTRY(worker_counter)
    }

    // Admits RESULTs of the parent; those with `completed_here` name this switch.
    @name(".SwitchMLIngress.admit_parent")
    action admit_parent(bitmap_t job_mask, bit<16> epoch, MulticastGroupId_t group, bit<1> completed_here) {
        meta.admitted = 1;
        meta.has_parent = 1;
        meta.from_parent = 1;
        meta.completed_here = completed_here;
        meta.worker_bit = FINAL;
        meta.job_mask = job_mask;
        meta.epoch = epoch;
        meta.group = group;
        COUNT_ENTRY(worker_counter)
    }

    @name(".SwitchMLIngress.worker_table")
    @switchml_values_per_packet(VALUES)
#if CAN_GROW
    @switchml_streamed
#endif
#if CAN_REMOVE_VALUES
    @switchml_owned_results
#endif
#if CAN_EXPAND_CODES
    @switchml_formats(natural8, dynamic8)
#elif CAN_ADD_FLOATS
    @switchml_formats(float32)
#endif
#if CAN_DECAPSULATE_ROCEV2
    @switchml_rocev2
#endif
    @switchml_leaf
    table worker_table {
        key = {
            ingress_port: exact @name("ingress_port");
            hdr.ethernet.src: exact @name("eth_src");
            hdr.ipv4.src: exact @name("ipv4_src");
            SENDER: exact @name("udp_src");
            hdr.switchml.kind: exact @name("kind");
            hdr.switchml.job: exact @name("job");
            hdr.switchml.worker: exact @name("worker");
            hdr.switchml.secret: exact @name("secret");
            hdr.switchml.slot: ternary @name("slot");
        }
        actions = {
            admit;
            admit_below;
            admit_parent;
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
