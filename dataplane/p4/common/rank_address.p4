// In egress, writes the addresses of the rank that receives this copy of a RESULT.
#ifndef SWITCHML_RANK_ADDRESS_P4
#define SWITCHML_RANK_ADDRESS_P4

#include "headers.p4"

control RankAddress(inout headers_t hdr, inout metadata_t meta, in bit<16> rank) {
    @name(".SwitchMLEgress.address_rank")
    action address_rank(mac_t eth_dst, ipv4_t ipv4_dst, bit<16> udp_dst) {
        hdr.ethernet.dst = eth_dst;
        hdr.ipv4.dst = ipv4_dst;
        hdr.udp.dst = udp_dst;
    }

    @name(".SwitchMLEgress.rank_table")
    table rank_table {
        key = {
            hdr.switchml.job: exact @name("job");
            rank: exact @name("rank");
        }
        actions = {
            address_rank;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 16384;
    }

    apply {
        if (!rank_table.apply().hit) {
            meta.reason = DROP_REASON_NO_RANK_ADDRESS;
        }
    }
}

#endif
