// Generates a register that combines one field of the SwitchML header, the exponent, check or chunk, over the workers of
// a phase.
#ifndef SWITCHML_SLOT_REGISTER_P4
#define SWITCHML_SLOT_REGISTER_P4

#include "arch.p4"
#include "../common/headers.p4"

#define STRING(text) #text

// Defines a control NAME with a register of TYPE. The statement FIRST writes FIELD of a phase's first packet to
// `stored`; NEXT combines `stored` with FIELD of each later packet.
#define SLOT_REGISTER(NAME, REGISTER, TYPE, FIELD, FIRST, NEXT)                                       \
control NAME(inout switchml_t packet, in phase_predicate_t phase_predicate, in bitmap_t seen) {                     \
    @name(STRING(.SwitchMLIngress.REGISTER))                                                          \
    Register<TYPE, slot_t>(SLOT_ENTRIES) REGISTER;                                                    \
    RegisterAction<TYPE, slot_t, TYPE>(REGISTER) overwrite_register = {                               \
        void apply(inout TYPE stored, out TYPE result) { FIRST; result = stored; }                    \
    };                                                                                                \
    RegisterAction<TYPE, slot_t, TYPE>(REGISTER) combine_register = {                                 \
        void apply(inout TYPE stored, out TYPE result) { NEXT; result = stored; }                     \
    };                                                                                                \
    RegisterAction<TYPE, slot_t, TYPE>(REGISTER) fetch_register = {                                   \
        void apply(inout TYPE stored, out TYPE result) { result = stored; }                           \
    };                                                                                                \
    @hidden action overwrite() { FIELD = overwrite_register.execute(packet.slot); }                   \
    @hidden action combine() { FIELD = combine_register.execute(packet.slot); }                       \
    @hidden action fetch() { FIELD = fetch_register.execute(packet.slot); }                           \
    @hidden                                                                                           \
    table register_table {                                                                            \
        key = { phase_predicate: ternary; seen: ternary; }                                                   \
        actions = { overwrite; combine; fetch; @defaultonly NoAction; }                               \
        const default_action = NoAction();                                                            \
        const entries = {                                                                             \
            (PHASE_NEWER, _): overwrite();                                                            \
            (PHASE_SAME, 0): combine();                                                               \
            (PHASE_SAME, _): fetch();                                                                 \
            (PHASE_REPLACED, 0): overwrite();                                                         \
        }                                                                                             \
        size = 4;                                                                                     \
    }                                                                                                 \
    apply { register_table.apply(); }                                                                 \
}

#endif
