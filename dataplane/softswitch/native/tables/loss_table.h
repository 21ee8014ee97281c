// loss_ingress_table and loss_egress_table, which drop packets on purpose, like a bad cable (p4/common/loss.p4).
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>

namespace switchml::soft {

class LossTable {
 public:
  explicit LossTable(std::string name) : name_(std::move(name)) {}

  // A packet of `port` is lost when a random 32-bit number is below `threshold`; 0xFFFFFFFF loses every packet.
  void set(uint16_t port, uint32_t threshold) { thresholds_[port] = threshold; }
  // Throws std::out_of_range if the port has no entry.
  void remove(uint16_t port);

  // Returns whether packets of this port may be lost.
  bool covers(uint16_t port) const { return !thresholds_.empty() && thresholds_.count(port) != 0; }
  // Returns whether one packet is lost, by a random number.
  bool loses(uint16_t port) { return !thresholds_.empty() && draw(port); }

 private:
  bool draw(uint16_t port);

  std::string name_;
  std::unordered_map<uint16_t, uint32_t> thresholds_;
  std::mt19937 random_{std::random_device{}()};  // uniform over 32 bits
};

}  // namespace switchml::soft
