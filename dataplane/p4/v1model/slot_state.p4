// SlotState holds what a packet is compared with: the epoch, phase and worker bitmap of its slot, and whether its phase
// has values.
//
// BMv2 runs ingress in one thread, so no other packet changes a register between a read and a write here.
#ifndef SWITCHML_SLOT_STATE_P4
#define SWITCHML_SLOT_STATE_P4

#include "arch.p4"
#include "../common/headers.p4"

control SlotState(in switchml_t packet, inout metadata_t meta) {
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
        slot_epoch.read(stored_epoch, packet.slot);
        slot_phase.read(stored_phase, packet.slot);
        if (meta.from_parent == 1) {
            // Its RESULT replaces the sum of the phase that it names, once.
            if (stored_epoch == packet.epoch && stored_phase == packet.phase) {
                meta.phase_predicate = PHASE_REPLACED;
                slot_bitmap.read(stored_bitmap, packet.slot);
                meta.seen = stored_bitmap & meta.worker_bit;
                meta.bitmap = stored_bitmap | meta.worker_bit;
                if (meta.seen == 0) {
                    slot_bitmap.write(packet.slot, meta.bitmap);
                    slot_filled.write(packet.slot, meta.has_values);
                }
            }
        } else {
            slot_epoch.write(packet.slot, packet.epoch);
            if (stored_epoch != packet.epoch || packet.phase > stored_phase) {
                slot_phase.write(packet.slot, packet.phase);
                meta.phase_predicate = PHASE_NEWER;
            } else if (packet.phase == stored_phase) {
                meta.phase_predicate = PHASE_SAME;
            }

            if (meta.phase_predicate != PHASE_STALE) {
                stored_bitmap = 0;
                if (meta.phase_predicate == PHASE_SAME) {
                    slot_bitmap.read(stored_bitmap, packet.slot);
                    slot_filled.read(meta.filled_before, packet.slot);
                }
                meta.seen = stored_bitmap & meta.worker_bit;
                meta.bitmap = stored_bitmap | meta.worker_bit;
                slot_bitmap.write(packet.slot, meta.bitmap);
                slot_filled.write(packet.slot, meta.filled_before | meta.has_values);
            }
        }
    }
}

#endif
