// Makes the switch a host with one address: it answers ARP requests and ICMP echo requests, so that `ping` shows
// whether it is reachable and agents can resolve its address.
#ifndef SWITCHML_OWN_ADDRESS_P4
#define SWITCHML_OWN_ADDRESS_P4

#include "switch_address.p4"

const bit<16> ICMP_ECHO_REQUEST = 0x0800;  // type 8, code 0
const bit<16> ICMP_ECHO_REPLY = 0;
const bit<16> IPV4_LENGTH_ICMP = 20 + 8;

control OwnAddress(inout headers_t hdr, inout metadata_t meta, in PortId_t ingress_port) {
    bit<1> to_own_mac;
    bit<1> to_own_ip;  // the IPv4 packet is for the switch's address, or the ARP request asks for it

    @hidden
    action leave() {}

    // RFC 826: the request with sender and target exchanged, and the switch's MAC address as the answer.
    @hidden
    action answer_arp() {
        hdr.ethernet.dst = hdr.arp.sender_mac;
        hdr.ethernet.src = meta.switch_mac;
        hdr.arp.operation = ARP_REPLY;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        hdr.arp.target_ip = hdr.arp.sender_ip;
        hdr.arp.sender_mac = meta.switch_mac;
        hdr.arp.sender_ip = meta.switch_ip;
        meta.destination = DESTINATION_PORT;
        meta.port = ingress_port;
    }

    // RFC 792: the request with its addresses exchanged; identifier, sequence number and data are unchanged. The data is
    // not parsed, so the checksum is updated incrementally (RFC 1624): the sum that it complements decreases by 0x0800,
    // so the checksum increases by 0x0800 in ones' complement.
    @hidden
    action answer_echo(bit<16> checksum_increment) {
        hdr.ethernet.dst = hdr.ethernet.src;
        hdr.ethernet.src = meta.switch_mac;
        hdr.ipv4.dst = hdr.ipv4.src;
        hdr.ipv4.src = meta.switch_ip;
        hdr.ipv4.ttl = PROTOCOL_IPV4_TTL;
        meta.new_ipv4_header = 1;
        hdr.icmp.type_and_code = ICMP_ECHO_REPLY;
        hdr.icmp.checksum = hdr.icmp.checksum + checksum_increment;
        meta.destination = DESTINATION_PORT;
        meta.port = ingress_port;
    }

    @hidden
    table answer_table {
        key = {
            meta.switch_mac_set: ternary;
            meta.switch_ip_set: ternary;
            meta.own_mac_source: ternary;
            meta.own_ip_source: ternary;
            to_own_ip: ternary;
            hdr.arp.isValid(): ternary;
            hdr.arp.hardware_type: ternary;
            hdr.arp.protocol_type: ternary;
            hdr.arp.hardware_length: ternary;
            hdr.arp.protocol_length: ternary;
            hdr.arp.operation: ternary;
            hdr.icmp.isValid(): ternary;
            hdr.icmp.type_and_code: ternary;
            hdr.icmp.checksum: range;
            hdr.ipv4.total_length: range;
            to_own_mac: ternary;
        }
        actions = {
            answer_arp;
            answer_echo;
            leave;
        }
        const default_action = leave();
        // The switch answers only if its address is set, asked for, and not the one that the sender claims to have.
#define ADDRESSES 1, 1, 0, 0, 1
#define ARP_FOR_IPV4 true, ARP_HARDWARE_ETHERNET, ETHERTYPE_IPV4, 6, 4, ARP_REQUEST
#define NO_ARP _, _, _, _, _, _
#define NO_ECHO _, _, _, _, _
        const entries = {
            // A request for the switch's address. Its Ethernet destination is not checked: it is broadcast, or the
            // switch's MAC address when a host that knows it asks again.
            (ADDRESSES, ARP_FOR_IPV4, NO_ECHO): answer_arp();
            // An echo request to the switch's addresses, in an IPv4 packet that is long enough for one. Adding the
            // increment to its checksum does not carry. This may yield the ones' complement zero 0xFFFF, where equation
            // 3 of RFC 1624 yields 0: for a reply that consists of zeros only 0xFFFF is right, for any other reply
            // either is.
            (ADDRESSES, NO_ARP, true, ICMP_ECHO_REQUEST, 0 .. 0xF7FF, IPV4_LENGTH_ICMP .. 0xFFFF, 1):
                answer_echo(0x0800);
            // Adding the increment carries, and the carry is added at the low end.
            (ADDRESSES, NO_ARP, true, ICMP_ECHO_REQUEST, 0xF800 .. 0xFFFF, IPV4_LENGTH_ICMP .. 0xFFFF, 1):
                answer_echo(0x0801);
        }
#undef ADDRESSES
#undef ARP_FOR_IPV4
#undef NO_ARP
#undef NO_ECHO
        size = 3;
    }

    apply {
        to_own_mac = 0;
        to_own_ip = 0;
        // If the header is absent, answer_table does not match on this flag.
        if (hdr.ethernet.dst[47:16] == meta.switch_mac[47:16]) {
            if (hdr.ethernet.dst[15:0] == meta.switch_mac[15:0]) {
                to_own_mac = 1;
            }
        }
        if (hdr.arp.isValid() && hdr.arp.target_ip == meta.switch_ip) {
            to_own_ip = 1;
        }
        if (hdr.ipv4.isValid() && hdr.ipv4.dst == meta.switch_ip) {
            to_own_ip = 1;
        }
        answer_table.apply();
    }
}

#endif
