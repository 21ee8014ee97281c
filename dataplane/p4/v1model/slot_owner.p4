// SlotOwner holds the `owner` that the last contribution to the slot's phase has named. In a RESULT of the parent, the field
// has another meaning; the copies for the ranks below get the stored one, so that only those that read the values get them.
#ifndef SWITCHML_SLOT_OWNER_P4
#define SWITCHML_SLOT_OWNER_P4

#include "arch.p4"
#include "../common/headers.p4"

control SlotOwner(inout switchml_t packet, in phase_predicate_t phase_predicate, in bitmap_t seen) {
    @name(".SwitchMLIngress.slot_owner")
    register<bit<8>, slot_t>(SLOT_ENTRIES) slot_owner;

    apply {
        if (phase_predicate == PHASE_NEWER || (phase_predicate == PHASE_SAME && seen == 0)) {
            slot_owner.write(packet.slot, packet.owner);
        } else if (phase_predicate == PHASE_REPLACED) {
            slot_owner.read(packet.owner, packet.slot);
        }
    }
}

#endif
