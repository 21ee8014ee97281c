// The largest exponent that the workers have named for the slot's next chunk.
#ifndef SWITCHML_SLOT_EXPONENT_P4
#define SWITCHML_SLOT_EXPONENT_P4

#include "arch.p4"
#include "../common/headers.p4"

control SlotExponent(inout switchml_t packet, in operation_t operation) {
    @name(".SwitchMLIngress.slot_exponent")
    register<bit<16>, slot_t>(SLOT_ENTRIES) slot_exponent;

    bit<16> stored;

    apply {
        if (operation == OPERATION_OVERWRITE) {
            slot_exponent.write(packet.slot, packet.exponent);
        } else if (operation == OPERATION_ADD) {
            slot_exponent.read(stored, packet.slot);
            if (stored > packet.exponent) {
                packet.exponent = stored;
            }
            slot_exponent.write(packet.slot, packet.exponent);
        } else if (operation == OPERATION_FETCH) {
            slot_exponent.read(packet.exponent, packet.slot);
        }
    }
}

#endif
