// The MAC addresses of the switches that ranks send to.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "native/net/frame_device.h"

namespace switchml::agent {

// Resolves addresses by ARP (RFC 826) over the device itself, or reads the kernel's ARP table if the kernel handles
// ARP. The queues of a device share one cache, because a reply may come to another queue than the one that sent the
// request. Any thread may use it.
class ArpCache {
 public:
  using Clock = std::chrono::steady_clock;

  // With a `next_hop` every address resolves to that MAC address.
  ArpCache(uint32_t own_address, std::optional<uint64_t> next_hop) : own_address_(own_address), next_hop_(next_hop) {}

  // Returns the MAC address of a host on the same network, or nothing while it is unresolved. Sends a request over
  // `device`, the calling thread's queue, if one is due. Does not block.
  std::optional<uint64_t> resolve(uint32_t address, net::FrameDevice* device, Clock::time_point now);
  // Handles an ARP frame that came over `device`: stores a reply to an earlier request, answers a request for this
  // host's address.
  void receive(const uint8_t* frame, size_t bytes, net::FrameDevice* device, Clock::time_point now);

 private:
  struct Entry {
    std::optional<uint64_t> mac;
    Clock::time_point requested;  // the clock's epoch means never
    Clock::time_point confirmed;
  };

  void request(uint32_t address, Entry* entry, net::FrameDevice* device, Clock::time_point now) const;
  static void request_from_kernel(uint32_t address, Entry* entry, const std::string& interface, Clock::time_point now);
  void send(uint16_t operation, uint64_t target_mac, uint32_t target_address, net::FrameDevice* device) const;

  uint32_t own_address_;
  std::optional<uint64_t> next_hop_;
  std::mutex mutex_;
  std::map<uint32_t, Entry> entries_;  // only addresses that ranks send to; guarded by mutex_
};

}  // namespace switchml::agent
