// Is this packet of ours well-formed, and if not, what is wrong with it first?
#ifndef SWITCHML_MALFORMED_P4
#define SWITCHML_MALFORMED_P4

#include "headers.p4"

control MalformedCheck(in headers_t hdr, inout metadata_t meta, in bit<1> parser_failed) {
    @hidden
    action accept_packet() {}

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
            parser_failed: ternary;
            hdr.udp.length: range;
            hdr.ipv4.total_length: range;
            hdr.switchml.version: ternary;
            hdr.switchml.kind: ternary;
            meta.own_source: ternary;
            hdr.switchml.format: ternary;
            hdr.switchml.exponent: range;
            hdr.switchml.flags: ternary;
            hdr.switchml.count: range;
            hdr.switchml.slot: ternary;
            hdr.switchml.phase: ternary;
        }
        actions = {
            accept_packet;
            reject;
        }
        const default_action = reject(DROP_REASON_BAD_VERSION);

#define LENGTH_EMPTY UDP_LENGTH_EMPTY .. UDP_LENGTH_EMPTY, IPV4_LENGTH_EMPTY .. IPV4_LENGTH_EMPTY
#define LENGTH_VALUES UDP_LENGTH_VALUES .. UDP_LENGTH_VALUES, IPV4_LENGTH_VALUES .. IPV4_LENGTH_VALUES
#define EXPONENT 0 .. EXPONENT_UNKNOWN
#define EMPTY FLAG_EXPONENT_ONLY &&& FLAG_EXPONENT_ONLY, 0..0
#define FILLED 0 &&& FLAG_EXPONENT_ONLY, 1 .. VALUES
#define HALF_0 0 &&& 1, 0 &&& 1
#define HALF_1 1 &&& 1, 1 &&& 1
#define OURS PROTOCOL_VERSION, KIND_CONTRIBUTION, 0, FORMAT_INT32
        const entries = {
            // The frame ends inside our header or our values.
            (1, _, _, _, _, _, _, _, _, _, _, _): reject(DROP_REASON_RUNT);
            // UDP or IPv4 end inside our header.
            (_, 0 .. (UDP_LENGTH_EMPTY - 1), _, _, _, _, _, _, _, _, _, _): reject(DROP_REASON_RUNT);
            (_, _, 0 .. (IPV4_LENGTH_EMPTY - 1), _, _, _, _, _, _, _, _, _): reject(DROP_REASON_RUNT);
            // IPv4 ends inside the values that UDP says are there.
            (_, UDP_LENGTH_VALUES .. UDP_LENGTH_VALUES, 0 .. (IPV4_LENGTH_VALUES - 1), _, _, _, _, _, _, _, _, _):
                reject(DROP_REASON_RUNT);
            // Nothing is wrong.
            (_, LENGTH_VALUES, OURS, EXPONENT, FILLED, HALF_0): accept_packet();
            (_, LENGTH_VALUES, OURS, EXPONENT, FILLED, HALF_1): accept_packet();
            (_, LENGTH_EMPTY, OURS, EXPONENT, EMPTY, HALF_0): accept_packet();
            (_, LENGTH_EMPTY, OURS, EXPONENT, EMPTY, HALF_1): accept_packet();
            // All but the half.
            (_, LENGTH_VALUES, OURS, EXPONENT, FILLED, _, _): reject(DROP_REASON_BAD_HALF);
            (_, LENGTH_EMPTY, OURS, EXPONENT, EMPTY, _, _): reject(DROP_REASON_BAD_HALF);
            // All up to the count.
            (_, _, _, OURS, EXPONENT, FILLED, _, _): reject(DROP_REASON_BAD_LENGTH);
            (_, _, _, OURS, EXPONENT, EMPTY, _, _): reject(DROP_REASON_BAD_LENGTH);
            // All up to the exponent.
            (_, _, _, OURS, EXPONENT, _, _, _, _): reject(DROP_REASON_BAD_COUNT);
            // All up to the format.
            (_, _, _, OURS, _, _, _, _, _): reject(DROP_REASON_BAD_EXPONENT);
            // A contribution that does not pretend to come from the switch.
            (_, _, _, PROTOCOL_VERSION, KIND_CONTRIBUTION, 0, _, _, _, _, _, _): reject(DROP_REASON_BAD_FORMAT);
            // Of a kind that we know.
            (_, _, _, PROTOCOL_VERSION, KIND_CONTRIBUTION, _, _, _, _, _, _, _): reject(DROP_REASON_FORGED_RESULT);
            (_, _, _, PROTOCOL_VERSION, KIND_RESULT, _, _, _, _, _, _, _): reject(DROP_REASON_FORGED_RESULT);
            // Of our version.
            (_, _, _, PROTOCOL_VERSION, _, _, _, _, _, _, _, _): reject(DROP_REASON_BAD_KIND);
        }
#undef LENGTH_EMPTY
#undef LENGTH_VALUES
#undef EXPONENT
#undef EMPTY
#undef FILLED
#undef HALF_0
#undef HALF_1
#undef OURS
    }

    apply {
        malformed_table.apply();
    }
}

#endif
