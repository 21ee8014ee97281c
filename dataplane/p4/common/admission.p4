// May this packet of ours touch its slot? It must be well-formed, its sender must stand in the worker table, and its
// epoch must be the job's. Then the slot is asked, in an order that a pipeline of stages can keep: worker table, epoch
// and phase, bitmap. Why a packet is refused is found out later, beside the sums (refusal.p4).
//
// The target brings the control that holds state, under the name SlotState.
#ifndef SWITCHML_ADMISSION_P4
#define SWITCHML_ADMISSION_P4

#include "well_formed.p4"
#include "worker_admission.p4"

control Admission(in headers_t hdr, inout metadata_t meta, in PortId_t ingress_port, in ParserStatus_t parser_status) {
    WorkerAdmission() worker_admission;
    SlotState() slot_state;

    @hidden
    action accept_packet() {}

    @hidden
    table well_formed_table {
        key = {
            parser_status: ternary;
            hdr.udp.length: ternary;
            hdr.ipv4.total_length: ternary;
            hdr.switchml.version: ternary;
            hdr.switchml.kind: ternary;
            hdr.switchml.format: ternary;
            hdr.switchml.exponent: range;
            hdr.switchml.flags[0:0]: ternary;  // FLAG_WITHOUT_VALUES
            hdr.switchml.count: range;
            hdr.switchml.slot[0:0]: ternary;
            hdr.switchml.phase[0:0]: ternary;
        }
        actions = {
            accept_packet;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (0, LENGTHS_WITH_VALUES, OURS, ANY_EXPONENT, WITH_VALUES, HALF_0): accept_packet();
            (0, LENGTHS_WITH_VALUES, OURS, ANY_EXPONENT, WITH_VALUES, HALF_1): accept_packet();
            (0, LENGTHS_EMPTY, OURS, ANY_EXPONENT, EMPTY, HALF_0): accept_packet();
            (0, LENGTHS_EMPTY, OURS, ANY_EXPONENT, EMPTY, HALF_1): accept_packet();
        }
        size = 4;
    }

    apply {
        // Asked in this way, and not through a field, both tables can be looked up in one stage.
        if (well_formed_table.apply().hit) {
            worker_admission.apply(hdr, meta, ingress_port);
        }
        if (meta.admitted == 1) {
            if (hdr.switchml.epoch == meta.epoch) {
                slot_state.apply(hdr.switchml, meta);
            } else {
                meta.verdict = VERDICT_WRONG_EPOCH;
                meta.reason = DROP_REASON_WRONG_EPOCH;
            }
        }
    }
}

#endif
