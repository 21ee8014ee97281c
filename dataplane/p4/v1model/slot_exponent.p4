// SlotExponent holds the largest exponent that the workers have announced for the slot's next chunk.
#ifndef SWITCHML_SLOT_EXPONENT_P4
#define SWITCHML_SLOT_EXPONENT_P4

#include "arch.p4"
#include "../common/headers.p4"

control SlotExponent(inout switchml_t packet, in phase_predicate_t phase_predicate, in bitmap_t seen) {
    @name(".SwitchMLIngress.slot_exponent")
    register<bit<16>, slot_t>(SLOT_ENTRIES) slot_exponent;

    bit<16> stored;

    apply {
        if (phase_predicate == PHASE_NEWER || (phase_predicate == PHASE_REPLACED && seen == 0)) {
            slot_exponent.write(packet.slot, packet.exponent);
        } else if (phase_predicate == PHASE_SAME && seen == 0) {
            slot_exponent.read(stored, packet.slot);
            if (stored > packet.exponent) {
                packet.exponent = stored;
            }
            slot_exponent.write(packet.slot, packet.exponent);
        } else if (phase_predicate == PHASE_SAME) {
            slot_exponent.read(packet.exponent, packet.slot);
        }
    }
}

#endif
