// A switch port whose link is a pair of Unix datagram sockets: one Ethernet frame in each datagram. It needs no
// privilege and no network device, so packet tests use it.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/softswitch/native/ports/ethernet_port.h"

namespace switchml::soft {

class FramePort : public EthernetPort {
 public:
  // Binds a socket to `path`, which must not be there, unless it is what a process that has ended left behind, and
  // sends to whatever is bound to `peer` at the moment. A frame is lost when nobody is, or when nobody reads: the
  // kernel lets net.unix.max_dgram_qlen frames wait, more where the peer has connected its socket to `path`.
  // Throws std::invalid_argument for a path that is no socket address and std::system_error when it cannot be bound.
  FramePort(uint16_t number, const std::string& path, const std::string& peer);
  ~FramePort() override;

 private:
  std::string path_;
};

}  // namespace switchml::soft
