// A RESULT with values goes through ingress twice. The first pass decides, adds, writes the RESULT's headers and reads
// the even lanes; then the packet is recirculated with carried_t in front of it, and the second pass reads the odd
// lanes and sends it to its group or port. The first pass of all other packets is their only one.
//
// Nothing holds the slot between the passes, and nothing needs to: the odd lanes of phase p change only when its half
// enters p+2 (or another epoch). A rank enters p+2 with the result of p+1 in hand, which is complete when all ranks
// have contributed to p+1, which each does with the result of p in hand. So if the second pass reads lanes of p+2,
// every rank holds p already (by a resend that overtook it), and ignores the mixed RESULT, which names p (DESIGN
// section 6). One that names an epoch that is over is ignored likewise.
//
// Which ports recirculate, the controller tells in the port metadata; a packet that came in through any other is never
// read as one at its second pass, whatever its first bytes are.
#ifndef SWITCHML_SECOND_PASS_P4
#define SWITCHML_SECOND_PASS_P4

#include "arch.p4"
#include "../common/headers.p4"

// 64 bits for each port, which the parser gets in front of the packet.
struct port_metadata_t {
    @padding bit<7> unused_1;
    PortId_t second_pass_port;  // where packets from this port are sent to for their second pass; 0: nowhere
    @padding bit<7> unused_2;
    bit<1> is_second_pass;      // this port brings packets at their second pass
    @padding bit<40> unused_3;
}

// The relation of a packet at its second pass.
const relation_t SECOND_PASS = 3;

// Where a packet goes at the end of ingress.
control Departure(inout headers_t hdr, inout metadata_t meta, in PortId_t ingress_port,
                  inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
                  inout ingress_intrinsic_metadata_for_tm_t for_traffic_manager) {
    @hidden
    action carry() {
        hdr.carried.setValid();
        hdr.carried.verdict = meta.verdict;
        hdr.carried.flooded = meta.flooded;
        hdr.carried.new_ipv4_header = meta.new_ipv4_header;
        hdr.carried.port = ingress_port;
        hdr.carried.group = meta.group;
    }

    @hidden
    action send_to_second_pass() {
        carry();
        for_traffic_manager.ucast_egress_port = meta.second_pass_port;
        for_traffic_manager.bypass_egress = 1;
    }

    @hidden
    action send_to_port() {
        carry();
        for_traffic_manager.ucast_egress_port = meta.port;
    }

    @hidden
    action send_to_group() {
        carry();
        for_traffic_manager.mcast_grp_a = meta.group;
    }

    @hidden
    action resend() {
        for_traffic_manager.ucast_egress_port = hdr.carried.port;
    }

    @hidden
    action multicast() {
        for_traffic_manager.mcast_grp_a = hdr.carried.group;
    }

    @hidden
    action end() {
        for_deparser.drop_ctl = 1;
    }

    @hidden
    action end_without_route() {
        meta.reason = DROP_REASON_NO_ROUTE;
        for_deparser.drop_ctl = 1;
    }

    @hidden
    table departure_table {
        key = {
            meta.relation: ternary;
            hdr.carried.verdict: ternary;
            hdr.values.isValid(): ternary;
            meta.verdict: ternary;
            meta.destination: ternary;
            meta.second_pass_port: ternary;
        }
        actions = {
            send_to_second_pass;
            send_to_port;
            send_to_group;
            resend;
            multicast;
            end;
            end_without_route;
        }
        const default_action = end();
        const entries = {
            (SECOND_PASS, VERDICT_RESENT, _, _, _, _): resend();
            (SECOND_PASS, _, _, _, _, _): multicast();
            (_, _, _, _, DESTINATION_NONE, _): end();
            // The controller has not said where RESULTs with values get their odd lanes.
            (_, _, true, VERDICT_COMPLETED, _, 0): end_without_route();
            (_, _, true, VERDICT_RESENT, _, 0): end_without_route();
            (_, _, true, VERDICT_COMPLETED, _, _): send_to_second_pass();
            (_, _, true, VERDICT_RESENT, _, _): send_to_second_pass();
            (_, _, _, _, DESTINATION_PORT, _): send_to_port();
            (_, _, _, _, DESTINATION_GROUP, _): send_to_group();
        }
        size = 16;
    }

    apply {
        departure_table.apply();
    }
}

#endif
