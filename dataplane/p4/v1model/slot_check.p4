// SlotCheck holds the sum of the workers' checks, modulo 2^32.
#ifndef SWITCHML_SLOT_CHECK_P4
#define SWITCHML_SLOT_CHECK_P4

#include "arch.p4"
#include "../common/headers.p4"

control SlotCheck(inout switchml_t packet, in phase_predicate_t phase_predicate, in bitmap_t seen) {
    @name(".SwitchMLIngress.slot_check")
    register<bit<32>, slot_t>(SLOT_ENTRIES) slot_check;

    bit<32> stored;

    apply {
        if (phase_predicate == PHASE_NEWER || (phase_predicate == PHASE_REPLACED && seen == 0)) {
            slot_check.write(packet.slot, packet.check);
        } else if (phase_predicate == PHASE_SAME && seen == 0) {
            slot_check.read(stored, packet.slot);
            packet.check = packet.check + stored;
            slot_check.write(packet.slot, packet.check);
        } else if (phase_predicate == PHASE_SAME) {
            slot_check.read(packet.check, packet.slot);
        }
    }
}

#endif
