#include "switchml/native/codecs/lanes.h"

#include <cmath>

namespace switchml::client {

namespace {

// A value with an exponent field below `exponent` + 1 has a magnitude below 2^(exponent - kExponentOfOne).
constexpr int kExponentOfOne = 126;

// The largest finite number of each type, and the exponent field of its float32 number.
template <typename Value>
struct Largest;
template <>
struct Largest<float> {
  static constexpr float kNumber = 0x1.fffffep127F;
  static constexpr int kExponent = 254;
};
template <>
struct Largest<kernels::BFloat16> {
  static constexpr float kNumber = 0x1.fep127F;
  static constexpr int kExponent = 254;
};
template <>
struct Largest<kernels::Float16> {
  static constexpr float kNumber = 65504.0F;
  static constexpr int kExponent = 142;
};

}  // namespace

template <typename Value>
NarrowFloat<Value>::NarrowFloat(uint8_t* memory, uint64_t elements, bool average, const Lanes& lanes,
                                const channel::Geometry& geometry)
    : BlockFloat<Value>(memory, elements, average, geometry, lanes.bits),
      lanes_(lanes),
      averages_(average),
      key_(kernels::key_of_call(lanes.seed, lanes.sequence, geometry.rank)),
      levels_(kernels::levels_for(static_cast<int>(lanes.bits), geometry.world_size)),
      divisor_(average ? levels_ * static_cast<int32_t>(geometry.world_size) : levels_) {}

template <typename Value>
uint32_t NarrowFloat<Value>::quantize(const Chunk& chunk, const Value* values, uint32_t count, uint8_t* words) const {
  const kernels::Rounding rounding =
      lanes_.stochastic ? kernels::Rounding(key_, this->elements_before(chunk.number)) : kernels::Rounding();
  return kernels::quantize_lanes(values, count, static_cast<int>(lanes_.bits), kExponentOfOne - chunk.scaled_by,
                                 levels_, rounding, words, this->streaming(), this->next_of(chunk));
}

template <typename Value>
uint32_t NarrowFloat<Value>::dequantize(const Chunk& chunk, const uint8_t* words, uint32_t count, Value* values) const {
  const uint32_t weighed = kernels::dequantize_lanes(words, count, static_cast<int>(lanes_.bits),
                                                     kExponentOfOne - chunk.scaled_by, divisor_, values);
  // The highest level stands for the power of two above the largest number. An average of finite numbers is finite.
  if (averages_ && chunk.scaled_by >= Largest<Value>::kExponent) {
    for (uint32_t i = 0; i < count; ++i) {
      if (!kernels::is_finite(values[i])) {
        kernels::narrow(std::copysign(Largest<Value>::kNumber, kernels::widen(values[i])), values + i);
      }
    }
  }
  return weighed;
}

template class NarrowFloat<float>;
template class NarrowFloat<kernels::Float16>;
template class NarrowFloat<kernels::BFloat16>;

template <typename Integer>
Contribution NarrowIntegers<Integer>::encode(const Chunk& chunk, uint8_t* words) const {
  Contribution made;
  made.count = static_cast<uint16_t>(words_of(chunk.number));
  made.weighed = kernels::pack_lanes(memory_ + elements_before(chunk.number), elements_of(chunk.number),
                                     static_cast<int>(lane_bits_), words, streaming_);
  clear_from(made.count, words);
  return made;
}

template <typename Integer>
uint32_t NarrowIntegers<Integer>::decode(const Chunk& chunk, const uint8_t* words) const {
  Integer* const sums = memory_ + elements_before(chunk.number);
  const uint32_t weighed = kernels::unpack_lanes(words, elements_of(chunk.number), static_cast<int>(lane_bits_), sums);
  return weighed + weigh_from(words_of(chunk.number), words);
}

template class NarrowIntegers<kernels::Boolean>;
template class NarrowIntegers<int8_t>;
template class NarrowIntegers<uint8_t>;
template class NarrowIntegers<int16_t>;
template class NarrowIntegers<int32_t>;

}  // namespace switchml::client
