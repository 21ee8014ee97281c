// A packet that came to the socket of another shard than its slot's.
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
