// Sums of floats on Tofino, for study: a program that adds six floats of a packet as FPISA-A does, and nothing else.
// README.md tells what fits and what it is good for.

// The same macros as in switchml.p4. Ingress puts the sums of floats in front of the packet, for egress to read.
#define VALUES 6
#define FORMAT_OF_WORDS FORMAT_FLOAT32
#define CAN_ADD_INTEGERS 0
#define TARGET_HEADERS bridged_metadata_t bridged; floats_t floats;
#define BRIDGED_FLAGS                                                               \
    @padding bit<1> unused_1;                                                       \
    bit<1> has_floats; /* floats_t follows, and the packet has values */
#define BRIDGE_FLAGS hdr.bridged.has_floats = (bit<1>)hdr.floats.isValid();

#include "slot_floats.p4"
#include "float_results.p4"
#include "../../../dataplane/p4/common/parser.p4"
#include "../../../dataplane/p4/tna/counters.p4"
#include "../../../dataplane/p4/tna/recirculation.p4"
#include "../../../dataplane/p4/tna/slot_state.p4"
#include "../../../dataplane/p4/tna/slot_exponent.p4"
#include "../../../dataplane/p4/tna/slot_check.p4"
#include "../../../dataplane/p4/tna/slot_next.p4"
#include "../../../dataplane/p4/common/ingress.p4"
#include "../../../dataplane/p4/common/rank_address.p4"
#include "../../../dataplane/p4/tna/ingress_parser.p4"

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
    UnpackFloats() unpack_floats;
    SlotFloats() slot_floats;

    apply {
        unpack_floats.apply(hdr.values, hdr.floats);
        packet_processing.apply(hdr, meta, ig_intr_md.ingress_port, from_parser.parser_err);
        slot_floats.apply(hdr.values, hdr.floats, hdr.switchml.slot, meta);
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
        packet.emit(hdr.floats);
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
    state parse_answer {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        transition accept;
    }

    state parse_headers {
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
    FloatResults() float_results;

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
        float_results.apply(hdr.values, hdr.floats);
        hdr.floats.setInvalid();
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
        packet.emit(hdr.values);
    }
}

@pkginfo(name="switchml", version="0.1.0")
Pipeline(SwitchMLIngressParser(), SwitchMLIngress(), SwitchMLIngressDeparser(), SwitchMLEgressParser(),
         SwitchMLEgress(), SwitchMLEgressDeparser()) pipe;

Switch(pipe) main;
