// Which MAC addresses the switches have that ranks send to.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "native/net/frame_device.h"

namespace switchml::agent {

// Asks by ARP (RFC 826) over the device itself; where ARP stays with the kernel, whose table it reads. The queues of a
// device have one together, because an answer may come to another queue than the one that asked. Any thread.
class Neighbours {
 public:
  using Clock = std::chrono::steady_clock;

  Neighbours(uint32_t own_address, std::optional<uint64_t> next_hop) : own_address_(own_address), next_hop_(next_hop) {}

  // The MAC address of a host on the same network, or none yet. Asks over `device`, which is the calling thread's
  // queue, when it is time to. Does not block.
  std::optional<uint64_t> mac_of(uint32_t address, net::FrameDevice* device, Clock::time_point now);
  // Takes an answer that was asked for; answers a question for our own address over `device`, where it came from.
  void take_arp(const uint8_t* frame, size_t bytes, net::FrameDevice* device, Clock::time_point now);

 private:
  struct Neighbour {
    std::optional<uint64_t> mac;
    Clock::time_point asked;  // the clock's beginning: never
    Clock::time_point told;
  };

  void ask(uint32_t address, Neighbour* neighbour, net::FrameDevice* device, Clock::time_point now) const;
  static void ask_kernel(uint32_t address, Neighbour* neighbour, const std::string& interface, Clock::time_point now);
  void send_arp(uint16_t operation, uint64_t target_mac, uint32_t target_address, net::FrameDevice* device) const;

  uint32_t own_address_;
  std::optional<uint64_t> next_hop_;
  std::mutex mutex_;
  std::map<uint32_t, Neighbour> known_;  // only addresses that ranks send to; guarded by mutex_
};

}  // namespace switchml::agent
