// Parses the headers, and deparses them.
#ifndef SWITCHML_PARSER_P4
#define SWITCHML_PARSER_P4

#include "headers.p4"

// A UDP header is extracted only if it follows 20 bytes of IPv4 header: not from fragments (the lengths of a fragment
// say nothing about its datagram) and not after IPv4 options. A UDP header with the SwitchML destination port therefore
// marks a SwitchML packet, whether or not the rest of it could be parsed. The same holds for an ICMP header. A header
// that the frame truncates is not extracted: its bytes are forwarded unchanged.
parser PacketParser(packet_in packet, inout headers_t hdr) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_ARP: parse_arp;
            default: accept;
        }
    }

    state parse_arp {
        packet.extract(hdr.arp);
        transition accept;
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.version, hdr.ipv4.header_length, hdr.ipv4.flags, hdr.ipv4.fragment_offset,
                          hdr.ipv4.protocol) {
            (4, 5, 0b000 &&& 0b001, 0, IP_PROTOCOL_UDP): parse_udp;
            (4, 5, 0b000 &&& 0b001, 0, IP_PROTOCOL_ICMP): parse_icmp;
            default: accept;
        }
    }

    state parse_icmp {
        packet.extract(hdr.icmp);
        transition accept;
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst) {
            PROTOCOL_UDP_PORT: parse_switchml;
#if CAN_DECAPSULATE_ROCEV2
            ROCEV2_UDP_PORT: look_at_rocev2;
#endif
            default: accept;
        }
    }

#if CAN_DECAPSULATE_ROCEV2
    // The other packets of hosts' RDMA traffic are ordinary.
    state look_at_rocev2 {
        bth_t bth = packet.lookahead<bth_t>();
        transition select(bth.opcode, bth.destination_queue_pair) {
            (ROCEV2_OPCODE, ROCEV2_QUEUE_PAIR): parse_rocev2;
            default: accept;
        }
    }

    state parse_rocev2 {
        packet.extract(hdr.bth);
        packet.extract(hdr.deth);
        packet.extract(hdr.switchml);
        transition select(hdr.udp.length) {
            UDP_LENGTH_EMPTY + ROCEV2_OVERHEAD_BYTES: parse_icrc;
            UDP_LENGTH_VALUES + ROCEV2_OVERHEAD_BYTES: parse_values_and_icrc;
#if CAN_EXPAND_CODES
            UDP_LENGTH_CODES + ROCEV2_OVERHEAD_BYTES: parse_codes_and_icrc;
#endif
            default: accept;
        }
    }

    state parse_values_and_icrc {
        packet.extract(hdr.values);
        transition parse_icrc;
    }

#if CAN_EXPAND_CODES
    state parse_codes_and_icrc {
        packet.extract(hdr.codes);
        transition parse_icrc;
    }
#endif

    state parse_icrc {
        packet.extract(hdr.icrc);
        transition accept;
    }
#endif

    state parse_switchml {
        packet.extract(hdr.switchml);
        // A packet of any other length has no values or the wrong number of them; malformed_table tells which.
        transition select(hdr.udp.length) {
            UDP_LENGTH_VALUES: parse_values;
#if CAN_EXPAND_CODES
            UDP_LENGTH_CODES: parse_codes;
#endif
            default: accept;
        }
    }

    state parse_values {
        packet.extract(hdr.values);
        transition accept;
    }

#if CAN_EXPAND_CODES
    state parse_codes {
        packet.extract(hdr.codes);
        transition accept;
    }
#endif
}

control PacketDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.arp);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.icmp);
        packet.emit(hdr.udp);
#if CAN_DECAPSULATE_ROCEV2
        packet.emit(hdr.bth);
        packet.emit(hdr.deth);
#endif
        packet.emit(hdr.switchml);
        packet.emit(hdr.values);
#if CAN_DECAPSULATE_ROCEV2
        packet.emit(hdr.icrc);
#endif
    }
}

#endif
