// The Ethernet frame of a RESULT.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/softswitch/native/ports/pipeline_port.h"
#include "dataplane/softswitch/native/ports/rocev2_frame.h"
#include "dataplane/softswitch/native/tables/tables.h"

namespace switchml::soft {

// Writes the headers in front of the UDP payload, with an IPv4 checksum of 0.
void store_result_headers(const OutgoingPacket& packet, const RankAddress& rank, const SwitchAddress& own,
                          uint8_t* frame);

// Makes whole frames, with their checksums. Like BMv2's deparser, it appends the bytes that the parser did not read:
// the end of a triggering frame that is longer than its datagram is sent with the RESULT.
class ResultFrames {
 public:
  // Begins with a packet, which must not change until its last frame is made.
  void start(const OutgoingPacket& packet);
  // Returns the packet's frame to one rank. Valid until the next call.
  const std::vector<uint8_t>& frame_to(const RankAddress& rank, const SwitchAddress& own);

 private:
  const OutgoingPacket* packet_ = nullptr;
  std::vector<uint8_t> frame_;
  CopiedIcrc icrc_;
  bool has_icrc_ = false;  // icrc_ is that of the packet
};

}  // namespace switchml::soft
