// RoCEv2 as an encapsulation: a UD SEND of an RDMA card becomes the UDP packet that it stands for when it comes in, and the
// copies for queue pairs become UD SENDs when they leave. Nothing in between knows of it.
#ifndef SWITCHML_ENCAPSULATION_P4
#define SWITCHML_ENCAPSULATION_P4

#include "headers.p4"

// The target has set `bad_icrc` if the packet's ICRC is wrong.
control Decapsulation(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.bth.isValid()) {
            meta.sender = 8w1 ++ hdr.deth.source_queue_pair;
            if (hdr.bth.padding != 0 || hdr.bth.version != 0) {
                meta.bad_icrc = 1;
            }
            hdr.udp.dst = PROTOCOL_UDP_PORT;
            hdr.udp.length = hdr.udp.length |-| ROCEV2_OVERHEAD_BYTES;
            hdr.ipv4.total_length = hdr.ipv4.total_length |-| ROCEV2_OVERHEAD_BYTES;
            hdr.bth.setInvalid();
            hdr.deth.setInvalid();
            hdr.icrc.setInvalid();
        } else if (hdr.udp.isValid()) {
            meta.sender = (bit<32>)hdr.udp.src;
        }
    }
}

// Completes the headers of a copy that rank_table has addressed to a queue pair, but for the ICRC.
control Encapsulation(inout headers_t hdr) {
    apply {
        if (hdr.bth.isValid()) {
            hdr.udp.dst = ROCEV2_UDP_PORT;
            hdr.udp.length = hdr.udp.length + ROCEV2_OVERHEAD_BYTES;
            hdr.ipv4.total_length = hdr.ipv4.total_length + ROCEV2_OVERHEAD_BYTES;
            hdr.bth.opcode = ROCEV2_OPCODE;
            hdr.bth.solicited_event = 0;
            hdr.bth.migration = 1;
            hdr.bth.padding = 0;
            hdr.bth.version = 0;
            hdr.bth.partition_key = ROCEV2_PARTITION_KEY;
            hdr.bth.congestion = 0;
            hdr.bth.ack_request = 0;
            hdr.bth.reserved = 0;
            hdr.bth.sequence_number = 0;
            hdr.deth.setValid();
            // A queue key with the highest bit is the system's.
            hdr.deth.queue_key = hdr.switchml.secret & 0x7FFFFFFF;
            hdr.deth.reserved = 0;
            hdr.deth.source_queue_pair = ROCEV2_QUEUE_PAIR;
            hdr.icrc.setValid();
        }
    }
}

#endif
