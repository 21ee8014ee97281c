// Sums of 64-bit integers in as many words for each as the largest of a chunk needs (native/kernels/limbs.h).
#pragma once

#include <algorithm>

#include "switchml/native/codecs/codec.h"

namespace switchml::client {

// int64: sums modulo 2^64. The exponent of a chunk is the smallest e for which -2^e <= value < 2^e at all ranks. With N
// ranks, limbs have w = 32 - ceil(log2 N) bits, and the phases of a chunk are:
//
//   exponent               phases
//   0..w-1                 values: the sums fit a word
//   w..2w-1                values of the lower limbs, then of the higher ones
//   2w..63                 three phases of values
//   256 (unknown)          exponent only; then the phases for the exponent in its RESULT
//
// The memory is written in the last phase only. Exponents from 64 to 255 come from ranks that make another call, which
// the check of the first phase finds.
class LongIntegers final : public Codec {
 public:
  LongIntegers(const Arrays& arrays, const Geometry& geometry);

  uint16_t exponent_of(uint64_t chunk) const override;
  bool begin(Chunk* chunk) override;
  Contribution encode(const Chunk& chunk, uint8_t* words) const override;
  uint64_t decode(const Chunk& chunk, const uint8_t* words) const override;
  Step advance(Chunk* chunk, const uint8_t* words) override;
  bool sums_fit_words() const override { return false; }
  uint32_t direct_bytes() const override { return sizeof(int64_t); }
  bool sum(uint64_t chunk, const std::vector<const uint8_t*>& parts, uint8_t* sums) const override {
    return sum_integers<uint64_t>(chunk, parts, sums);
  }

 private:
  static bool choose_phase(Chunk* chunk);
  // Returns the number of limbs below the highest one.
  int lower_limbs(const Chunk& chunk) const { return std::min(2, chunk.scaled_by / limb_bits_); }
  // Returns the number of limbs whose sums have arrived.
  static int limbs_known(const Chunk& chunk, const Place& place) {
    return static_cast<int>(chunk.limbs.size() / place.count);
  }

  int limb_bits_;
};

}  // namespace switchml::client
