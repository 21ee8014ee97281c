// Sums and averages of floating-point numbers as integers with a common exponent (block floating point).
#pragma once

#include "native/channel/channel.h"
#include "switchml/native/codecs/codec.h"

namespace switchml::client {

// A chunk is scaled by the exponent of the largest magnitude that any rank has in it. Its phases:
//
//   exponent known        phases
//   0..254                values
//   256 (unknown)         exponent only; then the phases for the exponent in its RESULT
//   255 (NaN, infinity)   flags: 1 in non-finite lanes; then values, with zeros in the lanes that were flagged
//
// Value is float, Float16 or BFloat16.
template <typename Value>
class BlockFloat final : public Codec {
 public:
  BlockFloat(uint8_t* memory, uint64_t elements, bool average, const channel::Geometry& geometry);

  uint16_t exponent_of(uint64_t chunk) const override;
  bool begin(Chunk* chunk) const override;
  Contribution encode(const Chunk& chunk, uint8_t* words) const override;
  uint32_t decode(const Chunk& chunk, const uint8_t* words) const override;
  bool agree(Chunk* chunk, const uint8_t* words) override;

 private:
  static bool choose_phase(Chunk* chunk);
  Value* values_of(uint64_t chunk) const { return memory_ + chunk * values(); }
  int shift_of(const Chunk& chunk) const;
  uint16_t exponent_of_finite(uint64_t chunk) const;
  uint32_t write_flags(uint64_t chunk, uint8_t* words) const;
  uint32_t write_values(const Chunk& chunk, uint8_t* words) const;
  void read_flags(Chunk* chunk, const uint8_t* words);

  Value* memory_;
  float divisor_;
  int headroom_;  // additional bits that the sum over all ranks needs
  uint32_t slots_;
  bool streaming_;
};

extern template class BlockFloat<float>;
extern template class BlockFloat<kernels::Float16>;
extern template class BlockFloat<kernels::BFloat16>;

}  // namespace switchml::client
