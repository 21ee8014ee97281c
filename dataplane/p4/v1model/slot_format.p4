// SlotFormat holds the format of the slot's phase: that of its first contribution. A later contribution in another format
// is treated as if it had this one. The sum is then wrong, and the RESULT's check shows it. Added in its own format, it
// would bring in what an earlier job has left in the registers of that format.
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
