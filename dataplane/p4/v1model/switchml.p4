// SwitchML for BMv2's simple_switch (v1model). The code specific to this target is in this folder, everything else in
// ../common.
#include "arch.p4"
#include "../common/headers.p4"
#include "../common/parser.p4"
#include "loss_draw.p4"
#include "../common/loss.p4"
#include "counters.p4"
#include "codes.p4"
#include "invariant_crc.p4"
#include "../common/encapsulation.p4"
#include "slot_state.p4"
#include "slot_exponent.p4"
#include "slot_check.p4"
#include "slot_next.p4"
#include "slot_owner.p4"
#include "slot_values.p4"
#if CAN_ADD_FLOATS
#include "slot_floats.p4"
#include "slot_format.p4"
#endif
#include "../common/ingress.p4"
#include "../common/rank_address.p4"
#include "owners_values.p4"

parser SwitchMLParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    PacketParser() packet_parser;

    state start {
        packet_parser.apply(packet, hdr);
        transition accept;
    }
}

control SwitchMLVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control SwitchMLIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    IngressLoss() ingress_loss;
    InvariantCrc() invariant_crc;
    Decapsulation() decapsulation;
    CodeExpansion() code_expansion;
    PacketProcessing() packet_processing;
    ResultFormat() result_format;
#if CAN_ADD_FLOATS
    SlotFloats() slot_floats;
#endif
    DropCounter() drop_counter_of_ingress;

    bit<32> icrc;

    apply {
        ingress_loss.apply(meta, standard_metadata.ingress_port);
        if (meta.reason == DROP_REASON_NONE) {
            if (hdr.icrc.isValid()) {
                invariant_crc.apply(hdr, icrc);
                meta.bad_icrc = (bit<1>)(icrc != hdr.icrc.crc);
            }
            decapsulation.apply(hdr, meta);
            code_expansion.apply(hdr);
            packet_processing.apply(hdr, meta, standard_metadata.ingress_port,
                                    (bit<1>)(standard_metadata.parser_error != error.NoError));
            result_format.apply(hdr);
#if CAN_ADD_FLOATS
            if (hdr.switchml.format == FORMAT_FLOAT32) {
                slot_floats.apply(hdr.values, hdr.switchml.slot, meta);
            }
#endif
        }

        if (meta.reason != DROP_REASON_NONE) {
            drop_counter_of_ingress.apply(meta.reason);
        }
        // mark_to_drop clears mcast_grp, so it comes before the group is set. A packet without a destination is dropped
        // here; otherwise it would leave through port 0.
        mark_to_drop(standard_metadata);
        if (meta.destination == DESTINATION_PORT) {
            standard_metadata.egress_spec = meta.port;
        } else if (meta.destination == DESTINATION_GROUP) {
            standard_metadata.mcast_grp = meta.group;
        }
    }
}

control SwitchMLEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    RankAddress() rank_address;
    OwnersValues() owners_values;
    Encapsulation() encapsulation;
    InvariantCrc() invariant_crc;
    EgressLoss() egress_loss;
    DropCounter() drop_counter_of_egress;

    ReplicationId_t rank;

    apply {
        if (hdr.switchml.isValid()) {
            // Only RESULTs, and contributions to the parent, reach egress: a multicast copy goes to its replica's rank, a
            // resend to the rank that asked.
            rank = standard_metadata.egress_rid;
            if (meta.verdict == VERDICT_RESENT) {
                rank = (ReplicationId_t)hdr.switchml.worker;
            }
            rank_address.apply(hdr, meta, rank);
            owners_values.apply(hdr, meta.listeners);
            encapsulation.apply(hdr);
            if (hdr.icrc.isValid()) {
                invariant_crc.apply(hdr, hdr.icrc.crc);
            }
        }

        if (meta.flooded == 1 && standard_metadata.egress_port == standard_metadata.ingress_port) {
            mark_to_drop(standard_metadata);
        } else {
            if (meta.reason == DROP_REASON_NONE) {
                egress_loss.apply(meta, standard_metadata.egress_port);
            }
            if (meta.reason != DROP_REASON_NONE) {
                drop_counter_of_egress.apply(meta.reason);
                mark_to_drop(standard_metadata);
            }
        }
    }
}

// Computes the checksum of IPv4 headers that the switch wrote. An ordinary packet keeps its checksum, right or wrong,
// for the receiver to verify.
control SwitchMLComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(
            meta.new_ipv4_header == 1,
            { IPV4_FIELDS_WITHOUT_CHECKSUM(hdr.ipv4) },
            hdr.ipv4.checksum,
            HashAlgorithm.csum16);
    }
}

control SwitchMLDeparser(packet_out packet, in headers_t hdr) {
    PacketDeparser() packet_deparser;

    apply {
        packet_deparser.apply(packet, hdr);
    }
}

@pkginfo(name="switchml", version="0.1.0")
V1Switch(SwitchMLParser(), SwitchMLVerifyChecksum(), SwitchMLIngress(), SwitchMLEgress(), SwitchMLComputeChecksum(),
         SwitchMLDeparser()) main;
