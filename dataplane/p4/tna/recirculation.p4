// Recirculation and forwarding decision.
//
// A RESULT or a contribution to the parent, if it has values, goes through ingress twice. At first the program decides,
// adds, writes the headers and reads the even lanes. Then it recirculates the packet, preceded by bridged metadata; the
// recirculated packet reads the odd lanes and is sent to its multicast group or port. No other packet is recirculated: a
// RESULT of the parent has come with all lanes.
//
// The slot is not locked during the recirculation, and need not be: the odd lanes of phase p change only when this half
// enters phase p+2 (or another epoch). A rank enters p+2 only after it has the result of p+1; that result is complete
// only after all ranks have contributed to p+1, which each does only after it has the result of p. So if a recirculated
// packet reads lanes of p+2, every rank already holds the result of p (from a resend that arrived earlier) and ignores
// the mixed RESULT, which names p (docs/understand/protocol.md). A RESULT that names a past epoch is ignored as well.
//
// The lanes of a contribution to the parent also change when the parent's RESULT comes, and that answers an earlier copy
// of this contribution. So a copy that mixes lanes of the sum and of the RESULT is a duplicate for the parent, which does
// not add it.
//
// The controller configures in the port metadata which ports recirculate. A packet from any other port is never taken
// for a recirculated one, whatever its first bytes are.
#ifndef SWITCHML_RECIRCULATION_P4
#define SWITCHML_RECIRCULATION_P4

#include "arch.p4"
#include "../common/headers.p4"

// The port metadata: 64 bits for each port, which the parser reads before the packet.
struct port_metadata_t {
    @padding bit<7> unused_1;
    PortId_t recirculation_port;  // the port that recirculates packets of this port; 0: not configured
    @padding bit<7> unused_2;
    bit<1> is_recirculated;       // packets from this port are recirculated ones
    @padding bit<40> unused_3;
}

// The phase predicate of a recirculated packet.
const phase_predicate_t PHASE_RECIRCULATED = 3;

// Decides where a packet goes at the end of ingress.
control ForwardingDecision(inout headers_t hdr, inout metadata_t meta, in PortId_t ingress_port,
                  inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
                  inout ingress_intrinsic_metadata_for_tm_t for_traffic_manager) {
    @hidden
    action bridge_metadata() {
        hdr.bridged.setValid();
        hdr.bridged.verdict = meta.verdict;
        hdr.bridged.flooded = meta.flooded;
        hdr.bridged.new_ipv4_header = meta.new_ipv4_header;
        BRIDGE_FLAGS
        hdr.bridged.port = ingress_port;
        hdr.bridged.group = meta.group;
    }

    @hidden
    action recirculate() {
        bridge_metadata();
        for_traffic_manager.ucast_egress_port = meta.recirculation_port;
        for_traffic_manager.bypass_egress = 1;
    }

    @hidden
    action send_to_port() {
        bridge_metadata();
        for_traffic_manager.ucast_egress_port = meta.port;
    }

    @hidden
    action send_to_group() {
        bridge_metadata();
        for_traffic_manager.mcast_grp_a = meta.group;
    }

    @hidden
    action resend() {
        for_traffic_manager.ucast_egress_port = hdr.bridged.port;
    }

    @hidden
    action multicast() {
        for_traffic_manager.mcast_grp_a = hdr.bridged.group;
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
    table forwarding_decision_table {
        key = {
            meta.phase_predicate: ternary;
            hdr.bridged.verdict: ternary;
            hdr.values.isValid(): ternary;
            meta.verdict: ternary;
            meta.destination: ternary;
            meta.recirculation_port: ternary;
            meta.from_parent: ternary;
        }
        actions = {
            recirculate;
            send_to_port;
            send_to_group;
            resend;
            multicast;
            end;
            end_without_route;
        }
        const default_action = end();
        const entries = {
            (PHASE_RECIRCULATED, VERDICT_RESENT, _, _, _, _, _): resend();
            (PHASE_RECIRCULATED, _, _, _, _, _, _): multicast();
            (_, _, _, _, DESTINATION_NONE, _, _): end();
            // A RESULT of the parent has come with the values of all lanes.
            (_, _, _, VERDICT_COMPLETED, _, _, 1): send_to_group();
#if CAN_ADD_INTEGERS
            // A packet with values needs a recirculation port, and the controller has not configured one.
            (_, _, true, VERDICT_COMPLETED, _, 0, _): end_without_route();
            (_, _, true, VERDICT_RESENT, _, 0, _): end_without_route();
            (_, _, true, VERDICT_FORWARDED, _, 0, _): end_without_route();
            (_, _, true, VERDICT_COMPLETED, _, _, _): recirculate();
            (_, _, true, VERDICT_RESENT, _, _, _): recirculate();
            (_, _, true, VERDICT_FORWARDED, _, _, _): recirculate();
#endif
            (_, _, _, _, DESTINATION_PORT, _, _): send_to_port();
            (_, _, _, _, DESTINATION_GROUP, _, _): send_to_group();
        }
        size = 16;
    }

    apply {
        forwarding_decision_table.apply();
    }
}

#endif
