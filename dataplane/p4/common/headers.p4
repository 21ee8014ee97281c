// Headers of SwitchML packets (Ethernet / IPv4 / UDP / SwitchML header / values) and of the requests that the switch
// itself answers (ARP, ICMP). Big-endian.
#ifndef SWITCHML_HEADERS_P4
#define SWITCHML_HEADERS_P4

#include "lanes.p4"
#include "types.p4"

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<16> ARP_HARDWARE_ETHERNET = 1;
const bit<16> ARP_REQUEST = 1;
const bit<16> ARP_REPLY = 2;
const bit<8> IP_PROTOCOL_ICMP = 1;
const bit<8> IP_PROTOCOL_UDP = 17;
const bit<3> IPV4_DONT_FRAGMENT = 0b010;

// UDP lengths and IPv4 total lengths of the kinds of well-formed packet: without values, and with VALUES values, as words or
// as codes.
const bit<16> UDP_LENGTH_EMPTY = 8 + (bit<16>)PROTOCOL_HEADER_BYTES;
const bit<16> UDP_LENGTH_VALUES = UDP_LENGTH_EMPTY + 4 * VALUES;
#if CAN_EXPAND_CODES
const bit<16> UDP_LENGTH_CODES = UDP_LENGTH_EMPTY + VALUES;
const bit<16> IPV4_LENGTH_CODES = 20 + UDP_LENGTH_CODES;
#endif
const bit<16> IPV4_LENGTH_EMPTY = 20 + UDP_LENGTH_EMPTY;
const bit<16> IPV4_LENGTH_VALUES = 20 + UDP_LENGTH_VALUES;

header ethernet_t {
    mac_t dst;
    mac_t src;
    bit<16> ethertype;
}

// RFC 826, in the form that resolves IPv4 addresses to MAC addresses.
header arp_t {
    bit<16> hardware_type;
    bit<16> protocol_type;
    bit<8> hardware_length;
    bit<8> protocol_length;
    bit<16> operation;
    mac_t sender_mac;
    ipv4_t sender_ip;
    mac_t target_mac;
    ipv4_t target_ip;
}

header ipv4_header_t {
    bit<4> version;
    bit<4> header_length;  // in words of 32 bits
    bit<8> traffic_class;  // DSCP and ECN
    bit<16> total_length;
    bit<16> identification;
    bit<3> flags;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    ipv4_t src;
    ipv4_t dst;
}

// The fields that the IPv4 checksum covers.
#define IPV4_FIELDS_WITHOUT_CHECKSUM(h)                                                                              \
    h.version, h.header_length, h.traffic_class, h.total_length, h.identification, h.flags, h.fragment_offset, \
    h.ttl, h.protocol, h.src, h.dst

// RFC 792: an echo message up to its data.
header icmp_t {
    bit<16> type_and_code;
    bit<16> checksum;
    bit<16> identifier;
    bit<16> sequence_number;
}

header udp_t {
    bit<16> src;
    bit<16> dst;
    bit<16> length;
    bit<16> checksum;
}

#if CAN_DECAPSULATE_ROCEV2
// InfiniBand Architecture Specification, volume 1, section 9.2 (base transport header) and annex A17 (RoCEv2).
header bth_t {
    bit<8> opcode;
    bit<1> solicited_event;
    bit<1> migration;
    bit<2> padding;
    bit<4> version;
    bit<16> partition_key;
    bit<8> congestion;  // marks that switches may change: the ICRC does not cover them
    bit<24> destination_queue_pair;
    bit<1> ack_request;
    bit<7> reserved;
    bit<24> sequence_number;
}

// Section 9.3.4 (datagram extended transport header).
header deth_t {
    bit<32> queue_key;
    bit<8> reserved;
    bit<24> source_queue_pair;
}

header icrc_t {
    bit<32> crc;
}
#endif

header switchml_t {
    bit<8> version;
    bit<8> kind;
    bit<16> job;
    bit<8> worker;
    bit<8> format;
    bit<16> exponent;
    slot_t slot;
    bit<16> count;
    bit<16> epoch;
    bit<8> owner;  // who reads the values; between switches of a tree the sender below that completed the phase
    bit<8> flags;
    bit<32> phase;
    bit<32> chunk;
    bit<32> check;
    bit<32> secret;  // of the job's epoch
}

// One header with a field per value: a header stack would cost BMv2 a parser state and a deparser entry for each value.
#define VALUE_FIELD(i) bit<32> value_##i;
header values_t {
    FOR_EACH_LANE(VALUE_FIELD)
}
#undef VALUE_FIELD

#if CAN_EXPAND_CODES
// Instead of values, until they are expanded.
#define CODE_FIELD(i) bit<8> code_##i;
header codes_t {
    FOR_EACH_LANE(CODE_FIELD)
}
#undef CODE_FIELD
#endif

struct headers_t {
    TARGET_HEADERS
    ethernet_t ethernet;
    arp_t arp;
    ipv4_header_t ipv4;
    icmp_t icmp;
    udp_t udp;
#if CAN_DECAPSULATE_ROCEV2
    bth_t bth;
    deth_t deth;
#endif
    switchml_t switchml;
    values_t values;
#if CAN_EXPAND_CODES
    codes_t codes;
#endif
#if CAN_DECAPSULATE_ROCEV2
    icrc_t icrc;
#endif
}

#endif
