// Sums and averages of floating-point numbers that the switch adds up as floats (native/kernels/floats.h).
#pragma once

#include "switchml/native/codecs/codec.h"

namespace switchml::client {

// A chunk has one phase. A word is a float32. 16-bit numbers are widened to it, and their sum is rounded to 16 bits
// here. NaN and infinities are numbers like others. The check has no term for the words, because rounding is not
// linear: it shows that the ranks made the same call, and that each was counted once.
//
// Value is float, Float16 or BFloat16.
template <typename Value>
class FloatWords final : public Codec {
 public:
  FloatWords(const Arrays& arrays, bool average, const Geometry& geometry);

  Contribution encode(const Chunk& chunk, uint8_t* words) const override;
  uint64_t decode(const Chunk& chunk, const uint8_t* words) const override;
  bool sums_fit_words() const override { return false; }

 private:
  float divisor_;
};

extern template class FloatWords<float>;
extern template class FloatWords<kernels::Float16>;
extern template class FloatWords<kernels::BFloat16>;

}  // namespace switchml::client
