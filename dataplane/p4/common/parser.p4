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
            default: accept;
        }
    }

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
        packet.emit(hdr.switchml);
        packet.emit(hdr.values);
    }
}

#endif
