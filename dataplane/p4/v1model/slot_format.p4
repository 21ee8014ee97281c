// SlotFormat holds the format of the slot's phase, which is that of its first contribution. Contributions in another
// format are taken as if they were in this one. Otherwise they would be added to what another job has left in the registers
// of their format; so they make the sum wrong, and the check of the RESULT says that.
#ifndef SWITCHML_SLOT_FORMAT_P4
#define SWITCHML_SLOT_FORMAT_P4

#include "arch.p4"
#include "../common/headers.p4"

control SlotFormat(inout switchml_t packet, in phase_predicate_t phase_predicate, in bitmap_t seen) {
    @name(".SwitchMLIngress.slot_format")
    register<bit<8>, slot_t>(SLOT_ENTRIES) slot_format;

    apply {
        if (phase_predicate == PHASE_NEWER || (phase_predicate == PHASE_REPLACED && seen == 0)) {
            slot_format.write(packet.slot, packet.format);
        } else if (phase_predicate == PHASE_SAME) {
            slot_format.read(packet.format, packet.slot);
        }
    }
}

#endif
