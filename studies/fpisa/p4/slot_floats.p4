// SlotFloats holds the sums of the workers' floats, added as FPISA-A does (Yuan et al., NSDI 2022): the sum_fpisa_a of
// switchml.dataplane.floats. Each lane has three registers:
//
//   place  of the sum: its unit is 2^(place - 157)
//   sum    a mantissa in two's complement
//   marks  of NaN, of both infinities, and of a sum that did not fit
//
// A stateful ALU cannot shift what it has stored, so a value is shifted to the lane's place before it is added. A word has
// seven bits above a mantissa and its sign. A value enters with its mantissa seven bits to the left, and is shifted to the
// right by 7 - (its place - the lane's), at first by a multiple of eight bits, then by the rest.
//
// Each step of a lane needs the one before, and takes a stage. Places stay where floats have their exponents, because
// only containers of one size can be moved to each other.
#ifndef SWITCHML_SLOT_FLOATS_P4
#define SWITCHML_SLOT_FLOATS_P4

#include "../../../dataplane/p4/tna/arch.p4"
#include "float_headers.p4"
#include "../../../dataplane/p4/common/headers.p4"

const bit<32> EXPONENT_FIELD = 0x7F800000;
const bit<32> PLACES_OF_HEADROOM = 7 << 23;
const bit<32> PLACE_OF_SUBNORMALS = PLACES_OF_HEADROOM + (1 << 23);

// Makes a mantissa in two's complement of a value, seven bits to the left.
control FloatParts(in values_t values, in bit<32> float, inout bit<32> value, inout bit<32> place, inout marks_t marks) {
    // Above the fraction are now two bits of the exponent and, at the end, the sign and the mantissa's leading bit.
    @hidden
    action unpack_normal() {
        value[31:30] = 1;
        place = place + PLACES_OF_HEADROOM;
    }

    @hidden
    action unpack_subnormal() {
        value[31:30] = 0;
        place = PLACE_OF_SUBNORMALS;
    }

    @hidden
    action mark(marks_t found) {
        value = 0;
        place = PLACE_OF_SUBNORMALS;
        marks = found;
    }

    @hidden
    table unpack_table {
        key = {
            float: ternary;
        }
        actions = {
            unpack_normal;
            unpack_subnormal;
            mark;
        }
        const default_action = unpack_normal();
        const entries = {
            0 &&& EXPONENT_FIELD: unpack_subnormal();
            0x7F800000: mark(MARK_POSITIVE_INFINITY);
            0xFF800000: mark(MARK_NEGATIVE_INFINITY);
            EXPONENT_FIELD &&& EXPONENT_FIELD: mark(MARK_NAN);
        }
        size = 4;
    }

    @hidden
    action negate() {
        value = 0 - value;
    }

    apply {
        if (values.isValid()) {
            unpack_table.apply();
        }
        if (values.isValid() && float[31:31] == 1) {
            negate();
        }
    }
}

// A stateful ALU returns a number that it has computed only if it stores it too.
struct place_t {
    bit<32> place;
    bit<32> distance;
}

