// Sums in lanes of 16 or 8 bits (native/kernels/lanes.h): floating-point numbers and small integers.
#pragma once

#include "switchml/native/codecs/block_float.h"
#include "switchml/native/codecs/codec.h"

namespace switchml::client {

// How a call uses the words of its packets.
struct Lanes {
  uint32_t bits = 32;       // 32, 16 or 8
  bool stochastic = false;  // the rounding of floating-point numbers; with the next two, which choose its numbers
  uint64_t seed = 0;
  uint64_t sequence = 0;                      // of the call
  wire::Format format = wire::Format::int32;  // of contributions; others than int32 are for lanes of 32 bits
};

// Floating-point numbers with a common exponent in narrow lanes. The phases are those of BlockFloat. With N ranks, a
// contribution has Q = floor((2^(bits - 1) - 1) / N) levels on both sides of 0, so that a sum of all ranks fits a lane.
template <typename Value>
class NarrowFloat final : public BlockFloat<Value> {
 public:
  NarrowFloat(const Arrays& arrays, bool average, const Lanes& lanes, const Geometry& geometry);

 private:
  uint64_t quantize(const Chunk& chunk, const Value* values, uint32_t count, uint8_t* words) const override;
  uint64_t dequantize(const Chunk& chunk, const uint8_t* words, uint32_t count, Value* values) const override;

  Lanes lanes_;
  uint64_t key_;  // of this rank's call, for stochastic rounding
  int32_t levels_;
  int32_t divisor_;  // of a sum of levels
};

extern template class NarrowFloat<float>;
extern template class NarrowFloat<kernels::Float16>;
extern template class NarrowFloat<kernels::BFloat16>;

// Integers whose sums fit their lanes. They are stored modulo the range of their type; the sum of truth values is true
// if one of them is. Integer is kernels::Boolean, int8_t, uint8_t, int16_t or int32_t.
template <typename Integer>
class NarrowIntegers final : public BlockCodec {
 public:
  NarrowIntegers(const Arrays& arrays, uint32_t lane_bits, const Geometry& geometry)
      : BlockCodec(arrays, lane_bits, geometry) {}

  Contribution encode(const Chunk& chunk, uint8_t* words) const override;
  uint64_t decode(const Chunk& chunk, const uint8_t* words) const override;
  uint32_t direct_bytes() const override { return lane_bits() == kWordBits ? sizeof(Integer) : 0; }
  bool sum(uint64_t chunk, const std::vector<const uint8_t*>& parts, uint8_t* sums) const override;
  uint16_t look_at(uint64_t block) override;
  void prefetch(uint64_t block) const override { this->template prefetch_output_of<Integer>(this->place_of(block)); }
};

extern template class NarrowIntegers<kernels::Boolean>;
extern template class NarrowIntegers<int8_t>;
extern template class NarrowIntegers<uint8_t>;
extern template class NarrowIntegers<int16_t>;
extern template class NarrowIntegers<int32_t>;

}  // namespace switchml::client
