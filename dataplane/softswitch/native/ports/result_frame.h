// The Ethernet frame of a RESULT.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/softswitch/native/ports/pipeline_port.h"
#include "dataplane/softswitch/native/tables/tables.h"

namespace switchml::soft {

// Writes the headers in front of the UDP payload, with an IPv4 checksum of 0.
void store_result_headers(const OutgoingPacket& packet, const RankAddress& rank, const SwitchAddress& own,
                          uint8_t* frame);

// Makes the whole frame, with its checksum. Like BMv2's deparser, it appends the bytes that the parser did not read:
// the end of a triggering frame that is longer than its datagram is sent with the RESULT.
void make_result(const OutgoingPacket& packet, const RankAddress& rank, const SwitchAddress& own,
                 std::vector<uint8_t>* frame);

}  // namespace switchml::soft
