// A packet that came to the socket of a shard that does not serve its slot.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <vector>

namespace switchml::soft {

struct StrayPacket {
  uint16_t port;
  sockaddr_in source;
  std::vector<uint8_t> bytes;
};

}  // namespace switchml::soft
