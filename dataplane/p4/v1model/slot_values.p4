// SlotValues holds the sums of the workers' values, modulo 2^32, with one register for each lane.
#ifndef SWITCHML_SLOT_VALUES_P4
#define SWITCHML_SLOT_VALUES_P4

#include "arch.p4"
#include "../common/headers.p4"

control SlotValues(inout values_t values, in slot_t slot, in phase_predicate_t phase_predicate, in bitmap_t seen,
                   in bit<1> has_values, in filled_t filled_before) {
#define STRING(text) #text
#define LANE(i) @name(STRING(.SwitchMLIngress.lane_##i)) register<bit<32>, slot_t>(SLOT_ENTRIES) lane_##i;
    FOR_EACH_LANE(LANE)
#undef LANE

    bit<32> stored;

    @hidden
    action overwrite() {
#define LANE(i) lane_##i.write(slot, values.value_##i);
        FOR_EACH_LANE(LANE)
#undef LANE
    }

    @hidden
    action add() {
#define LANE(i)                                              \
        lane_##i.read(stored, slot);                         \
        values.value_##i = values.value_##i + stored;        \
        lane_##i.write(slot, values.value_##i);
        FOR_EACH_LANE(LANE)
#undef LANE
    }

    @hidden
    action fetch() {
#define LANE(i) lane_##i.read(values.value_##i, slot);
        FOR_EACH_LANE(LANE)
#undef LANE
    }
#undef STRING

    apply {
        if (phase_predicate == PHASE_REPLACED) {
            if (has_values == 1 && seen == 0) {
                overwrite();
            }
        } else if (phase_predicate != PHASE_STALE) {
            if (has_values == 1 && filled_before == 0) {
                overwrite();
            } else if (has_values == 1 && seen == 0) {
                add();
            } else if (filled_before == 1 && values.isValid()) {
                fetch();
            }
        }
    }
}

#endif
