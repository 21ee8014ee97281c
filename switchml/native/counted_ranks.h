// The numbers of ranks that are counted in the check of a RESULT (docs/protocol.md, "The check").
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "native/wire/constants.h"

namespace switchml::client {

// Returns the inverse of an odd number modulo 2^32 (Newton's method).
constexpr uint32_t inverse_of_odd(uint32_t number) {
  uint32_t inverse = number;  // correct in its three lowest bits
  for (int bits = 3; bits < 32; bits *= 2) {
    inverse *= 2 - number * inverse;
  }
  return inverse;
}

// The rest of a check, without the terms that a receiver knows, is
//
//   named * block_factor + scaled * largest_factor   modulo 2^32
//
// where `named` ranks have named a block, and the exponent of `scaled` ranks has scaled the values. Both numbers must
// be from 1 to the world size, or one of them is absent. The functions find out whether there are such numbers.
class CountedRanks {
 public:
  explicit CountedRanks(uint32_t world_size) : world_size_(world_size) {
    for (uint32_t named = 1; named <= world_size; ++named) {
      named_.push_back(named * wire::check::block_factor * kInverseOfLargest);
    }
    std::sort(named_.begin(), named_.end());
  }

  bool are_scaled(uint32_t rest) const { return is_count(rest * kInverseOfLargest); }
  bool are_named(uint32_t rest) const { return is_count(rest * kInverseOfBlock); }
  // Divided by largest_factor, the rest is named_[i] + scaled. So some named_[i] must be in a range as long as the
  // world size; the first one at or after the range's lowest number is, if any is. Numbers wrap around at 2^32.
  bool are_named_and_scaled(uint32_t rest) const {
    const uint32_t lowest = rest * kInverseOfLargest - world_size_;
    const auto after = std::lower_bound(named_.begin(), named_.end(), lowest);
    return (after == named_.end() ? named_.front() : *after) - lowest < world_size_;
  }

 private:
  bool is_count(uint32_t number) const { return 1 <= number && number <= world_size_; }

  static constexpr uint32_t kInverseOfLargest = inverse_of_odd(wire::check::largest_factor);
  static constexpr uint32_t kInverseOfBlock = inverse_of_odd(wire::check::block_factor);

  uint32_t world_size_;
  std::vector<uint32_t> named_;  // named * block_factor / largest_factor for each number of ranks, in ascending order
};

}  // namespace switchml::client
