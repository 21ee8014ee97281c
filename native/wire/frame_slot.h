// Reads the slot from a frame that has not been parsed yet, so that the thread of a queue can pass the frame to the
// thread that serves the slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "native/wire/constants.h"
#include "native/wire/frame_headers.h"
#include "native/wire/rocev2.h"
#include "native/wire/wire.h"

namespace switchml::wire {

// The largest number of bytes that slot_of_frame() reads.
constexpr size_t kBytesToSlot = kHeadersBeforeUdpPayload + kBetweenUdpAndHeader + protocol::header_bytes;

// Returns the slot of a frame whose source or destination is the SwitchML UDP port, or that has a UD SEND to the
// switch, and nothing for other frames. The first `bytes` bytes of the frame are at `frame`. Every frame that the soft
// switch treats as a contribution (view_of_frame) has a slot here or is too short to have one, so no slot is ever
// served by two threads.
inline std::optional<uint32_t> slot_of_frame(const uint8_t* frame, size_t bytes) {
  constexpr size_t kUdpFrame = kHeadersBeforeUdpPayload + protocol::header_bytes;
  if (bytes < kUdpFrame || load16(frame + ethernet::type) != ethernet::type_ipv4) return std::nullopt;
  const uint8_t* ip = frame + ethernet::bytes;
  if (ip[ipv4::version_and_length] != ipv4::version_4_without_options || ip[ipv4::protocol] != ipv4::protocol_udp ||
      (load16(ip + ipv4::fragment) & ipv4::more_fragments_or_offset) != 0) {
    return std::nullopt;
  }
  const uint8_t* datagram = ip + ipv4::bytes;
  const uint8_t* payload = datagram + udp::bytes;
  const uint16_t to = load16(datagram + udp::dst);
  if (to == rocev2::udp_port && bytes >= kHeadersBeforeUdpPayload + bth::bytes && is_for_switch(payload)) {
    if (bytes < kBytesToSlot) return std::nullopt;
    return load_header(payload + kBetweenUdpAndHeader).slot >> 1U;
  }
  if (to != protocol::udp_port && load16(datagram + udp::src) != protocol::udp_port) return std::nullopt;
  return load_header(payload).slot >> 1U;
}

}  // namespace switchml::wire
