// Injects faults into one direction of one port: it drops, duplicates and delays packets and flips their bits.
#pragma once

#include <netinet/in.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "native/counters/counters.h"

namespace switchml::soft {

// Independent probabilities, 0 to 1.
struct FaultRates {
  double drop = 0;
  double duplicate = 0;
  double delay = 0;
  double flip = 0;  // probability that one bit of the packet is flipped
};

// A copy of a packet that is held back. `peer` is its source or its destination.
struct HeldPacket {
  std::vector<uint8_t> bytes;
  sockaddr_in peer{};
  uint64_t release_at = 0;  // count of packets passed
  std::chrono::steady_clock::time_point deadline;
};

class FaultInjector {
 public:
  enum class Fate : uint8_t { dropped, held, pass_once, pass_twice };

  // Sets the rates; held packets stay held. Throws std::invalid_argument for a rate outside 0..1.
  void configure(const FaultRates& rates, uint64_t seed);

  // Returns whether the other functions must be called for each packet: there are faults or held packets.
  bool active() const { return injecting_ || !held_.empty(); }

  // Decides about one packet (header and payload). The caller must pass on the copies that pass. Each copy of a
  // duplicated packet may be held. A packet with a flipped bit is held, and due at once. No bit is flipped in the first
  // `sheltered` bytes: their own checksum protects them, so a receiver would drop the packet before SwitchML sees it.
  Fate decide(const uint8_t* header, size_t header_bytes, const uint8_t* payload, size_t payload_bytes,
              const sockaddr_in& peer, size_t sheltered);

  // Appends to `due` the held packets after which enough others have passed.
  void take_reordered(std::vector<HeldPacket>* due);
  // Appends to `due` the packets that were held long enough.
  void take_expired(std::chrono::steady_clock::time_point now, std::vector<HeldPacket>* due);
  // Returns the time by which the first held packet must be released.
  std::optional<std::chrono::steady_clock::time_point> next_deadline() const;

  const counters::Faults& counters() const { return counters_; }

 private:
  uint64_t random();
  bool happens(double probability);
  void flip_a_bit(HeldPacket* packet, size_t sheltered);

  FaultRates rates_;
  bool injecting_ = false;
  uint64_t random_state_ = 0;
  uint64_t passed_ = 0;
  std::vector<HeldPacket> held_;
  counters::Faults counters_;
};

}  // namespace switchml::soft
