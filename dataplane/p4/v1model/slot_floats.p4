// SlotFloats holds the sums of the workers' floats, with one register for each lane. FLOATS chooses one of the three ways
// to add of ../../floats.py, whose results have the same bits.
//
// A value is plus or minus mantissa * 2^(place - 149). The register of a lane is the concatenation of
//
//   marks   of NaN and of both infinities
//   place   that of the sum; of digits, the number of the highest one
//   sum     a mantissa in two's complement, or three digits, the highest one first, in fields of 32 bits. 2^31 is added
//           to each of these, so that none is negative and nothing is carried between fields.
#ifndef SWITCHML_SLOT_FLOATS_P4
#define SWITCHML_SLOT_FLOATS_P4

#include "arch.p4"
#include "../common/headers.p4"
#include "../common/float_marks.p4"

const bit<31> INFINITY_WITHOUT_SIGN = 0x7F800000;
const bit<32> FLOAT_NAN = 0x7FC00000;

typedef bit<8> place_t;

#if FLOATS == FLOATS_DIGITS
#define SUM_BITS 96
#define NUMBER_BITS 80
const bit<SUM_BITS> SUM_NONE = 0x80000000_80000000_80000000;
const place_t PLACE_NONE = 1;
// The number that the digits of SUM_NONE stand for.
const bit<NUMBER_BITS> NUMBER_NONE = (80w0x80000000 << 48) + (80w0x80000000 << 24) + 80w0x80000000;
#else
#define SUM_BITS 32
#define NUMBER_BITS 32
const bit<SUM_BITS> SUM_NONE = 0;
const place_t PLACE_NONE = 0;
#endif

#if FLOATS == FLOATS_A
// The largest distance by which a value is shifted to the left: the bits of a word above a mantissa and its sign.
const int<16> HEADROOM = 7;
#endif

typedef bit<(16 + SUM_BITS)> lane_t;
const lane_t LANE_NONE = MARKS_NONE ++ PLACE_NONE ++ SUM_NONE;

