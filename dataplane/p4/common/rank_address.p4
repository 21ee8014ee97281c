// In egress, writes the addresses of the rank that receives this copy of a RESULT, or of the parent that receives this
// switch's contribution.
#ifndef SWITCHML_RANK_ADDRESS_P4
#define SWITCHML_RANK_ADDRESS_P4

#include "headers.p4"

control RankAddress(inout headers_t hdr, inout metadata_t meta, in bit<16> rank) {
    @name(".SwitchMLEgress.address_rank")
    action address_rank(mac_t eth_dst, ipv4_t ipv4_dst, bit<16> udp_dst
#if CAN_REMOVE_VALUES
                        , bitmap_t ranks
#endif
                        ) {
#if CAN_REMOVE_VALUES
        meta.listeners = ranks;
#endif
        hdr.ethernet.dst = eth_dst;
        hdr.ipv4.dst = ipv4_dst;
        hdr.udp.dst = udp_dst;
    }

#if CAN_DECAPSULATE_ROCEV2
    // For a rank with an RDMA card; encapsulation.p4 does the rest.
    @name(".SwitchMLEgress.address_queue_pair")
    action address_queue_pair(mac_t eth_dst, ipv4_t ipv4_dst, bit<24> queue_pair, bitmap_t ranks) {
        meta.listeners = ranks;
        hdr.ethernet.dst = eth_dst;
        hdr.ipv4.dst = ipv4_dst;
        hdr.bth.setValid();
        hdr.bth.destination_queue_pair = queue_pair;
    }
#endif

    @name(".SwitchMLEgress.rank_table")
    table rank_table {
        key = {
            hdr.switchml.job: exact @name("job");
            rank: exact @name("rank");
        }
        actions = {
            address_rank;
#if CAN_DECAPSULATE_ROCEV2
            address_queue_pair;
#endif
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 16384;
    }

    apply {
        if (!rank_table.apply().hit) {
            meta.reason = DROP_REASON_NO_RANK_ADDRESS;
        }
        // The replica's instance has this switch's number at the parent. The parent's RESULT returns both fields.
        if (hdr.switchml.kind == KIND_CONTRIBUTION) {
            hdr.switchml.owner = hdr.switchml.worker;
            hdr.switchml.worker = (bit<8>)rank;
        }
    }
}

#endif
