// A switch port that is a network interface: it receives every frame that comes in there, to any address.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/softswitch/native/ports/ethernet_port.h"

namespace switchml::soft {

class PacketPort : public EthernetPort {
 public:
  // Opens an AF_PACKET socket on an Ethernet interface and makes the interface promiscuous; needs CAP_NET_RAW. The
  // host's own traffic there continues. An interface that is down, or goes down, carries nothing until it is up again.
  // Segmentation offload (TSO, GSO, GRO) must be off on the host and at the other end of a veth: frames left to it
  // arrive unsegmented, and are frames of a wrong length. Throws std::system_error if there is no such interface, it is
  // not Ethernet, or this process lacks the privilege.
  PacketPort(uint16_t number, const std::string& interface);
};

}  // namespace switchml::soft
