// Sums and averages of float64 as integers of three words with a common exponent.
#pragma once

#include <cstdint>
#include <vector>

#include "switchml/native/codecs/codec.h"

namespace switchml::client {

// A chunk is scaled by the power of two above the largest magnitude that any rank has in it. Headers have no room for
// the exponents of float64, so they tell a step of nine of them, rounded up. Its phases:
//
//   step                  phases
//   0..228                values of the lowest limbs, the middle ones, then the highest ones (native/kernels/limbs.h)
//   256 (unknown)         step only; then the phases for the step in its RESULT
//   255 (NaN, infinity)   flags: 1 in non-finite lanes; then values, with zeros in the lanes that were flagged
//
// With N ranks and k = ceil(log2 N), limbs have w = 32 - k bits, and a value has T = 2w + 31 - k bits besides its sign:
// 92 for 2 ranks, 86 for 8, 59 for 4096. Of them the step takes at most 8. So a sum differs from the exact one by at
// most N/2 units of 2^(8 - T) of the power of two above the largest magnitude, and is then rounded to float64 once, as
// an average is.
class Doubles final : public Codec {
 public:
  Doubles(const Arrays& arrays, bool average, const Geometry& geometry);

  uint16_t exponent_of(uint64_t chunk) const override;
  bool begin(Chunk* chunk) override;
  Contribution encode(const Chunk& chunk, uint8_t* words) const override;
  uint64_t decode(const Chunk& chunk, const uint8_t* words) const override;
  Step advance(Chunk* chunk, const uint8_t* words) override;
  bool sums_fit_words() const override { return false; }

  uint32_t direct_bytes() const override { return sizeof(double); }
  bool sum(uint64_t chunk, const std::vector<const uint8_t*>& parts, uint8_t* sums) const override;
  void note_non_finite(uint64_t chunk, const std::vector<const uint8_t*>& parts) override;

 private:
  // Fixed-point numbers, and their sums over all ranks.
  using Fixed = __int128;

  // Returns the number of limbs whose sums have arrived.
  static int limbs_known(const Chunk& chunk, const Place& place) {
    return static_cast<int>(chunk.limbs.size() / place.count);
  }
  // Returns the power of two of the unit of fixed-point numbers that a step scales.
  int unit_of(uint16_t step) const;
  double mean_or_sum(Fixed sum, int unit) const;
  uint64_t write_flags(const Place& place, uint8_t* words) const;
  uint64_t write_limb(const Chunk& chunk, const Place& place, uint8_t* words) const;

  uint32_t divisor_;
  int limb_bits_;
  int value_bits_;
};

}  // namespace switchml::client