control SlotFloats(inout values_t values, in slot_t slot, in metadata_t meta) {
#define STRING(text) #text
#define LANE(i) @name(STRING(.SwitchMLIngress.float_##i)) register<lane_t, slot_t>(SLOT_ENTRIES) float_##i;
    FOR_EACH_LANE(LANE)
#undef LANE
#undef STRING

    // BMv2 takes four primitive operations for an assignment of `a ? b : c`, and one if that is part of an expression.

    bit<1> empty;  // 1: the phase has no values yet
    lane_t kept;   // the bits of a lane's register that count, and those that stand for the others
    lane_t begun;

    // One lane's value in the packet, and its register with the parts of it.
    bit<32> value;
    lane_t lane;
    marks_t marks;
    place_t place;
    bit<SUM_BITS> sum;

    @hidden
    action unpack_lane() {
        marks = lane[SUM_BITS+15:SUM_BITS+8];
        place = lane[SUM_BITS+7:SUM_BITS];
        sum = lane[SUM_BITS-1:0];
    }

    place_t place_of_value;
    bit<24> mantissa;

    @hidden
    action unpack_value() {
        place_of_value = value[30:23] - (value[30:23] == 0 ? 8w0 : 1);
        mantissa = (value[30:23] == 0 ? 1w0 : 1) ++ value[22:0];
        // The mantissas of infinities and NaN are added as well, but then the sum no longer matters.
        marks = marks | (value[30:0] < INFINITY_WITHOUT_SIGN ? MARKS_NONE
                         : (value[30:0] > INFINITY_WITHOUT_SIGN ? MARK_NAN
                            : (value[31:31] == 0 ? MARK_POSITIVE_INFINITY : MARK_NEGATIVE_INFINITY)));
    }

#if FLOATS == FLOATS_DIGITS

// Bits of a shift by a number of digits, of which a sum has three.
#define BITS_OF_DIGITS(number) 32 * (number < 3 ? number : 3)

    place_t low_digit;
    bit<48> digits;
    place_t raised;
    bit<8> distance;
    bit<96> addend;

    @hidden
    action add_value() {
        low_digit = (bit<8>)(((bit<16>)place_of_value * 171) >> 12);  // divided by 24
        digits = (bit<48>)mantissa << (place_of_value - 24 * low_digit);
        raised = place + (low_digit < place ? 0 : low_digit + 1 - place);
        // The digits of the sum move down; above them are those of SUM_NONE.
        distance = BITS_OF_DIGITS((raised - place));
        sum = (sum >> distance) + (SUM_NONE - (SUM_NONE >> distance));
        distance = BITS_OF_DIGITS((raised - 1 - low_digit));
        addend = (8w0 ++ digits[47:24] ++ 8w0 ++ digits[23:0] ++ 32w0) >> distance;
        sum = sum + (value[31:31] == 0 ? addend : 0 - addend);
        place = raised;
    }

#elif FLOATS == FLOATS_FULL

    int<32> addend;
    place_t raised;

    @hidden
    action add_value() {
        addend = (int<32>)(value[31:31] == 0 ? (bit<32>)mantissa : 0 - (bit<32>)mantissa);
        raised = place + (place_of_value < place ? 0 : place_of_value - place);
        sum = (bit<32>)((int<32>)sum >> (raised - place)) + (bit<32>)(addend >> (raised - place_of_value));
        place = raised;
    }

#elif FLOATS == FLOATS_A

    int<40> addend;
    int<40> total;
    int<16> distance;

    @hidden
    action add_value() {
        addend = (int<40>)(value[31:31] == 0 ? (bit<40>)mantissa : 0 - (bit<40>)mantissa);
        distance = (int<16>)(bit<16>)place_of_value - (int<16>)(bit<16>)place;
        place = place + (distance > HEADROOM ? place_of_value - place : 0);
        total = (distance > HEADROOM ? 0 : (int<40>)(int<32>)sum)
                + (distance < 0 ? addend >> (bit<8>)(bit<16>)(0 - distance)
                   : addend << (bit<8>)(bit<16>)(distance > HEADROOM ? 0 : distance));
        sum = (bit<32>)(bit<40>)total;
        marks = marks | ((int<40>)(int<32>)sum == total ? MARKS_NONE : MARK_NAN);
    }

#endif

    bit<NUMBER_BITS> number;
    bit<1> negative;
    bit<8> first;  // the position of the number's first 1
    bit<8> shift;
    int<16> unit;  // the number counts in 2^(unit - 149)
    bit<(NUMBER_BITS + 24)> scaled;

    @hidden
    action make_number() {
#if FLOATS == FLOATS_DIGITS
        number = ((bit<80>)sum[95:64] << 48) + ((bit<80>)sum[63:32] << 24) + (bit<80>)sum[31:0] - NUMBER_NONE;
        unit = 24 * (int<16>)(bit<16>)place - 48;
#else
        number = sum;
        unit = (int<16>)(bit<16>)place;
#endif
        negative = number[NUMBER_BITS-1:NUMBER_BITS-1];
        number = (number ^ (0 - (bit<NUMBER_BITS>)negative)) + (bit<NUMBER_BITS>)negative;  // the magnitude
    }

    @hidden
    action find_first() {
        first = 0;
#if NUMBER_BITS > 32
        first = first + ((number >> (first + 64)) == 0 ? 8w0 : 64);
        first = first + ((number >> (first + 32)) == 0 ? 8w0 : 32);
#endif
        first = first + ((number >> (first + 16)) == 0 ? 8w0 : 16);
        first = first + ((number >> (first + 8)) == 0 ? 8w0 : 8);
        first = first + ((number >> (first + 4)) == 0 ? 8w0 : 4);
        first = first + ((number >> (first + 2)) == 0 ? 8w0 : 2);
        first = first + ((number >> (first + 1)) == 0 ? 8w0 : 1);
    }

    // The number becomes a float: its first 24 bits, or fewer if it is subnormal.
    @hidden
    action make_value() {
        shift = (bit<8>)(bit<16>)(unit < 24 ? 24 - unit : 0);
        shift = shift + (first < shift ? 0 : first + 1 - shift);
        scaled = number ++ 24w0;
#if FLOATS == FLOATS_DIGITS
        // To nearest even.
        scaled = scaled + (((bit<104>)1 << (shift - 1)) - 1) + ((scaled >> shift) & 1);
#endif
        // The first 1 of a mantissa adds 1 to the exponent.
        value = ((((bit<32>)(bit<16>)unit + (bit<32>)shift) - 24) << 23) + (bit<32>)(scaled >> shift);
        value = (negative ++ 31w0) | (number == 0 ? 0 : (value < 0x7F800000 ? value : 0x7F800000));
        value = (marks == MARKS_NONE ? value : 0)
                | (marks == MARKS_NONE ? 0
                   : (marks == MARK_POSITIVE_INFINITY ? 1w0 ++ INFINITY_WITHOUT_SIGN
                      : (marks == MARK_NEGATIVE_INFINITY ? 1w1 ++ INFINITY_WITHOUT_SIGN : FLOAT_NAN)));
    }

    @hidden
    action add() {
#define LANE(i)                                                        \
        value = values.value_##i;                                      \
        float_##i.read(lane, slot);                                    \
        lane = (lane & kept) | begun;                                  \
        unpack_lane();                                                 \
        unpack_value();                                                \
        add_value();                                                   \
        lane = marks ++ place ++ sum;                                  \
        float_##i.write(slot, lane);
        FOR_EACH_LANE(LANE)
#undef LANE
    }

    @hidden
    action fetch() {
#define LANE(i)                                                        \
        float_##i.read(lane, slot);                                    \
        unpack_lane();                                                 \
        make_number();                                                 \
        find_first();                                                  \
        make_value();                                                  \
        values.value_##i = value;
        FOR_EACH_LANE(LANE)
#undef LANE
    }

    // The cases are those of SlotValues, except that a packet that does not leave the switch keeps its values.
    apply {
        empty = 1 - meta.filled_before;
        if (meta.phase_predicate == PHASE_REPLACED) {
            empty = 1;
        }
        kept = 0;
        begun = LANE_NONE;
        if (empty == 0) {
            kept = ~kept;
            begun = 0;
        }
        if (meta.has_values == 1 && meta.phase_predicate != PHASE_STALE
            && (meta.seen == 0 || (empty == 1 && meta.phase_predicate != PHASE_REPLACED))) {
            add();
        }
        if (values.isValid() && (meta.verdict == VERDICT_COMPLETED || meta.verdict == VERDICT_RESENT
                                 || meta.verdict == VERDICT_FORWARDED)) {
            fetch();
        }
    }
}

#endif
