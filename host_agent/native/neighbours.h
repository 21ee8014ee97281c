// Which MAC addresses the switches have that ranks send to.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>

#include "dataplane/native/frame_device.h"

namespace switchml {

// Asks by ARP (RFC 826) over the device itself; where ARP stays with the kernel, whose table it reads.
class Neighbours {
 public:
  using Clock = std::chrono::steady_clock;

  Neighbours(FrameDevice* device, uint32_t own_address, std::optional<uint64_t> next_hop)
      : device_(device), own_address_(own_address), next_hop_(next_hop) {}

  // The MAC address of a host on the same network, or none yet. Asks when it is time to. Does not block.
  std::optional<uint64_t> mac_of(uint32_t address, Clock::time_point now);
  // Takes an answer that was asked for; answers a question for our own address.
  void take_arp(const uint8_t* frame, size_t bytes, Clock::time_point now);

 private:
  struct Neighbour {
    std::optional<uint64_t> mac;
    Clock::time_point asked;  // the clock's beginning: never
    Clock::time_point told;
  };

  void ask(uint32_t address, Neighbour* neighbour, Clock::time_point now);
  void ask_kernel(uint32_t address, Neighbour* neighbour, Clock::time_point now) const;
  void send_arp(uint16_t operation, uint64_t target_mac, uint32_t target_address);

  FrameDevice* device_;
  uint32_t own_address_;
  std::optional<uint64_t> next_hop_;
  std::map<uint32_t, Neighbour> known_;  // only addresses that ranks send to
};

}  // namespace switchml
