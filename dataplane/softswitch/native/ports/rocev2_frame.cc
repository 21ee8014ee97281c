#include "dataplane/softswitch/native/ports/rocev2_frame.h"

#include <cstring>

#include "native/wire/frame_headers.h"

namespace switchml::soft {
namespace {

constexpr size_t kUdp = wire::ipv4::bytes;  // from the IPv4 header on
constexpr size_t kBth = kUdp + wire::udp::bytes;
constexpr size_t kDeth = kBth + wire::bth::bytes;

// The only numbers of RoCEv2 whose lowest byte comes first.
void store_icrc(uint8_t* at, uint32_t crc) { wire::store32(at, __builtin_bswap32(crc)); }

}  // namespace

uint32_t crc_of_headers(const uint8_t* ip) {
  constexpr uint32_t kCrcOfOnes = 0x2144DF1C;  // eight bytes, in the place of InfiniBand's own routing header
  constexpr uint8_t kAny = 0xFF;
  std::array<uint8_t, kDeth + wire::deth::bytes> covered;
  uint8_t* headers = covered.data();
  std::memcpy(headers, ip, covered.size());
  headers[wire::ipv4::traffic_class] = kAny;
  headers[wire::ipv4::ttl] = kAny;
  std::memset(headers + wire::ipv4::checksum, kAny, sizeof(uint16_t));
  std::memset(headers + kUdp + wire::udp::checksum, kAny, sizeof(uint16_t));
  headers[kBth + wire::bth::congestion] = kAny;
  return kernels::crc32(kCrcOfOnes, covered.data(), covered.size());
}

bool has_right_icrc(const uint8_t* ip, const uint8_t* packet, size_t bytes) {
  if ((ip[kBth + wire::bth::flags] & wire::bth::padding_and_version) != 0) return false;
  const uint32_t crc = kernels::crc32(crc_of_headers(ip), packet, bytes);
  return wire::load32(packet + bytes) == __builtin_bswap32(crc);
}

void store_ud_send(uint8_t* frame, uint32_t queue_pair, uint32_t secret) {
  uint8_t* ip = frame + wire::ethernet::bytes;
  uint8_t* datagram = ip + kUdp;
  const auto lengthen = [](uint8_t* length) {
    wire::store16(length, static_cast<uint16_t>(wire::load16(length) + wire::rocev2::overhead_bytes));
  };
  lengthen(ip + wire::ipv4::total_length);
  lengthen(datagram + wire::udp::length);
  wire::store16(datagram + wire::udp::dst, wire::rocev2::udp_port);
  uint8_t* bth = ip + kBth;
  std::memset(bth, 0, wire::kBetweenUdpAndHeader);
  bth[wire::bth::opcode] = wire::rocev2::opcode;
  bth[wire::bth::flags] = wire::bth::migrated;
  wire::store16(bth + wire::bth::partition_key, wire::rocev2::partition_key);
  wire::store24(bth + wire::bth::destination_queue_pair, queue_pair);
  uint8_t* deth = ip + kDeth;
  wire::store32(deth + wire::deth::queue_key, secret & wire::deth::users_queue_keys);
  wire::store24(deth + wire::deth::source_queue_pair, wire::rocev2::queue_pair);
}

void CopiedIcrc::start(const uint8_t* header, size_t header_bytes, const uint8_t* values, size_t value_bytes) {
  packet_crc_ = kernels::crc32(kernels::crc32(0, header, header_bytes), values, value_bytes);
  const size_t bytes = header_bytes + value_bytes;
  if (join_.second_bytes() != bytes) join_ = kernels::Crc32Join(bytes);
}

void CopiedIcrc::store(const uint8_t* ip, uint8_t* icrc) const {
  store_icrc(icrc, join_.join(crc_of_headers(ip), packet_crc_));
}

}  // namespace switchml::soft