control FloatLane(inout bit<32> value, inout bit<32> place, inout marks_t marks, in slot_t slot, in metadata_t meta) {
    Register<place_t, slot_t>(SLOT_ENTRIES) slot_place;
    Register<bit<32>, slot_t>(SLOT_ENTRIES) slot_sum;
    Register<marks_t, slot_t>(SLOT_ENTRIES) slot_marks;

    bit<32> other;   // at first the distance from the lane's place to the value's, later the shifted value
    bit<32> before;  // the sum without that value

    RegisterAction<place_t, slot_t, bit<32>>(slot_place) overwrite_slot_place = {
        void apply(inout place_t stored, out bit<32> distance) {
            stored.place = place;
            stored.distance = 0;
            distance = stored.distance;
        }
    };
    RegisterAction<place_t, slot_t, bit<32>>(slot_place) raise_slot_place = {
        void apply(inout place_t stored, out bit<32> distance) {
            stored.distance = place - stored.place;
            distance = stored.distance;
            if (place > stored.place + PLACES_OF_HEADROOM) {
                stored.place = place;
            }
        }
    };
    RegisterAction<place_t, slot_t, bit<32>>(slot_place) fetch_slot_place = {
        void apply(inout place_t stored, out bit<32> result) {
            result = stored.place;
        }
    };

    RegisterAction<bit<32>, slot_t, bit<32>>(slot_sum) overwrite_slot_sum = {
        void apply(inout bit<32> stored, out bit<32> result) {
            stored = value;
            result = stored;
        }
    };
    RegisterAction<bit<32>, slot_t, bit<32>>(slot_sum) add_slot_sum = {
        void apply(inout bit<32> stored, out bit<32> result) {
            stored = stored + value;
            result = stored;
        }
    };
    RegisterAction<bit<32>, slot_t, bit<32>>(slot_sum) fetch_slot_sum = {
        void apply(inout bit<32> stored, out bit<32> result) {
            result = stored;
        }
    };

    RegisterAction<marks_t, slot_t, marks_t>(slot_marks) overwrite_slot_marks = {
        void apply(inout marks_t stored, out marks_t result) {
            stored = marks;
            result = stored;
        }
    };
    RegisterAction<marks_t, slot_t, marks_t>(slot_marks) add_slot_marks = {
        void apply(inout marks_t stored, out marks_t result) {
            stored = stored | marks;
            result = stored;
        }
    };
    RegisterAction<marks_t, slot_t, marks_t>(slot_marks) fetch_slot_marks = {
        void apply(inout marks_t stored, out marks_t result) {
            result = stored;
        }
    };

    // ---- the lane's place ----

    @hidden
    action overwrite_place() {
        other = overwrite_slot_place.execute(slot);
    }

    @hidden
    action raise_place() {
        other = raise_slot_place.execute(slot);
    }

    // Nothing comes of the steps that follow.
    @hidden
    action ignore_place() {
        other = 0;
    }

    @hidden
    action fetch_place() {
        place = fetch_slot_place.execute(slot);
        other = 0;
    }

    @hidden
    table place_table {
        key = {
            meta.has_values: ternary;
            meta.filled_before[0:0]: ternary;
            meta.phase_predicate: ternary;
            meta.seen: ternary;
        }
        actions = {
            overwrite_place;
            raise_place;
            fetch_place;
            @defaultonly ignore_place;
        }
        const default_action = ignore_place();
        const entries = {
            (1, _, PHASE_NEWER, _): overwrite_place();
            (1, 0, PHASE_SAME, _): overwrite_place();
            (1, 1, PHASE_SAME, 0): raise_place();
            (_, 1, PHASE_SAME, _): fetch_place();
            (1, _, PHASE_REPLACED, 0): overwrite_place();
        }
        size = 5;
    }

    // ---- the value at the lane's place ----

    // The value is more than 2^7 times as large, and replaces the sum; it is shifted back to where it was.
    @hidden
    action replace() {
        other[25:23] = 0;
    }

#define SHIFT(bits)                                          \
    @hidden                                                  \
    action shift_##bits() {                                  \
        value = (bit<32>)((int<32>)value >> bits);           \
    }
    SHIFT(1) SHIFT(2) SHIFT(3) SHIFT(4) SHIFT(5) SHIFT(6) SHIFT(7)
#undef SHIFT

#define LOWER(bits)                                          \
    @hidden                                                  \
    action lower_##bits() {                                  \
        value = (bit<32>)((int<32>)value >> bits);           \
        place = place - other;                               \
    }
    LOWER(8) LOWER(16) LOWER(24) LOWER(31)
