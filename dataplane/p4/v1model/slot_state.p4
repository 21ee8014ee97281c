// SlotState holds what a contribution is compared with: the epoch, phase and worker bitmap of its slot, and whether its
// phase has values.
//
// BMv2 runs ingress in one thread, so no other packet changes a register between a read and a write here.
#ifndef SWITCHML_SLOT_STATE_P4
#define SWITCHML_SLOT_STATE_P4

#include "arch.p4"
#include "../common/headers.p4"

control SlotState(in switchml_t contribution, inout metadata_t meta) {
    @name(".SwitchMLIngress.slot_epoch")
    register<bit<16>, slot_t>(SLOT_ENTRIES) slot_epoch;
    @name(".SwitchMLIngress.slot_phase")
    register<bit<32>, slot_t>(SLOT_ENTRIES) slot_phase;
    @name(".SwitchMLIngress.slot_bitmap")
    register<bitmap_t, slot_t>(SLOT_ENTRIES) slot_bitmap;
    @name(".SwitchMLIngress.slot_filled")
    register<filled_t, slot_t>(SLOT_ENTRIES) slot_filled;

    bit<16> stored_epoch;
    bit<32> stored_phase;
    bitmap_t stored_bitmap;

    apply {
        slot_epoch.read(stored_epoch, contribution.slot);
        slot_epoch.write(contribution.slot, contribution.epoch);

        slot_phase.read(stored_phase, contribution.slot);
        if (stored_epoch != contribution.epoch || contribution.phase > stored_phase) {
            slot_phase.write(contribution.slot, contribution.phase);
            meta.phase_predicate = PHASE_NEWER;
        } else if (contribution.phase == stored_phase) {
            meta.phase_predicate = PHASE_SAME;
        }

        if (meta.phase_predicate != PHASE_STALE) {
            stored_bitmap = 0;
            if (meta.phase_predicate == PHASE_SAME) {
                slot_bitmap.read(stored_bitmap, contribution.slot);
                slot_filled.read(meta.filled_before, contribution.slot);
            }
            meta.seen = stored_bitmap & meta.worker_bit;
            meta.bitmap = stored_bitmap | meta.worker_bit;
            slot_bitmap.write(contribution.slot, meta.bitmap);
            slot_filled.write(contribution.slot, meta.filled_before | meta.has_values);
        }
    }
}

#endif
