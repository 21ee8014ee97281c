#include "switchml/native/codecs/lanes.h"

#include <type_traits>

namespace switchml::client {

namespace {

// A value with an exponent field below `exponent` + 1 has a magnitude below 2^(exponent - kExponentOfOne).
constexpr int kExponentOfOne = 126;

}  // namespace

template <typename Value>
NarrowFloat<Value>::NarrowFloat(const Arrays& arrays, bool average, const Lanes& lanes, const Geometry& geometry)
    : BlockFloat<Value>(arrays, average, geometry, lanes.bits),
      lanes_(lanes),
      key_(kernels::key_of_call(lanes.seed, lanes.sequence, geometry.rank)),
      levels_(kernels::levels_for(static_cast<int>(lanes.bits), geometry.world_size)),
      divisor_(average ? levels_ * static_cast<int32_t>(geometry.world_size) : levels_) {}

template <typename Value>
uint64_t NarrowFloat<Value>::quantize(const Chunk& chunk, const Value* values, uint32_t count, uint8_t* words) const {
  const kernels::Rounding rounding =
      lanes_.stochastic ? kernels::Rounding(key_, this->place_of(chunk.number).first) : kernels::Rounding();
  return kernels::quantize_lanes(this->weights(), values, count, static_cast<int>(lanes_.bits),
                                 kExponentOfOne - chunk.scaled_by, levels_, rounding, words, this->next_of(chunk));
}

template <typename Value>
uint64_t NarrowFloat<Value>::dequantize(const Chunk& chunk, const uint8_t* words, uint32_t count, Value* values) const {
  const uint64_t weighed = kernels::dequantize_lanes(this->weights(), words, count, static_cast<int>(lanes_.bits),
                                                     kExponentOfOne - chunk.scaled_by, divisor_, values);
  // The highest level stands for the power of two above the largest number.
  this->keep_finite(chunk.scaled_by, count, values);
  return weighed;
}

template class NarrowFloat<float>;
template class NarrowFloat<kernels::Float16>;
template class NarrowFloat<kernels::BFloat16>;

template <typename Integer>
Contribution NarrowIntegers<Integer>::encode(const Chunk& chunk, uint8_t* words) const {
  const Place place = place_of(chunk.number);
  Contribution made;
  made.count = static_cast<uint16_t>(words_of(place));
  made.expects_words = true;
  made.reader = reader_of(chunk);
  made.weighed =
      kernels::pack_lanes(weights(), input_of<Integer>(place), place.count, static_cast<int>(lane_bits()), words);
  clear_from(made.count, words);
  return made;
}

template <typename Integer>
uint64_t NarrowIntegers<Integer>::decode(const Chunk& chunk, const uint8_t* words) const {
  const Place place = place_of(chunk.number);
  auto* const sums = output_of<Integer>(place);
  if (sums == nullptr) {
    return weigh_from(0, words);
  }
  return kernels::unpack_lanes(weights(), words, place.count, static_cast<int>(lane_bits()), sums) +
         weigh_from(words_of(place), words);
}

template <typename Integer>
bool NarrowIntegers<Integer>::sum(uint64_t chunk, const std::vector<const uint8_t*>& parts, uint8_t* sums) const {
  if constexpr (!std::is_same_v<Integer, kernels::Boolean>) {
    return sum_integers<std::make_unsigned_t<Integer>>(chunk, parts, sums);
  } else {
    const uint32_t count = place_of(chunk).count;
    for (uint32_t i = 0; i < count; ++i) {
      sums[i] = std::any_of(parts.begin(), parts.end(), [i](const uint8_t* part) { return part[i] != 0; }) ? 1 : 0;
    }
    return true;
  }
}

template <typename Integer>
uint16_t NarrowIntegers<Integer>::look_at(uint64_t block) {
  const Place place = place_of(block);
  return kernels::all_within(input_of<Integer>(place), place.count, 0) ? kZero : 0;
}

template class NarrowIntegers<kernels::Boolean>;
template class NarrowIntegers<int8_t>;
template class NarrowIntegers<uint8_t>;
template class NarrowIntegers<int16_t>;
template class NarrowIntegers<int32_t>;

}  // namespace switchml::client