#undef LOWER

    @hidden
    action lower_0() {
        place = place - other;
    }

    // The key is the distance divided by eight, in two's complement.
    @hidden
    table lower_table {
        key = {
            meta.has_values: ternary;
            other[31:26]: ternary;
        }
        actions = {
            lower_0;
            lower_8;
            lower_16;
            lower_24;
            lower_31;
            replace;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (1, 0): lower_0();
            (1, 0b111111): lower_8();
            (1, 0b111110): lower_16();
            (1, 0b111101): lower_24();
            (1, 0b100000 &&& 0b100000): lower_31();
            (1, _): replace();
        }
        size = 6;
    }

    @hidden
    table shift_table {
        key = {
            meta.has_values: ternary;
            other[25:23]: ternary;
        }
        actions = {
            shift_1;
            shift_2;
            shift_3;
            shift_4;
            shift_5;
            shift_6;
            shift_7;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (1, 0): shift_7();
            (1, 1): shift_6();
            (1, 2): shift_5();
            (1, 3): shift_4();
            (1, 4): shift_3();
            (1, 5): shift_2();
            (1, 6): shift_1();
        }
        size = 7;
    }

    // ---- the sum ----

    @hidden
    action overwrite_sum() {
        other = value;
        value = overwrite_slot_sum.execute(slot);
    }

    @hidden
    action add_sum() {
        other = value;
        value = add_slot_sum.execute(slot);
    }

    @hidden
    action fetch_sum() {
        value = fetch_slot_sum.execute(slot);
    }

    @hidden
    table sum_table {
        key = {
            meta.has_values: ternary;
            meta.filled_before[0:0]: ternary;
            meta.phase_predicate: ternary;
            meta.seen: ternary;
            other[31:26]: ternary;
        }
        actions = {
            overwrite_sum;
            add_sum;
            fetch_sum;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (1, _, PHASE_NEWER, _, _): overwrite_sum();
            (1, 0, PHASE_SAME, _, _): overwrite_sum();
            (1, 1, PHASE_SAME, 0, 0): add_sum();
            (1, 1, PHASE_SAME, 0, 0b100000 &&& 0b100000): add_sum();
            (1, 1, PHASE_SAME, 0, _): overwrite_sum();
            (_, 1, PHASE_SAME, _, _): fetch_sum();
            (1, _, PHASE_REPLACED, 0, _): overwrite_sum();
        }
        size = 7;
    }

    // ---- marks ----

    @hidden
    action subtract() {
        before = value - other;
    }

    @hidden
    action mark_overflow() {
        marks = MARK_NAN;
    }

    // The sum of two numbers with the same sign has the other sign.
    @hidden
    table overflow_table {
        key = {
            meta.has_values: ternary;
            before[31:31]: ternary;
            other[31:31]: ternary;
            value[31:31]: ternary;
        }
        actions = {
            mark_overflow;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (1, 0, 0, 1): mark_overflow();
            (1, 1, 1, 0): mark_overflow();
        }
        size = 2;
    }

    @hidden
    action overwrite_marks() {
        marks = overwrite_slot_marks.execute(slot);
    }

    @hidden
    action add_marks() {
        marks = add_slot_marks.execute(slot);
    }

    @hidden
    action fetch_marks() {
        marks = fetch_slot_marks.execute(slot);
    }

    @hidden
    table marks_table {
        key = {
            meta.has_values: ternary;
            meta.filled_before[0:0]: ternary;
            meta.phase_predicate: ternary;
            meta.seen: ternary;
        }
        actions = {
            overwrite_marks;
            add_marks;
            fetch_marks;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            (1, _, PHASE_NEWER, _): overwrite_marks();
            (1, 0, PHASE_SAME, _): overwrite_marks();
            (1, 1, PHASE_SAME, 0): add_marks();
            (_, 1, PHASE_SAME, _): fetch_marks();
            (1, _, PHASE_REPLACED, 0): overwrite_marks();
        }
        size = 5;
    }

    apply {
        place_table.apply();
        lower_table.apply();
        shift_table.apply();
        sum_table.apply();
        subtract();
        overflow_table.apply();
        marks_table.apply();
    }
}

// Comes before everything else, because the lanes need a stage for each of their steps.
control UnpackFloats(inout values_t values, inout floats_t floats) {
#define LANE(i) FloatParts() parts_##i; bit<32> float_##i;
    FOR_EACH_LANE(LANE)
#undef LANE

    @hidden
    action cut() {
        floats.setValid();
#define LANE(i)                                                   \
        float_##i = values.value_##i;                             \
        floats.place_##i = values.value_##i & EXPONENT_FIELD;     \
        floats.marks_##i = MARKS_NONE;                            \
        values.value_##i = values.value_##i << 7;
        FOR_EACH_LANE(LANE)
#undef LANE
    }

    apply {
        if (values.isValid()) {
            cut();
        }
#define LANE(i) parts_##i.apply(values, float_##i, values.value_##i, floats.place_##i, floats.marks_##i);
        FOR_EACH_LANE(LANE)
#undef LANE
    }
}

// The sums leave ingress as they are stored; egress makes floats of them (float_results.p4).
control SlotFloats(inout values_t values, inout floats_t floats, in slot_t slot, in metadata_t meta) {
#define LANE(i) FloatLane() lane_##i;
    FOR_EACH_LANE(LANE)
#undef LANE

    apply {
        if (meta.has_values == 0 && meta.filled_before[0:0] == 1) {
            values.setValid();
            floats.setValid();
        }
#define LANE(i) lane_##i.apply(values.value_##i, floats.place_##i, floats.marks_##i, slot, meta);
        FOR_EACH_LANE(LANE)
#undef LANE
    }
}

#endif
