// A switch port whose link is a pair of Unix datagram sockets: one Ethernet frame in each datagram. It needs no
// privilege and no network device, so packet tests use it.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/softswitch/native/ports/ethernet_port.h"

namespace switchml::soft {

class FramePort : public EthernetPort {
 public:
  // Binds a socket to `path`, which must not exist unless it is the socket of a process that has ended, and sends to
  // the socket that is bound to `peer` at that moment. A frame is lost if no socket is bound there, or if its queue is
  // full: the kernel queues net.unix.max_dgram_qlen frames, or more if the peer has connected its socket to `path`.
  // Throws std::invalid_argument for a path that cannot be a socket address and std::system_error if binding fails.
  FramePort(uint16_t number, const std::string& path, const std::string& peer);
  ~FramePort() override;

 private:
  std::string path_;
};

}  // namespace switchml::soft
