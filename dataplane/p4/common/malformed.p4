// What is wrong with a packet of ours first?
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

    // A staircase: below the runts, each step asks for one condition less than the step above it. The first row that
    // matches thus names the first condition, in the order of constants.toml, that does not hold. One look-up, no
    // arithmetic. A UDP length that is neither of ours is a bad_length even where IPv4 or the frame is shorter still:
    // such a payload is not read.
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
        // The frame ends inside our header or our values.
        const default_action = reject(DROP_REASON_RUNT);
        const entries = {
            // UDP or IPv4 end inside our header.
            (_, 0 .. (UDP_LENGTH_EMPTY - 1), _, _, _, _, _, _, _, _, _): reject(DROP_REASON_RUNT);
            (_, _, 0 .. (IPV4_LENGTH_EMPTY - 1), _, _, _, _, _, _, _, _): reject(DROP_REASON_RUNT);
            // IPv4 ends inside the values that UDP says are there.
            (_, UDP_LENGTH_VALUES .. UDP_LENGTH_VALUES, 0 .. (IPV4_LENGTH_VALUES - 1), _, _, _, _, _, _, _, _):
                reject(DROP_REASON_RUNT);
            // Nothing is wrong.
            (0, LENGTHS_WITH_VALUES, OURS, ANY_EXPONENT, WITH_VALUES, HALF_0): find_nothing();
            (0, LENGTHS_WITH_VALUES, OURS, ANY_EXPONENT, WITH_VALUES, HALF_1): find_nothing();
            (0, LENGTHS_EMPTY, OURS, ANY_EXPONENT, EMPTY, HALF_0): find_nothing();
            (0, LENGTHS_EMPTY, OURS, ANY_EXPONENT, EMPTY, HALF_1): find_nothing();
            // All but the half.
            (0, LENGTHS_WITH_VALUES, OURS, ANY_EXPONENT, WITH_VALUES, _, _): reject(DROP_REASON_BAD_HALF);
            (0, LENGTHS_EMPTY, OURS, ANY_EXPONENT, EMPTY, _, _): reject(DROP_REASON_BAD_HALF);
            // All up to the count.
            (0, _, _, OURS, ANY_EXPONENT, WITH_VALUES, _, _): reject(DROP_REASON_BAD_LENGTH);
            (0, _, _, OURS, ANY_EXPONENT, EMPTY, _, _): reject(DROP_REASON_BAD_LENGTH);
            // All up to the exponent.
            (0, _, _, OURS, ANY_EXPONENT, _, _, _, _): reject(DROP_REASON_BAD_COUNT);
            // All up to the format.
            (0, _, _, OURS, _, _, _, _, _): reject(DROP_REASON_BAD_EXPONENT);
            // A contribution.
            (0, _, _, PROTOCOL_VERSION, KIND_CONTRIBUTION, _, _, _, _, _, _): reject(DROP_REASON_BAD_FORMAT);
            // Of a kind that we know.
            (0, _, _, PROTOCOL_VERSION, KIND_RESULT, _, _, _, _, _, _): reject(DROP_REASON_FORGED_RESULT);
            // Of our version.
            (0, _, _, PROTOCOL_VERSION, _, _, _, _, _, _, _): reject(DROP_REASON_BAD_KIND);
            // Whole.
            (0, _, _, _, _, _, _, _, _, _, _): reject(DROP_REASON_BAD_VERSION);
        }
        size = 18;
    }

    apply {
        malformed_table.apply();
    }
}

#endif
