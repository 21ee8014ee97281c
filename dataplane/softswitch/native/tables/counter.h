// Packets and bytes, as P4Runtime counts them (unit BOTH).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "native/wire/constants.h"

namespace switchml::soft {

struct Counter {
  uint64_t packets = 0;
  uint64_t bytes = 0;

  void add(size_t packet_count, size_t bytes_each) {
    packets += packet_count;
    bytes += packet_count * bytes_each;
  }
};

// drop_counter, by DropReason.
class DropCounters {
 public:
  static constexpr size_t kEntries = 32;

  Counter& operator[](wire::DropReason reason) { return counters_[static_cast<size_t>(reason)]; }
  Counter& at(size_t index) { return counters_[index]; }

 private:
  std::array<Counter, kEntries> counters_{};
};

}  // namespace switchml::soft
