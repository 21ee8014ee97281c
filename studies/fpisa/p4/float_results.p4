// FloatResults makes a float of each sum that a packet brings from ingress (slot_floats.p4): it takes the first 24 bits of
// the mantissa, or fewer if the float is subnormal, and drops the others.
//
// The magnitude of a mantissa has up to 32 bits. It would take a shift to the left by n to move the first 1 to the top,
// and takes n - 8 to move it to where a float has it. The shift is done in two steps: to the left by the rest of n modulo
// eight, then by n - 8 without it. A subnormal float is shifted less, so that its exponent does not fall below zero.
#ifndef SWITCHML_FLOAT_RESULTS_P4
#define SWITCHML_FLOAT_RESULTS_P4

#include "../../../dataplane/p4/tna/arch.p4"
#include "float_headers.p4"
#include "../../../dataplane/p4/common/headers.p4"

const bit<32> INFINITY = 0x7F800000;
const bit<32> NEGATIVE_INFINITY = 0xFF800000;
const bit<32> FLOAT_NAN = 0x7FC00000;

control FloatResult(inout bit<32> value, inout bit<32> place, in marks_t marks, in floats_t floats) {
    bit<1> negative;
    bit<32> shift;  // n, where a float has its exponent

    @hidden
    action take_magnitude() {
        negative = 1;
        value = 0 - value;
    }

    @hidden
    action set_shift(bit<32> found) {
        shift = found;
    }

    @hidden
    action clear() {
        place = 0;
        shift = 0;
    }

#define FIRST(n) (0x80000000 >> n) &&& (0xFFFFFFFF << (31 - n)): set_shift(n << 23);
    @hidden
    table first_table {
        key = {
            value: ternary;
        }
        actions = {
            set_shift;
            clear;
        }
        const default_action = clear();
        const entries = {
            FIRST(0) FIRST(1) FIRST(2) FIRST(3) FIRST(4) FIRST(5) FIRST(6) FIRST(7)
            FIRST(8) FIRST(9) FIRST(10) FIRST(11) FIRST(12) FIRST(13) FIRST(14) FIRST(15)
            FIRST(16) FIRST(17) FIRST(18) FIRST(19) FIRST(20) FIRST(21) FIRST(22) FIRST(23)
            FIRST(24) FIRST(25) FIRST(26) FIRST(27) FIRST(28) FIRST(29) FIRST(30) FIRST(31)
        }
        size = 32;
    }
#undef FIRST

    @hidden
    action limit_shift() {
        shift = min(shift, place);
    }

    @hidden
    action raise_0() {
        place = place - shift;
    }

#define RAISE(bits)                                          \
    @hidden                                                  \
    action raise_##bits() {                                  \
        value = value << bits;                               \
        place = place - shift;                               \
    }
    RAISE(1) RAISE(2) RAISE(3) RAISE(4) RAISE(5) RAISE(6) RAISE(7)
#undef RAISE

    @hidden
    table raise_table {
        key = {
            shift[25:23]: exact;
        }
        actions = {
            raise_0;
            raise_1;
            raise_2;
            raise_3;
            raise_4;
            raise_5;
            raise_6;
            raise_7;
        }
        const default_action = raise_0();
        const entries = {
            1: raise_1();
            2: raise_2();
            3: raise_3();
            4: raise_4();
            5: raise_5();
            6: raise_6();
            7: raise_7();
        }
        size = 7;
    }

    @hidden
    action down_8() {
        value = value >> 8;
    }

    @hidden
    action up_8() {
        value = value << 8;
    }

    @hidden
    action up_16() {
        value = value << 16;
    }

    @hidden
    table byte_table {
        key = {
            shift[27:26]: exact;
        }
        actions = {
            down_8;
            up_8;
            up_16;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        const entries = {
            0: down_8();
            2: up_8();
            3: up_16();
        }
        size = 3;
    }

    // The mantissa's leading bit adds one to the exponent.
    @hidden
    action join() {
        value = value + place;
    }

    @hidden
    action limit() {
        value = min(value, INFINITY);
    }

    @hidden
    action set_sign() {
        value[31:31] = 1;
    }

    @hidden
    action write(bit<32> float) {
        value = float;
    }

    @hidden
    table mark_table {
        key = {
            marks: ternary;
            negative: ternary;
        }
        actions = {
            NoAction;
            set_sign;
            write;
        }
        const default_action = write(FLOAT_NAN);
        const entries = {
            (MARKS_NONE, 0): NoAction();
            (MARKS_NONE, 1): set_sign();
            (MARK_POSITIVE_INFINITY, _): write(INFINITY);
            (MARK_NEGATIVE_INFINITY, _): write(NEGATIVE_INFINITY);
        }
        size = 4;
    }

    // Every step tests its own condition: a branch would keep others out of its stages.
    apply {
        negative = 0;
        if (floats.isValid() && value[31:31] == 1) {
            take_magnitude();
        }
        if (floats.isValid()) {
            first_table.apply();
        }
        if (floats.isValid()) {
            limit_shift();
        }
        if (floats.isValid()) {
            raise_table.apply();
        }
        if (floats.isValid()) {
            byte_table.apply();
        }
        if (floats.isValid()) {
            join();
        }
        if (floats.isValid()) {
            limit();
        }
        if (floats.isValid()) {
            mark_table.apply();
        }
    }
}

control FloatResults(inout values_t values, inout floats_t floats) {
#define LANE(i) FloatResult() lane_##i;
    FOR_EACH_LANE(LANE)
#undef LANE

    apply {
#define LANE(i) lane_##i.apply(values.value_##i, floats.place_##i, floats.marks_##i, floats);
        FOR_EACH_LANE(LANE)
#undef LANE
    }
}

#endif
