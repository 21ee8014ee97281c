// Finds the first thing that is wrong with a SwitchML packet.
#ifndef SWITCHML_MALFORMED_P4
#define SWITCHML_MALFORMED_P4

#include "well_formed.p4"

control MalformedReason(in headers_t hdr, inout metadata_t meta, in ParserStatus_t parser_status) {
    @hidden
    action find_nothing() {}

    @hidden
    action reject(bit<8> reason) {
        meta.reason = reason;
    }

    // After the rows for runts, each row requires one condition less than the row before it. The first row that matches
    // therefore names the first condition, in the order of constants.toml, that does not hold: one lookup and no
    // arithmetic. A UDP length that no well-formed packet has is a bad_length even if IPv4 or the frame is shorter
    // still, because such a payload is not read.
    @hidden
    table malformed_table {
        key = {
            parser_status: ternary;
            hdr.udp.length: range;
            hdr.ipv4.total_length: range;
            hdr.switchml.version: ternary;
            hdr.switchml.kind: ternary;
            hdr.switchml.format: ternary;
            hdr.switchml.exponent: range;
            hdr.switchml.flags[0:0]: ternary;  // FLAG_WITHOUT_VALUES
            hdr.switchml.count: range;
            hdr.switchml.slot[0:0]: ternary;
            hdr.switchml.phase[0:0]: ternary;
        }
        actions = {
            find_nothing;
            reject;
        }
        // The frame ends inside the SwitchML header or the values.
        const default_action = reject(DROP_REASON_RUNT);
        const entries = {
            // UDP or IPv4 ends inside the SwitchML header.
            (_, 0 .. (UDP_LENGTH_EMPTY - 1), _, _, _, _, _, _, _, _, _): reject(DROP_REASON_RUNT);
            (_, _, 0 .. (IPV4_LENGTH_EMPTY - 1), _, _, _, _, _, _, _, _): reject(DROP_REASON_RUNT);
            // IPv4 ends inside the values that the UDP length announces.
            (_, UDP_LENGTH_VALUES .. UDP_LENGTH_VALUES, 0 .. (IPV4_LENGTH_VALUES - 1), _, _, _, _, _, _, _, _):
                reject(DROP_REASON_RUNT);
#if CAN_EXPAND_CODES
            (_, UDP_LENGTH_CODES .. UDP_LENGTH_CODES, 0 .. (IPV4_LENGTH_CODES - 1), _, _, _, _, _, _, _, _):
                reject(DROP_REASON_RUNT);
#endif
#if TAKES_OTHERS
            // Contributions of other formats, in the same order as those of integers.
            (0, LENGTHS_WITH_OTHERS, OURS_IN_OTHERS, ANY_EXPONENT, WITH_VALUES, HALF_0): find_nothing();
            (0, LENGTHS_WITH_OTHERS, OURS_IN_OTHERS, ANY_EXPONENT, WITH_VALUES, HALF_1): find_nothing();
            (0, LENGTHS_EMPTY, OURS_IN_OTHERS, ANY_EXPONENT, EMPTY, HALF_0): find_nothing();
            (0, LENGTHS_EMPTY, OURS_IN_OTHERS, ANY_EXPONENT, EMPTY, HALF_1): find_nothing();
            (0, LENGTHS_WITH_OTHERS, OURS_IN_OTHERS, ANY_EXPONENT, WITH_VALUES, _, _): reject(DROP_REASON_BAD_HALF);
            (0, LENGTHS_EMPTY, OURS_IN_OTHERS, ANY_EXPONENT, EMPTY, _, _): reject(DROP_REASON_BAD_HALF);
            (0, _, _, OURS_IN_OTHERS, ANY_EXPONENT, WITH_VALUES, _, _): reject(DROP_REASON_BAD_LENGTH);
            (0, _, _, OURS_IN_OTHERS, ANY_EXPONENT, EMPTY, _, _): reject(DROP_REASON_BAD_LENGTH);
            (0, _, _, OURS_IN_OTHERS, ANY_EXPONENT, _, _, _, _): reject(DROP_REASON_BAD_COUNT);
            (0, _, _, OURS_IN_OTHERS, _, _, _, _, _): reject(DROP_REASON_BAD_EXPONENT);
#endif
            // Nothing is wrong.
            (0, LENGTHS_WITH_VALUES, OURS, ANY_EXPONENT, WITH_VALUES, HALF_0): find_nothing();
            (0, LENGTHS_WITH_VALUES, OURS, ANY_EXPONENT, WITH_VALUES, HALF_1): find_nothing();
            (0, LENGTHS_EMPTY, OURS, ANY_EXPONENT, EMPTY, HALF_0): find_nothing();
            (0, LENGTHS_EMPTY, OURS, ANY_EXPONENT, EMPTY, HALF_1): find_nothing();
            // Everything holds except the half.
            (0, LENGTHS_WITH_VALUES, OURS, ANY_EXPONENT, WITH_VALUES, _, _): reject(DROP_REASON_BAD_HALF);
            (0, LENGTHS_EMPTY, OURS, ANY_EXPONENT, EMPTY, _, _): reject(DROP_REASON_BAD_HALF);
            // Everything holds up to the count.
            (0, _, _, OURS, ANY_EXPONENT, WITH_VALUES, _, _): reject(DROP_REASON_BAD_LENGTH);
            (0, _, _, OURS, ANY_EXPONENT, EMPTY, _, _): reject(DROP_REASON_BAD_LENGTH);
            // Everything holds up to the exponent.
            (0, _, _, OURS, ANY_EXPONENT, _, _, _, _): reject(DROP_REASON_BAD_COUNT);
            // Everything holds up to the format.
            (0, _, _, OURS, _, _, _, _, _): reject(DROP_REASON_BAD_EXPONENT);
            // A CONTRIBUTION of this version.
            (0, _, _, PROTOCOL_VERSION, KIND_CONTRIBUTION, _, _, _, _, _, _): reject(DROP_REASON_BAD_FORMAT);
            // A RESULT of this version.
            (0, _, _, PROTOCOL_VERSION, KIND_RESULT, _, _, _, _, _, _): reject(DROP_REASON_FORGED_RESULT);
            // A packet of this version.
            (0, _, _, PROTOCOL_VERSION, _, _, _, _, _, _, _): reject(DROP_REASON_BAD_KIND);
            // A complete packet.
            (0, _, _, _, _, _, _, _, _, _, _): reject(DROP_REASON_BAD_VERSION);
        }
#if CAN_EXPAND_CODES
        size = 29;
#elif TAKES_OTHERS
        size = 28;
#else
        size = 18;
#endif
    }

    apply {
        malformed_table.apply();
    }
}

#endif
