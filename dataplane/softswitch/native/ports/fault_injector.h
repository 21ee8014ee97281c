// Loss, duplication, delay and flipped bits on purpose, packet by packet, in one direction of one port.
#pragma once

#include <netinet/in.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "native/counters/counters.h"

namespace switchml::soft {

// Probabilities, 0 to 1, each on its own.
struct FaultRates {
  double drop = 0;
  double duplicate = 0;
  double delay = 0;
  double flip = 0;  // of one bit
};

// A copy of a packet that is kept back. `peer` is where it came from or where it goes.
struct HeldPacket {
  std::vector<uint8_t> bytes;
  sockaddr_in peer{};
  uint64_t release_at = 0;  // count of packets passed
  std::chrono::steady_clock::time_point deadline;
};

class FaultInjector {
 public:
  enum class Fate : uint8_t { dropped, held, pass_once, pass_twice };

  // Throws std::invalid_argument for a rate outside 0..1. Packets being held stay held.
  void configure(const FaultRates& rates, uint64_t seed);

  // Whether there is anything to do per packet. Without faults nothing else need be called.
  bool active() const { return injecting_ || !held_.empty(); }

  // Decides about one packet (header and payload); what passes must be passed by the caller. Of a duplicated packet
  // each copy may be held. One whose bit is flipped is held, and due at once. `sheltered` bytes at its beginning keep
  // their bits: what a checksum guards whose errors nothing behind it ever sees.
  Fate decide(const uint8_t* header, size_t header_bytes, const uint8_t* payload, size_t payload_bytes,
              const sockaddr_in& peer, size_t sheltered);

  // Appends to `due` the packets that were held until enough others passed.
  void take_overtaken(std::vector<HeldPacket>* due);
  // Appends to `due` the packets that were held long enough.
  void take_expired(std::chrono::steady_clock::time_point now, std::vector<HeldPacket>* due);
  // When the first held packet must go at the latest.
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
