// Sums and averages of floating-point numbers as integers with a common exponent (block floating point).
#pragma once

#include "switchml/native/codecs/codec.h"

namespace switchml::client {

// A chunk is scaled by the exponent of the largest magnitude that any rank has in it. Its phases:
//
//   exponent known        phases
//   0..254                values
//   256 (unknown)         exponent only; then the phases for the exponent in its RESULT
//   255 (NaN, infinity)   flags: 1 in non-finite lanes; then values, with zeros in the lanes that were flagged
//
// Value is float, Float16 or BFloat16. A value takes a word; NarrowFloat, which derives from this class, has smaller
// lanes.
template <typename Value>
class BlockFloat : public BlockCodec {
 public:
  BlockFloat(const Arrays& arrays, bool average, const Geometry& geometry, uint32_t lane_bits = kWordBits);

  uint16_t exponent_of(uint64_t chunk) const override;
  bool begin(Chunk* chunk) override;
  Contribution encode(const Chunk& chunk, uint8_t* words) const override;
  uint64_t decode(const Chunk& chunk, const uint8_t* words) const override;
  Step advance(Chunk* chunk, const uint8_t* words) override;

  uint32_t direct_bytes() const override;
  bool sum(uint64_t chunk, const std::vector<const uint8_t*>& parts, uint8_t* sums) const override;
  void note_non_finite(uint64_t chunk, const std::vector<const uint8_t*>& parts) override;

  uint16_t look_at(uint64_t block) override;
  void prefetch(uint64_t block) const override { this->template prefetch_output_of<Value>(this->place_of(block)); }
  uint16_t largest_exponent() const override { return wire::exponent::non_finite; }
  void read_flags(Chunk* chunk, const uint8_t* words) override;

 protected:
  // Write and read the scaled values of a chunk. Both return the weighed sum of the words in use.
  virtual uint64_t quantize(const Chunk& chunk, const Value* values, uint32_t count, uint8_t* words) const;
  virtual uint64_t dequantize(const Chunk& chunk, const uint8_t* words, uint32_t count, Value* values) const;

  // The format of scaled values.
  virtual wire::Format format() const { return wire::Format::int32; }

  // Returns the values of the chunk that should be prefetched while this one is written, or null if the call has no
  // such full chunk.
  const Value* next_of(const Chunk& chunk) const;
  float divisor() const { return divisor_; }
  // Replaces averages that have been rounded up beyond the largest finite number by that number. `exponent` has scaled
  // the values.
  void keep_finite(uint16_t exponent, uint32_t count, Value* values) const;

 private:
  int shift_for(uint16_t exponent) const;
  // Does the same as sum() for a block with elements that are not finite: the sums in their lanes are NaN.
  void sum_finite(const kernels::Parts<Value>& parts, uint32_t count, Value* sums) const;
  uint16_t exponent_of_finite(const Place& place) const;
  uint64_t write_flags(const Place& place, uint8_t* words) const;
  uint64_t write_values(const Chunk& chunk, const Place& place, uint8_t* words) const;

  bool averages_;
  float divisor_;
  int headroom_;  // additional bits that the sum over all ranks needs
  uint32_t slots_;
};

extern template class BlockFloat<float>;
extern template class BlockFloat<kernels::Float16>;
extern template class BlockFloat<kernels::BFloat16>;

}  // namespace switchml::client
