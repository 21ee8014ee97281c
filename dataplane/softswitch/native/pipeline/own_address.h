// The switch as a host with one address: it answers ARP requests and ICMP echo requests (p4/common/own_address.p4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/softswitch/native/tables/tables.h"

namespace switchml::soft {

// Writes the answer to `frame`, which has an Ethernet header, into `reply`. Returns false if the frame is not a request
// to the switch, or the switch has no address yet.
bool answer(const uint8_t* frame, size_t bytes, const SwitchAddress& own, std::vector<uint8_t>* reply);

}  // namespace switchml::soft
