// SlotNext holds the smallest `chunk` that the workers have named, which in a sparse call is the next block.
#ifndef SWITCHML_SLOT_NEXT_P4
#define SWITCHML_SLOT_NEXT_P4

#include "arch.p4"
#include "../common/headers.p4"

control SlotNext(inout switchml_t packet, in phase_predicate_t phase_predicate, in bitmap_t seen) {
    @name(".SwitchMLIngress.slot_next")
    register<bit<32>, slot_t>(SLOT_ENTRIES) slot_next;

    bit<32> stored;

    apply {
        if (phase_predicate == PHASE_NEWER || (phase_predicate == PHASE_REPLACED && seen == 0)) {
            slot_next.write(packet.slot, packet.chunk);
        } else if (phase_predicate == PHASE_SAME && seen == 0) {
            slot_next.read(stored, packet.slot);
            if (stored < packet.chunk) {
                packet.chunk = stored;
            }
            slot_next.write(packet.slot, packet.chunk);
        } else if (phase_predicate == PHASE_SAME) {
            slot_next.read(packet.chunk, packet.slot);
        }
    }
}

#endif
