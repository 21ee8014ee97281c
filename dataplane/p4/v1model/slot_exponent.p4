// The largest exponent that the workers have named for the slot's next chunk.
#ifndef SWITCHML_SLOT_EXPONENT_P4
#define SWITCHML_SLOT_EXPONENT_P4

#include "arch.p4"
#include "../common/headers.p4"

control SlotExponent(inout switchml_t packet, in relation_t relation, in bitmap_t seen) {
    @name(".SwitchMLIngress.slot_exponent")
    register<bit<16>, slot_t>(SLOT_ENTRIES) slot_exponent;

    bit<16> stored;

    apply {
        if (relation == PHASE_NEWER) {
            slot_exponent.write(packet.slot, packet.exponent);
        } else if (relation == PHASE_SAME && seen == 0) {
            slot_exponent.read(stored, packet.slot);
            if (stored > packet.exponent) {
                packet.exponent = stored;
            }
            slot_exponent.write(packet.slot, packet.exponent);
        } else if (relation == PHASE_SAME) {
            slot_exponent.read(packet.exponent, packet.slot);
        }
    }
}

#endif
