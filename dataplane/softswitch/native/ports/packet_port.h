// A switch port that is a network interface: every frame that comes in there, whoever it is for.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/softswitch/native/ports/ethernet_port.h"

namespace switchml::soft {

class PacketPort : public EthernetPort {
 public:
  // Opens an AF_PACKET socket on an Ethernet interface and makes that promiscuous; needs CAP_NET_RAW. The host's own
  // traffic there goes on beside ours. An interface that is down, or goes down, carries nothing until it is up again.
  // Frames that the host or the other end of a veth left to segmentation offload (TSO, GSO, GRO) arrive unsegmented and
  // are taken for what they are, frames of a wrong length: it must be off.
  // Throws std::system_error when there is no such interface, it is not Ethernet, or we may not.
  PacketPort(uint16_t number, const std::string& interface);
};

}  // namespace switchml::soft
