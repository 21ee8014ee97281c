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
// Value is float, Float16 or BFloat16. A value takes a word; NarrowFloat, which derives from this class, has smaller
// lanes.
template <typename Value>
class BlockFloat : public Codec {
 public:
  BlockFloat(uint8_t* memory, uint64_t elements, bool average, const channel::Geometry& geometry,
             uint32_t lane_bits = kWordBits);

  uint16_t exponent_of(uint64_t chunk) const override;
  bool begin(Chunk* chunk) const override;
  Contribution encode(const Chunk& chunk, uint8_t* words) const override;
  uint32_t decode(const Chunk& chunk, const uint8_t* words) const override;
  bool agree(Chunk* chunk, const uint8_t* words) override;

 protected:
  // Write and read the scaled values of a chunk. Both return the weighed sum of the words in use.
  virtual uint32_t quantize(const Chunk& chunk, const Value* values, uint32_t count, uint8_t* words) const;
  virtual uint32_t dequantize(const Chunk& chunk, const uint8_t* words, uint32_t count, Value* values) const;

  // Returns the values of the chunk that should be prefetched while this one is written, or null if the call has no
  // such full chunk.
  const Value* next_of(const Chunk& chunk) const;
  uint64_t elements_before(uint64_t chunk) const { return chunk * values() * (kWordBits / lane_bits_); }
  bool streaming() const { return streaming_; }

 private:
  static bool choose_phase(Chunk* chunk);
  Value* values_of(uint64_t chunk) const { return memory_ + elements_before(chunk); }
  uint32_t elements_of(uint64_t chunk) const {
    return static_cast<uint32_t>(
        std::min<uint64_t>(uint64_t{values()} * (kWordBits / lane_bits_), elements_ - elements_before(chunk)));
  }
  int shift_of(const Chunk& chunk) const;
  uint16_t exponent_of_finite(uint64_t chunk) const;
  uint32_t write_flags(uint64_t chunk, uint8_t* words) const;
  uint32_t write_values(const Chunk& chunk, uint8_t* words) const;
  void read_flags(Chunk* chunk, const uint8_t* words);

  Value* memory_;
  uint64_t elements_;
  uint32_t lane_bits_;
  float divisor_;
  int headroom_;  // additional bits that the sum over all ranks needs
  uint32_t slots_;
  bool streaming_;
};

extern template class BlockFloat<float>;
extern template class BlockFloat<kernels::Float16>;
extern template class BlockFloat<kernels::BFloat16>;

}  // namespace switchml::client
