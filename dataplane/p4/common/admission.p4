// Decides whether a SwitchML packet may touch its slot: it must be well-formed, its sender must be in the worker table,
// and its epoch must be the job's. The lookups follow each other in an order that a pipeline of stages can execute:
// worker table, epoch and phase, bitmap. The reason for a refusal is determined later, in parallel with the sums
// (refusal.p4).
//
// The target provides the control SlotState, which holds the state.
#ifndef SWITCHML_ADMISSION_P4
#define SWITCHML_ADMISSION_P4

#include "well_formed.p4"
#include "worker_admission.p4"

control Admission(in headers_t hdr, inout metadata_t meta, in PortId_t ingress_port, in ParserStatus_t parser_status) {
    WorkerAdmission() worker_admission;
    SlotState() slot_state;

    @hidden
    action accept_packet() {}

    // The kind is a key of the worker table, which has entries for contributions and RESULTs only.
    @hidden
    table well_formed_table {
        key = {
            parser_status: ternary;
            hdr.udp.length: ternary;
            hdr.ipv4.total_length: ternary;
            hdr.switchml.version: ternary;
#if CAN_EXPAND_CODES
            hdr.switchml.kind: ternary;
#endif
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
            (0, LENGTHS_WITH_VALUES, OF_THIS_VERSION, ANY_EXPONENT, WITH_VALUES, HALF_0): accept_packet();
            (0, LENGTHS_WITH_VALUES, OF_THIS_VERSION, ANY_EXPONENT, WITH_VALUES, HALF_1): accept_packet();
            (0, LENGTHS_EMPTY, OF_THIS_VERSION, ANY_EXPONENT, EMPTY, HALF_0): accept_packet();
            (0, LENGTHS_EMPTY, OF_THIS_VERSION, ANY_EXPONENT, EMPTY, HALF_1): accept_packet();
#if TAKES_OTHERS
            (0, LENGTHS_WITH_OTHERS, OF_THIS_VERSION_IN_OTHERS, ANY_EXPONENT, WITH_VALUES, HALF_0): accept_packet();
            (0, LENGTHS_WITH_OTHERS, OF_THIS_VERSION_IN_OTHERS, ANY_EXPONENT, WITH_VALUES, HALF_1): accept_packet();
            (0, LENGTHS_EMPTY, OF_THIS_VERSION_IN_OTHERS, ANY_EXPONENT, EMPTY, HALF_0): accept_packet();
            (0, LENGTHS_EMPTY, OF_THIS_VERSION_IN_OTHERS, ANY_EXPONENT, EMPTY, HALF_1): accept_packet();
        }
        size = 8;
#else
        }
        size = 4;
#endif
    }

    apply {
        // Testing `hit`, rather than a metadata field, lets both tables share a stage.
        if (well_formed_table.apply().hit) {
#if CAN_DECAPSULATE_ROCEV2
            if (meta.bad_icrc == 0)
#endif
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
