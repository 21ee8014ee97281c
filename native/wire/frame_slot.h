// Which slot a frame is about, before anybody has looked at it: so that a queue's thread can hand it to another's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "native/wire/constants.h"
#include "native/wire/frame_headers.h"
#include "native/wire/wire.h"

namespace switchml::wire {

// So much of a frame is looked at.
constexpr size_t kBytesToSlot = kHeadersBeforeUdpPayload + protocol::header_bytes;

// The slot of a frame that has our UDP port at either end, whose first kBytesToSlot bytes are at `frame`; nothing of
// any other. What the soft switch takes for a contribution (view_of_frame) has a slot here, or is too short for one: no
// slot is ever served by two threads.
inline std::optional<uint32_t> slot_of_frame(const uint8_t* frame) {
  if (load16(frame + ethernet::type) != ethernet::type_ipv4) return std::nullopt;
  const uint8_t* ip = frame + ethernet::bytes;
  if (ip[ipv4::version_and_length] != ipv4::version_4_without_options || ip[ipv4::protocol] != ipv4::protocol_udp ||
      (load16(ip + ipv4::fragment) & ipv4::more_fragments_or_offset) != 0) {
    return std::nullopt;
  }
  const uint8_t* datagram = ip + ipv4::bytes;
  if (load16(datagram + udp::dst) != protocol::udp_port && load16(datagram + udp::src) != protocol::udp_port) {
    return std::nullopt;
  }
  return load_header(datagram + udp::bytes).slot >> 1U;
}

}  // namespace switchml::wire
