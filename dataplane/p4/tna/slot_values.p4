// SlotValues holds the sums of the workers' values, modulo 2^32, with one register for each pair of lanes, so that the
// four stateful ALUs of a stage hold eight values. A stateful ALU returns one word: of each pair a packet gets the even
// lane, which suffices unless the packet leaves with values, and a recirculated packet gets the odd one (recirculation.p4). The
// layout of values in registers is known to this file only; dataplane/README.md compares it with others.
#ifndef SWITCHML_SLOT_VALUES_P4
#define SWITCHML_SLOT_VALUES_P4

#include "arch.p4"
#include "../common/headers.p4"
#include "recirculation.p4"
#include "slot_register.p4"

struct pair_t {
    bit<32> even;
    bit<32> odd;
}

control SlotValues(inout values_t values, in slot_t slot, in phase_predicate_t phase_predicate, in bitmap_t seen,
                   in bit<1> has_values, in filled_t filled_before) {
#define PAIR(i, j)                                                                              \
    @name(STRING(.SwitchMLIngress.lanes_##i##_##j))                                             \
    Register<pair_t, slot_t>(SLOT_ENTRIES) lanes_##i;                                           \
                                                                                                \
    RegisterAction<pair_t, slot_t, bit<32>>(lanes_##i) overwrite_lanes_##i = {                  \
        void apply(inout pair_t stored, out bit<32> even) {                                     \
            stored.even = values.value_##i;                                                     \
            stored.odd = values.value_##j;                                                      \
            even = stored.even;                                                                 \
        }                                                                                       \
    };                                                                                          \
    RegisterAction<pair_t, slot_t, bit<32>>(lanes_##i) add_lanes_##i = {                        \
        void apply(inout pair_t stored, out bit<32> even) {                                     \
            stored.even = stored.even + values.value_##i;                                       \
            stored.odd = stored.odd + values.value_##j;                                         \
            even = stored.even;                                                                 \
        }                                                                                       \
    };                                                                                          \
    RegisterAction<pair_t, slot_t, bit<32>>(lanes_##i) fetch_even_##i = {                       \
        void apply(inout pair_t stored, out bit<32> even) {                                     \
            even = stored.even;                                                                 \
        }                                                                                       \
    };                                                                                          \
    RegisterAction<pair_t, slot_t, bit<32>>(lanes_##i) fetch_odd_##i = {                        \
        void apply(inout pair_t stored, out bit<32> odd) {                                      \
            odd = stored.odd;                                                                   \
        }                                                                                       \
    };                                                                                          \
                                                                                                \
    @hidden action overwrite_##i() { values.value_##i = overwrite_lanes_##i.execute(slot); }    \
    @hidden action add_##i() { values.value_##i = add_lanes_##i.execute(slot); }                \
    @hidden action fetch_##i() { values.value_##i = fetch_even_##i.execute(slot); }             \
    @hidden action fetch_##j() { values.value_##j = fetch_odd_##i.execute(slot); }              \
                                                                                                \
    @hidden                                                                                     \
    table lanes_table_##i {                                                                     \
        key = {                                                                                 \
            has_values: ternary;                                                                \
            filled_before[0:0]: ternary;                                                        \
            phase_predicate: ternary;                                                                  \
            seen: ternary;                                                                      \
        }                                                                                       \
        actions = {                                                                             \
            overwrite_##i;                                                                      \
            add_##i;                                                                            \
            fetch_##i;                                                                          \
            fetch_##j;                                                                          \
            @defaultonly NoAction;                                                              \
        }                                                                                       \
        const default_action = NoAction();                                                      \
        const entries = {                                                                       \
            (1, _, PHASE_NEWER, _): overwrite_##i();                                            \
            (1, 0, PHASE_SAME, _): overwrite_##i();                                             \
            (1, 1, PHASE_SAME, 0): add_##i();                                                   \
            (_, 1, PHASE_SAME, _): fetch_##i();                                                 \
            (1, _, PHASE_RECIRCULATED, _): fetch_##j();                                         \
            (1, _, PHASE_REPLACED, 0): overwrite_##i();                                         \
        }                                                                                       \
        size = 6;                                                                               \
    }
    FOR_EACH_PAIR(PAIR)
#undef PAIR

    apply {
        // A packet without values reads those of its phase before it is known whether the packet becomes the RESULT.
        if (has_values == 0 && filled_before[0:0] == 1) {
            values.setValid();
        }
#define PAIR(i, j) lanes_table_##i.apply();
        FOR_EACH_PAIR(PAIR)
#undef PAIR
    }
}

#endif
