// The ICRC of a RoCEv2 packet, which RDMA cards verify (InfiniBand Architecture Specification, annex A17): the CRC-32 of
// Ethernet over the packet from its IPv4 header on, without the fields that routers and switches may change.
#ifndef SWITCHML_INVARIANT_CRC_P4
#define SWITCHML_INVARIANT_CRC_P4

#include "arch.p4"
#include "../common/headers.p4"

// Eight bytes of ones stand for InfiniBand's own routing header, further ones for what may change.
#define INVARIANT_HEADERS                                                                                              \
    64w0xFFFFFFFFFFFFFFFF, hdr.ipv4.version, hdr.ipv4.header_length, 8w0xFF, hdr.ipv4.total_length,                    \
    hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.fragment_offset, 8w0xFF, hdr.ipv4.protocol, 16w0xFFFF,           \
    hdr.ipv4.src, hdr.ipv4.dst, hdr.udp.src, hdr.udp.dst, hdr.udp.length, 16w0xFFFF, hdr.bth.opcode,                   \
    hdr.bth.solicited_event, hdr.bth.migration, hdr.bth.padding, hdr.bth.version, hdr.bth.partition_key, 8w0xFF,       \
    hdr.bth.destination_queue_pair, hdr.bth.ack_request, hdr.bth.reserved, hdr.bth.sequence_number,                    \
    hdr.deth.queue_key, hdr.deth.reserved, hdr.deth.source_queue_pair, hdr.switchml.version, hdr.switchml.kind,        \
    hdr.switchml.job, hdr.switchml.worker, hdr.switchml.format, hdr.switchml.exponent, hdr.switchml.slot,              \
    hdr.switchml.count, hdr.switchml.epoch, hdr.switchml.owner, hdr.switchml.flags, hdr.switchml.phase,                \
    hdr.switchml.chunk, hdr.switchml.check, hdr.switchml.secret
#define VALUE(i) , hdr.values.value_##i
#define CODE(i) , hdr.codes.code_##i
#define CRC_OF(fields) hash(crc, HashAlgorithm.crc32, 32w0, {fields}, 64w0x100000000)

control InvariantCrc(in headers_t hdr, out bit<32> icrc) {
    bit<32> crc;

    apply {
        if (hdr.values.isValid()) {
            CRC_OF(INVARIANT_HEADERS FOR_EACH_LANE(VALUE));
#if CAN_EXPAND_CODES
        } else if (hdr.codes.isValid()) {
            CRC_OF(INVARIANT_HEADERS FOR_EACH_LANE(CODE));
#endif
        } else {
            CRC_OF(INVARIANT_HEADERS);
        }
        icrc = crc[7:0] ++ crc[15:8] ++ crc[23:16] ++ crc[31:24];
    }
}
#undef INVARIANT_HEADERS
#undef VALUE
#undef CODE
#undef CRC_OF

#endif
