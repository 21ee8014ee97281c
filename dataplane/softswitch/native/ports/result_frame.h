// The Ethernet frame of a RESULT.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/softswitch/native/ports/pipeline_port.h"
#include "dataplane/softswitch/native/tables/tables.h"

namespace switchml::soft {

// Writes the headers before the UDP payload; the checksum of IPv4 is 0.
void store_result_headers(const OutgoingPacket& packet, const RankAddress& rank, const SwitchAddress& own,
                          uint8_t* frame);

// Makes the whole frame, with its checksum. BMv2's deparser puts back whatever the parser left, so the end of a frame
// that is longer than its datagram travels on with the RESULT.
void make_result(const OutgoingPacket& packet, const RankAddress& rank, const SwitchAddress& own,
                 std::vector<uint8_t>* frame);

}  // namespace switchml::soft
