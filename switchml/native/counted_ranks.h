// The numbers of ranks that are counted in the check of a RESULT (docs/understand/protocol.md, "The check").
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

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
//   named * named_factor + scaled * scaled_factor - carries   modulo 2^32
//
// where `named` ranks have named a block, and the exponent of `scaled` ranks has scaled the values. Both numbers must
// be from 1 to the world size, or one of them is absent. If the words' sums fit, there are from 0 to world size - 1
// carries, otherwise none. The functions find out whether there are such numbers.
class CountedRanks {
 public:
  // Precondition: the factors are odd.
  CountedRanks(uint32_t world_size, uint32_t scaled_factor, uint32_t named_factor)
      : world_size_(world_size),
        scaled_factor_(scaled_factor),
        named_factor_(named_factor),
        inverse_of_scaled_(inverse_of_odd(scaled_factor)),
        inverse_of_named_(inverse_of_odd(named_factor)),
        scaled_(sorted_multiples(scaled_factor)),
        named_(sorted_multiples(named_factor * inverse_of_scaled_)) {}

  uint32_t scaled_factor() const { return scaled_factor_; }
  uint32_t named_factor() const { return named_factor_; }

  bool are_scaled(uint32_t rest) const { return is_count(rest * inverse_of_scaled_); }
  bool are_named(uint32_t rest) const { return is_count(rest * inverse_of_named_); }
  // Divided by scaled_factor, the rest is named_[i] + scaled.
  bool are_named_and_scaled(uint32_t rest) const { return has_member(named_, rest * inverse_of_scaled_ - world_size_); }
  bool are_carries(uint32_t rest) const { return -rest < world_size_; }
  bool are_scaled_less_carries(uint32_t rest) const { return has_member(scaled_, rest); }

 private:
  bool is_count(uint32_t number) const { return 1 <= number && number <= world_size_; }

  std::vector<uint32_t> sorted_multiples(uint32_t factor) const {
    std::vector<uint32_t> multiples;
    for (uint32_t count = 1; count <= world_size_; ++count) {
      multiples.push_back(count * factor);
    }
    std::sort(multiples.begin(), multiples.end());
    return multiples;
  }

  // Returns whether one of the numbers is among the world_size_ that begin with `lowest`. The first one at or after
  // `lowest` is, if any is. Numbers wrap around at 2^32.
  bool has_member(const std::vector<uint32_t>& numbers, uint32_t lowest) const {
    const auto after = std::lower_bound(numbers.begin(), numbers.end(), lowest);
    return (after == numbers.end() ? numbers.front() : *after) - lowest < world_size_;
  }

  uint32_t world_size_;
  uint32_t scaled_factor_;
  uint32_t named_factor_;
  uint32_t inverse_of_scaled_;
  uint32_t inverse_of_named_;
  std::vector<uint32_t> scaled_;  // count * scaled_factor for each number of ranks, in ascending order
  std::vector<uint32_t> named_;   // count * named_factor / scaled_factor
};

}  // namespace switchml::client
