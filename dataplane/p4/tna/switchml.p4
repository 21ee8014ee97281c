// SwitchML for Tofino (TNA). The code specific to this target is in this folder, everything else in ../common.
#include "arch.p4"
#include "../common/headers.p4"
#include "../common/parser.p4"
#include "counters.p4"
#include "recirculation.p4"
#include "slot_state.p4"
#include "slot_exponent.p4"
#include "slot_check.p4"
#include "slot_next.p4"
#if !FPISA_A
#include "slot_values.p4"
#endif
#include "../common/ingress.p4"
#include "../common/rank_address.p4"

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

// These fields are the operands and results of stateful ALUs. If they were split, their parts would share containers
// with other fields, and two tables that write to the same container cannot share a stage.
@pa_container_size("ingress", "meta.worker_bit", 32)
@pa_container_size("ingress", "meta.bitmap", 32)
@pa_container_size("ingress", "meta.seen", 32)
@pa_container_size("ingress", "meta.phase_now", 32)
@pa_container_size("ingress", "meta.new_epoch", 32)
// The parser writes 16 bits to the low end of the container, whatever its size.
@pa_container_size("ingress", "ig_intr_md_from_prsr.parser_err", 16)
control SwitchMLIngress(inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t ig_intr_md,
                        in ingress_intrinsic_metadata_from_parser_t from_parser,
                        inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
                        inout ingress_intrinsic_metadata_for_tm_t for_traffic_manager) {
    PacketProcessing() packet_processing;
    ForwardingDecision() forwarding_decision;
    IngressDropCounter() drop_counter_of_ingress;
#if FPISA_A
    UnpackFloats() unpack_floats;
    SlotFloats() slot_floats;
#endif

    apply {
#if FPISA_A
        unpack_floats.apply(hdr.values, hdr.floats);
#endif
        packet_processing.apply(hdr, meta, ig_intr_md.ingress_port, from_parser.parser_err);
#if FPISA_A
        slot_floats.apply(hdr.values, hdr.floats, hdr.switchml.slot, meta);
#endif
        forwarding_decision.apply(hdr, meta, ig_intr_md.ingress_port, for_deparser, for_traffic_manager);
        if (meta.reason != DROP_REASON_NONE) {
            drop_counter_of_ingress.apply(meta.reason);
        }
    }
}

control SwitchMLIngressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                                in ingress_intrinsic_metadata_for_deparser_t for_deparser) {
    PacketDeparser() packet_deparser;

    apply {
        packet.emit(hdr.bridged);
#if FPISA_A
        packet.emit(hdr.floats);
#endif
        packet_deparser.apply(packet, hdr);
    }
}

// Parses only what egress rewrites or tests. The rest, in particular values that are integers, passes as payload.
parser SwitchMLEgressParser(packet_in packet, out headers_t hdr, out metadata_t meta,
                            out egress_intrinsic_metadata_t eg_intr_md) {
    state start {
        packet.extract(eg_intr_md);
        meta.reason = DROP_REASON_NONE;
        packet.extract(hdr.bridged);
        transition select(hdr.bridged.verdict, hdr.bridged.new_ipv4_header) {
            (VERDICT_NONE, 0): accept;
            (VERDICT_NONE, 1): parse_answer;
            default: parse_result;
        }
    }

#if FPISA_A
    state parse_result {
        transition select(hdr.bridged.has_floats) {
            1: parse_floats;
            default: parse_headers;
        }
    }

    state parse_floats {
        packet.extract(hdr.floats);
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.switchml);
        packet.extract(hdr.values);
        transition accept;
    }
#define PARSE_RESULT parse_headers
#else
#define PARSE_RESULT parse_result
#endif

    state parse_answer {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        transition accept;
    }

    state PARSE_RESULT {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.switchml);
        transition accept;
    }
}

control SwitchMLEgress(inout headers_t hdr, inout metadata_t meta, in egress_intrinsic_metadata_t eg_intr_md,
                       in egress_intrinsic_metadata_from_parser_t from_parser,
                       inout egress_intrinsic_metadata_for_deparser_t for_deparser,
                       inout egress_intrinsic_metadata_for_output_port_t for_output_port) {
    RankAddress() rank_address;
    EgressDropCounter() drop_counter_of_egress;
#if FPISA_A
    FloatResults() float_results;
#endif

    ReplicationId_t rank;

    apply {
        if (hdr.switchml.isValid()) {
            // A multicast copy goes to its replica's rank, a resend to the rank that asked for it.
            rank = eg_intr_md.egress_rid;
            if (hdr.bridged.verdict == VERDICT_RESENT) {
                rank = (ReplicationId_t)hdr.switchml.worker;
            }
            rank_address.apply(hdr, meta, rank);
        }
        if (hdr.bridged.flooded == 1 && eg_intr_md.egress_port == hdr.bridged.port) {
            for_deparser.drop_ctl = 1;
        }
        if (meta.reason != DROP_REASON_NONE) {
            drop_counter_of_egress.apply(hdr, meta.reason);
            for_deparser.drop_ctl = 1;
        }
#if FPISA_A
        float_results.apply(hdr.values, hdr.floats);
        hdr.floats.setInvalid();
#endif
        hdr.bridged.setInvalid();
    }
}

control SwitchMLEgressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                               in egress_intrinsic_metadata_for_deparser_t for_deparser) {
    Checksum() ipv4_checksum;

    apply {
        // The IPv4 header is parsed only if the switch wrote it. All other packets keep their checksum, right or wrong,
        // for the receiver to verify.
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.checksum = ipv4_checksum.update({ IPV4_FIELDS_WITHOUT_CHECKSUM(hdr.ipv4) });
        }
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.switchml);
#if FPISA_A
        packet.emit(hdr.values);
#endif
    }
}

@pkginfo(name="switchml", version="0.1.0")
Pipeline(SwitchMLIngressParser(), SwitchMLIngress(), SwitchMLIngressDeparser(), SwitchMLEgressParser(),
         SwitchMLEgress(), SwitchMLEgressDeparser()) pipe;

Switch(pipe) main;
