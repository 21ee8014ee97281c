#include "dataplane/softswitch/native/pipeline/own_address.h"

#include <cstring>

#include "native/wire/constants.h"
#include "native/wire/frame_headers.h"

namespace switchml::soft {
namespace {

bool is_arp_request_for(const uint8_t* frame, size_t bytes, uint32_t ip) {
  if (bytes < wire::ethernet::bytes + wire::arp::bytes) return false;
  const uint8_t* question = frame + wire::ethernet::bytes;
  return wire::load16(frame + wire::ethernet::type) == wire::ethernet::type_arp &&
         wire::load16(question + wire::arp::hardware_type) == wire::arp::hardware_ethernet &&
         wire::load16(question + wire::arp::protocol_type) == wire::ethernet::type_ipv4 &&
         wire::load16(question + wire::arp::lengths) == wire::arp::lengths_of_mac_and_ipv4 &&
         wire::load16(question + wire::arp::operation) == wire::arp::request &&
         wire::load32(question + wire::arp::target_ip) == ip;
}

// RFC 826: the reply is the request with sender and target exchanged, and the switch's MAC as the sender's.
void answer_arp(const SwitchAddress& own, uint8_t* frame) {
  uint8_t* message = frame + wire::ethernet::bytes;
  std::memcpy(frame + wire::ethernet::dst, message + wire::arp::sender_mac, wire::ethernet::address_bytes);
  wire::store48(frame + wire::ethernet::src, own.mac);
  wire::store16(message + wire::arp::operation, wire::arp::reply);
  std::memcpy(message + wire::arp::target_mac, message + wire::arp::sender_mac,
              wire::ethernet::address_bytes + sizeof own.ip);
  wire::store48(message + wire::arp::sender_mac, own.mac);
  wire::store32(message + wire::arp::sender_ip, own.ip);
}

// Accepts only frames in which ICMP begins right after 20 bytes of IPv4: not a fragment, and no IPv4 options.
bool is_echo_request_for(const uint8_t* frame, size_t bytes, const SwitchAddress& own) {
  if (bytes < wire::ethernet::bytes + wire::ipv4::bytes + wire::icmp::bytes) return false;
  const uint8_t* ip = frame + wire::ethernet::bytes;
  return wire::load16(frame + wire::ethernet::type) == wire::ethernet::type_ipv4 &&
         wire::load48(frame + wire::ethernet::dst) == own.mac &&
         ip[wire::ipv4::version_and_length] == wire::ipv4::version_4_without_options &&
         (wire::load16(ip + wire::ipv4::fragment) & wire::ipv4::more_fragments_or_offset) == 0 &&
         wire::load16(ip + wire::ipv4::total_length) >= wire::ipv4::bytes + wire::icmp::bytes &&
         ip[wire::ipv4::protocol] == wire::ipv4::protocol_icmp && wire::load32(ip + wire::ipv4::dst) == own.ip &&
         wire::load16(ip + wire::ipv4::bytes + wire::icmp::type_and_code) == wire::icmp::echo_request;
}

// RFC 792: the reply is the request with its addresses exchanged; identifier, sequence number and data stay the same.
// The checksum is updated as the P4 program does, which cannot read the data (RFC 1624): the change of the type lowers
// the sum of all words by 0x0800, so its complement, the checksum, rises by 0x0800 in ones' complement.
void answer_echo(const SwitchAddress& own, uint8_t* frame) {
  std::memcpy(frame + wire::ethernet::dst, frame + wire::ethernet::src, wire::ethernet::address_bytes);
  wire::store48(frame + wire::ethernet::src, own.mac);
  uint8_t* ip = frame + wire::ethernet::bytes;
  std::memcpy(ip + wire::ipv4::dst, ip + wire::ipv4::src, sizeof own.ip);
  wire::store32(ip + wire::ipv4::src, own.ip);
  ip[wire::ipv4::ttl] = wire::protocol::ipv4_ttl;
  wire::store_ipv4_checksum(ip);
  uint8_t* echo = ip + wire::ipv4::bytes;
  wire::store16(echo + wire::icmp::type_and_code, wire::icmp::echo_reply);
  const uint32_t sum = wire::load16(echo + wire::icmp::checksum) + uint32_t{wire::icmp::echo_request};
  wire::store16(echo + wire::icmp::checksum, static_cast<uint16_t>(sum + (sum >> 16U)));
}

}  // namespace

bool answer(const uint8_t* frame, size_t bytes, const SwitchAddress& own, std::vector<uint8_t>* reply) {
  if (own.mac == 0 || own.ip == 0) return false;
  if (is_arp_request_for(frame, bytes, own.ip)) {
    reply->assign(frame, frame + bytes);
    answer_arp(own, reply->data());
    return true;
  }
  if (is_echo_request_for(frame, bytes, own)) {
    reply->assign(frame, frame + bytes);
    answer_echo(own, reply->data());
    return true;
  }
  return false;
}

}  // namespace switchml::soft
