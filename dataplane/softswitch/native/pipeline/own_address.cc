#include "dataplane/softswitch/native/pipeline/own_address.h"

#include <cstring>

#include "native/wire/constants.h"
#include "native/wire/frame_headers.h"

namespace switchml {
namespace {

bool is_arp_request_for(const uint8_t* frame, size_t bytes, uint32_t ip) {
  if (bytes < ethernet::bytes + arp::bytes) return false;
  const uint8_t* question = frame + ethernet::bytes;
  return wire::load16(frame + ethernet::type) == ethernet::type_arp &&
         wire::load16(question + arp::hardware_type) == arp::hardware_ethernet &&
         wire::load16(question + arp::protocol_type) == ethernet::type_ipv4 &&
         wire::load16(question + arp::lengths) == arp::lengths_of_mac_and_ipv4 &&
         wire::load16(question + arp::operation) == arp::request && wire::load32(question + arp::target_ip) == ip;
}

// RFC 826: the question with its two halves exchanged, and our MAC as the answer.
void answer_arp(const SwitchAddress& own, uint8_t* frame) {
  uint8_t* message = frame + ethernet::bytes;
  std::memcpy(frame + ethernet::dst, message + arp::sender_mac, ethernet::address_bytes);
  wire::store48(frame + ethernet::src, own.mac);
  wire::store16(message + arp::operation, arp::reply);
  std::memcpy(message + arp::target_mac, message + arp::sender_mac, ethernet::address_bytes + sizeof own.ip);
  wire::store48(message + arp::sender_mac, own.mac);
  wire::store32(message + arp::sender_ip, own.ip);
}

// Only where ICMP begins right after 20 bytes of IPv4, so not in a fragment and not after IPv4 options.
bool is_echo_request_for(const uint8_t* frame, size_t bytes, const SwitchAddress& own) {
  if (bytes < ethernet::bytes + ipv4::bytes + icmp::bytes) return false;
  const uint8_t* ip = frame + ethernet::bytes;
  return wire::load16(frame + ethernet::type) == ethernet::type_ipv4 &&
         wire::load48(frame + ethernet::dst) == own.mac &&
         ip[ipv4::version_and_length] == ipv4::version_4_without_options &&
         (wire::load16(ip + ipv4::fragment) & ipv4::more_fragments_or_offset) == 0 &&
         wire::load16(ip + ipv4::total_length) >= ipv4::bytes + icmp::bytes &&
         ip[ipv4::protocol] == ipv4::protocol_icmp && wire::load32(ip + ipv4::dst) == own.ip &&
         wire::load16(ip + ipv4::bytes + icmp::type_and_code) == icmp::echo_request;
}

// RFC 792: the request with its addresses exchanged; identifier, sequence number and data stand as they are. The
// checksum is updated as the P4 program does, which cannot reach the data (RFC 1624): the sum that it is the complement
// of loses 0x0800, so it gains that much, in ones' complement.
void answer_echo(const SwitchAddress& own, uint8_t* frame) {
  std::memcpy(frame + ethernet::dst, frame + ethernet::src, ethernet::address_bytes);
  wire::store48(frame + ethernet::src, own.mac);
  uint8_t* ip = frame + ethernet::bytes;
  std::memcpy(ip + ipv4::dst, ip + ipv4::src, sizeof own.ip);
  wire::store32(ip + ipv4::src, own.ip);
  ip[ipv4::ttl] = protocol::ipv4_ttl;
  store_ipv4_checksum(ip);
  uint8_t* echo = ip + ipv4::bytes;
  wire::store16(echo + icmp::type_and_code, icmp::echo_reply);
  const uint32_t sum = wire::load16(echo + icmp::checksum) + uint32_t{icmp::echo_request};
  wire::store16(echo + icmp::checksum, static_cast<uint16_t>(sum + (sum >> 16U)));
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

}  // namespace switchml
