// Sums and averages of floating-point numbers in codes of one byte, which the switch expands (native/wire/codes.h).
#pragma once

#include "switchml/native/codecs/block_float.h"
#include "switchml/native/codecs/lanes.h"

namespace switchml::client {

// The phases are those of BlockFloat. With N ranks, the largest power of two in natural8 is the one above all
// magnitudes of the block; N times its integer fits a word. In dynamic8, 64 ranks are the most.
//
// A rank that shares memory with its switch sends no packets, so it writes the integers there itself.
template <typename Value>
class CodedFloat final : public BlockFloat<Value> {
 public:
  // Throws std::invalid_argument if the sums of all ranks do not fit a word.
  CodedFloat(const Arrays& arrays, bool average, const Lanes& lanes, const Geometry& geometry);

  uint32_t direct_bytes() const override { return 0; }  // as for narrow lanes

 private:
  wire::Format format() const override { return expands_ ? wire::Format::int32 : format_; }
  uint64_t quantize(const Chunk& chunk, const Value* values, uint32_t count, uint8_t* words) const override;
  uint64_t dequantize(const Chunk& chunk, const uint8_t* words, uint32_t count, Value* values) const override;

  int shift_of(const Chunk& chunk) const;
  void write_codes(const Chunk& chunk, const Value* values, uint32_t count, uint8_t* codes) const;

  wire::Format format_;
  bool expands_;
  int unit_bits_;  // of the integer that stands for the power of two above all magnitudes
  uint64_t key_;   // of this rank's call, for stochastic rounding
};

extern template class CodedFloat<float>;
extern template class CodedFloat<kernels::Float16>;
extern template class CodedFloat<kernels::BFloat16>;

}  // namespace switchml::client
