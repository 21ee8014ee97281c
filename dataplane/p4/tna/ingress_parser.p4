// The parser of ingress: the port metadata, the bridged metadata of a recirculated packet, and the packet.
#ifndef SWITCHML_INGRESS_PARSER_P4
#define SWITCHML_INGRESS_PARSER_P4

#include "arch.p4"
#include "../common/headers.p4"
#include "../common/parser.p4"
#include "recirculation.p4"

parser SwitchMLIngressParser(packet_in packet, out headers_t hdr, out metadata_t meta,
                             out ingress_intrinsic_metadata_t ig_intr_md) {
    PacketParser() packet_parser;

    port_metadata_t port;

    state start {
        packet.extract(ig_intr_md);
        port = port_metadata_unpack<port_metadata_t>(packet);
        meta = {
            switch_mac = 0, switch_ip = 0, switch_mac_set = 0, switch_ip_set = 0, own_mac_source = 0, own_ip_source = 0,
            ours = 0, has_values = 0,
            admitted = 0, worker_bit = 0, job_mask = 0, epoch = 0, has_parent = 0, from_parent = 0, completed_here = 0,
            phase_predicate = PHASE_STALE, seen = 0, bitmap = 0, filled_before = 0,
            reason = DROP_REASON_NONE, verdict = VERDICT_NONE, destination = DESTINATION_NONE, port = 0, group = 0,
            new_ipv4_header = 0, forwarded = 0, flooded = 0,
            recirculation_port = 0, phase_now = 0, new_epoch = 0
        };
        meta.recirculation_port = port.recirculation_port;
        transition select(port.is_recirculated) {
            1: parse_bridged_metadata;
            default: parse_packet;
        }
    }

    state parse_bridged_metadata {
        packet.extract(hdr.bridged);
        meta.admitted = 1;
        meta.phase_predicate = PHASE_RECIRCULATED;
        transition parse_packet;
    }

    state parse_packet {
        packet_parser.apply(packet, hdr);
        transition accept;
    }
}

#endif
