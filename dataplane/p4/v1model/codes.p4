// Replaces codes by the integers that they stand for (constants.toml, [format] and [dynamic8]), which are then the packet's
// values. They are computed, because a table would have 256 entries in each lane.
#ifndef SWITCHML_CODES_P4
#define SWITCHML_CODES_P4

#include "arch.p4"
#include "../common/headers.p4"

#if CAN_EXPAND_CODES

// A number n of seven bits with n = 2^b + j stands in dynamic8 for start_b + j * step_b.
#define DYNAMIC8_OF(n, b) (DYNAMIC8_START_##b + ((bit<32>)(n) - (32w1 << b)) * DYNAMIC8_STEP_##b)
#define DYNAMIC8_0(n) (n[0:0] == 1 ? DYNAMIC8_START_0 : 32w0)
#define DYNAMIC8_1(n) (n[1:1] == 1 ? DYNAMIC8_OF(n, 1) : DYNAMIC8_0(n))
#define DYNAMIC8_2(n) (n[2:2] == 1 ? DYNAMIC8_OF(n, 2) : DYNAMIC8_1(n))
#define DYNAMIC8_3(n) (n[3:3] == 1 ? DYNAMIC8_OF(n, 3) : DYNAMIC8_2(n))
#define DYNAMIC8_4(n) (n[4:4] == 1 ? DYNAMIC8_OF(n, 4) : DYNAMIC8_3(n))
#define DYNAMIC8_5(n) (n[5:5] == 1 ? DYNAMIC8_OF(n, 5) : DYNAMIC8_4(n))
#define DYNAMIC8_6(n) (n[6:6] == 1 ? DYNAMIC8_OF(n, 6) : DYNAMIC8_5(n))

control CodeExpansion(inout headers_t hdr) {
    bit<7> number;
    bit<32> magnitude;

// The magnitude, or its two's complement if the code has a sign.
#define SIGNED(code) (code[7:7] == 1 ? 0 - magnitude : magnitude)

    // Shifting by 32 or more gives 0; n = 0 shifts by 127.
    @hidden
    action expand_natural8() {
#define LANE(i)                                                        \
        number = hdr.codes.code_##i[6:0];                              \
        magnitude = 32w1 << (number - 1);                              \
        hdr.values.value_##i = SIGNED(hdr.codes.code_##i);
        FOR_EACH_LANE(LANE)
#undef LANE
    }

    @hidden
    action expand_dynamic8() {
#define LANE(i)                                                        \
        number = hdr.codes.code_##i[6:0];                              \
        magnitude = DYNAMIC8_6(number);                                \
        hdr.values.value_##i = SIGNED(hdr.codes.code_##i);
        FOR_EACH_LANE(LANE)
#undef LANE
    }
#undef SIGNED

    apply {
        if (hdr.codes.isValid()) {
            hdr.values.setValid();
            if (hdr.switchml.format == FORMAT_NATURAL8) {
                expand_natural8();
            } else {
                expand_dynamic8();
            }
            hdr.codes.setInvalid();
        }
    }
}

// Gives a packet that leaves the switch the format of its values, and the lengths if codes were expanded.
control ResultFormat(inout headers_t hdr) {
    apply {
        if (hdr.switchml.isValid() && hdr.switchml.format != FORMAT_INT32) {
            hdr.switchml.format = FORMAT_INT32;
            if (hdr.values.isValid()) {
                hdr.udp.length = UDP_LENGTH_VALUES;
                hdr.ipv4.total_length = IPV4_LENGTH_VALUES;
            }
        }
    }
}

#else

control CodeExpansion(inout headers_t hdr) {
    apply {}
}

control ResultFormat(inout headers_t hdr) {
    apply {}
}

#endif

#undef DYNAMIC8_OF

#endif
