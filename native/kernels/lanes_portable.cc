// Narrow lanes without special instructions.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "native/kernels/kernel_functions.h"
#include "native/wire/wire.h"

namespace switchml::kernels {

namespace {

// The finalizer of SplitMix64.
uint64_t mixed(uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15U;

}  // namespace

uint64_t key_of_call(uint64_t seed, uint64_t call, uint32_t rank) {
  uint64_t key = 0;
  for (const uint64_t part : {seed, call, uint64_t{rank}}) {
    key = mixed((key ^ part) + kGolden);
  }
  return key;
}

Rounding::Rounding(uint64_t call_key, uint64_t element) : stochastic(true) {
  const uint64_t key = mixed((call_key ^ element) + kGolden);
  first_key = static_cast<uint32_t>(key);
  second_key = static_cast<uint32_t>(key >> 32);
}

LaneScale::LaneScale(int shift, int32_t levels, bool stochastic) {
  const Factors factors(shift);
  const float of_levels = static_cast<float>(levels) * (stochastic ? kThresholds : 1.0F);
  first = factors.first;
  second = factors.second * of_levels;
  // Together the factors give the same level: the product with the first one is exact, unless the level is 0.
  if (std::isnormal(first * second)) {
    first *= second;
    second = 1.0F;
  }
}

LaneUnit::LaneUnit(int shift, int32_t divisor) {
  const Factors factors(-shift);
  first = factors.second / static_cast<float>(divisor);
  second = factors.first;
  // Together the factors give the same value, since the second one is a power of two and no value is subnormal. A
  // kernel may divide the first one by kThresholds.
  if (std::isfinite(first * second) && std::isnormal(first * second / kThresholds)) {
    first *= second;
    second = 1.0F;
  }
}

namespace portable {

namespace {

int32_t truncated(float value) {
  // A value out of range is the caller's error, but must not be undefined behaviour.
  return value >= 2147483648.0F || value < -2147483648.0F || std::isnan(value) ? INT32_MIN
                                                                               : static_cast<int32_t>(value);
}

template <typename Integer>
int32_t integer_of(Integer value) {
  return NumberOf<Integer>::of(value);
}

template <typename Integer>
Integer integer_from(int32_t lane) {
  if constexpr (std::is_same_v<Integer, Boolean>) {
    return {static_cast<uint8_t>(lane != 0)};
  } else {
    return static_cast<Integer>(lane);
  }
}

// Writes the words whose lane number i, counted from the start of the block, is lane(i).
template <typename Lane>
uint64_t write_lanes(const Weights& weights, size_t first, size_t count, int lane_bits, uint8_t* words, Lane lane) {
  const size_t lanes = lanes_per_word(lane_bits);
  uint64_t sum = 0;
  for (size_t begin = first; begin < count; begin += lanes) {
    uint32_t word = 0;
    for (size_t i = begin; i < std::min(begin + lanes, count); ++i) {
      word += static_cast<uint32_t>(lane(i)) << (static_cast<size_t>(lane_bits) * (i - begin));
    }
    sum += weighed_word(weights.of[begin / lanes], word);
    wire::store32(words + 4 * (begin / lanes), word);
  }
  return sum;
}

// Calls set(i, lane) for each lane of the words.
template <typename Set>
uint64_t read_lanes(const Weights& weights, const uint8_t* words, size_t first, size_t count, int lane_bits, Set set) {
  const size_t lanes = lanes_per_word(lane_bits);
  uint64_t sum = 0;
  for (size_t begin = first; begin < count; begin += lanes) {
    uint32_t rest = wire::load32(words + 4 * (begin / lanes));
    sum += weighed_word(weights.of[begin / lanes], rest);
    for (size_t i = begin; i < std::min(begin + lanes, count); ++i) {
      const int32_t lane = static_cast<int32_t>(rest << (kWordBits - lane_bits)) >> (kWordBits - lane_bits);
      set(i, lane);
      rest -= static_cast<uint32_t>(lane);  // gives back to the next lane what a negative one borrowed
      rest = static_cast<uint32_t>(uint64_t{rest} >> lane_bits);
    }
  }
  return sum;
}

}  // namespace

// The definition is in lanes.h.
void write_thresholds(const Rounding& rounding, size_t count, uint16_t* thresholds) {
  constexpr size_t kWords = 16;
  for (size_t i = 0; i < count; i += 4 * kWords) {
    for (size_t j = 0; j < kWords; ++j) {
      const uint32_t state = rounding.first_key + static_cast<uint32_t>(i / 4 + j) * Rounding::kStep;
      const uint32_t product = (state ^ (state >> 15) ^ rounding.second_key) * Rounding::kFactor;
      const uint32_t word = product ^ (product >> 16);
      const uint32_t rotated = word << 8 | word >> 24;
      uint16_t* const to = thresholds + i + 2 * j;
      to[0] = static_cast<uint16_t>(word);
      to[1] = static_cast<uint16_t>(word >> 16);
      to[2 * kWords] = static_cast<uint16_t>(rotated);
      to[2 * kWords + 1] = static_cast<uint16_t>(rotated >> 16);
    }
  }
}

template <typename Value>
uint64_t quantize_lanes(const Weights& weights, const Value* values, size_t first, size_t count, int lane_bits,
                        const LaneScale& scale, const uint16_t* thresholds, uint8_t* words) {
  return write_lanes(weights, first, count, lane_bits, words, [&](size_t i) {
    const int32_t number = truncated(std::nearbyint(kernels::widen(values[i]) * scale.first * scale.second));
    return thresholds == nullptr ? number : static_cast<int32_t>(static_cast<uint32_t>(number) + thresholds[i]) >> 16;
  });
}

template <typename Value>
uint64_t dequantize_lanes(const Weights& weights, const uint8_t* words, size_t first, size_t count, int lane_bits,
                          const LaneUnit& unit, Value* values) {
  return read_lanes(weights, words, first, count, lane_bits, [&](size_t i, int32_t lane) {
    kernels::narrow(static_cast<float>(lane) * unit.first * unit.second, values + i);
  });
}

template <typename Integer>
uint64_t pack_lanes(const Weights& weights, const Integer* values, size_t first, size_t count, int lane_bits,
                    uint8_t* words) {
  return write_lanes(weights, first, count, lane_bits, words, [&](size_t i) { return integer_of(values[i]); });
}

template <typename Integer>
uint64_t unpack_lanes(const Weights& weights, const uint8_t* words, size_t first, size_t count, int lane_bits,
                      Integer* values) {
  return read_lanes(weights, words, first, count, lane_bits,
                    [&](size_t i, int32_t lane) { values[i] = integer_from<Integer>(lane); });
}

template uint64_t quantize_lanes(const Weights&, const float*, size_t, size_t, int, const LaneScale&, const uint16_t*,
                                 uint8_t*);
template uint64_t quantize_lanes(const Weights&, const Float16*, size_t, size_t, int, const LaneScale&, const uint16_t*,
                                 uint8_t*);
template uint64_t quantize_lanes(const Weights&, const BFloat16*, size_t, size_t, int, const LaneScale&,
                                 const uint16_t*, uint8_t*);
template uint64_t dequantize_lanes(const Weights&, const uint8_t*, size_t, size_t, int, const LaneUnit&, float*);
template uint64_t dequantize_lanes(const Weights&, const uint8_t*, size_t, size_t, int, const LaneUnit&, Float16*);
template uint64_t dequantize_lanes(const Weights&, const uint8_t*, size_t, size_t, int, const LaneUnit&, BFloat16*);
template uint64_t pack_lanes(const Weights&, const Boolean*, size_t, size_t, int, uint8_t*);
template uint64_t pack_lanes(const Weights&, const int8_t*, size_t, size_t, int, uint8_t*);
template uint64_t pack_lanes(const Weights&, const uint8_t*, size_t, size_t, int, uint8_t*);
template uint64_t pack_lanes(const Weights&, const int16_t*, size_t, size_t, int, uint8_t*);
template uint64_t pack_lanes(const Weights&, const int32_t*, size_t, size_t, int, uint8_t*);
template uint64_t unpack_lanes(const Weights&, const uint8_t*, size_t, size_t, int, Boolean*);
template uint64_t unpack_lanes(const Weights&, const uint8_t*, size_t, size_t, int, int8_t*);
template uint64_t unpack_lanes(const Weights&, const uint8_t*, size_t, size_t, int, uint8_t*);
template uint64_t unpack_lanes(const Weights&, const uint8_t*, size_t, size_t, int, int16_t*);
template uint64_t unpack_lanes(const Weights&, const uint8_t*, size_t, size_t, int, int32_t*);

}  // namespace portable

namespace {

template <typename Value>
uint64_t quantize_lanes(const Weights& weights, const Value* values, size_t count, int lane_bits,
                        const LaneScale& scale, const Rounding& rounding, uint8_t* words, const uint8_t* /*next*/) {
  if (!rounding.stochastic) {
    return portable::quantize_lanes(weights, values, 0, count, lane_bits, scale, nullptr, words);
  }
  Thresholds thresholds;
  portable::write_thresholds(rounding, count, thresholds.of.data());
  return portable::quantize_lanes(weights, values, 0, count, lane_bits, scale, thresholds.of.data(), words);
}

template <typename Value>
uint64_t dequantize_lanes(const Weights& weights, const uint8_t* words, size_t count, int lane_bits,
                          const LaneUnit& unit, Value* values) {
  return portable::dequantize_lanes(weights, words, 0, count, lane_bits, unit, values);
}

template <typename Integer>
uint64_t pack_integers(const Weights& weights, const Integer* values, size_t count, int lane_bits, uint8_t* words) {
  return portable::pack_lanes(weights, values, 0, count, lane_bits, words);
}

template <typename Integer>
uint64_t unpack_integers(const Weights& weights, const uint8_t* words, size_t count, int lane_bits, Integer* values) {
  return portable::unpack_lanes(weights, words, 0, count, lane_bits, values);
}

template <typename Integer>
bool integers_within(const Integer* values, size_t count, int32_t bound) {
  return portable::all_within(values, count, bound);
}

}  // namespace

const LaneFunctions kPortableLanes = {
    {quantize_lanes<float>, dequantize_lanes<float>},
    {quantize_lanes<Float16>, dequantize_lanes<Float16>},
    {quantize_lanes<BFloat16>, dequantize_lanes<BFloat16>},
    {pack_integers<Boolean>, unpack_integers<Boolean>, integers_within<Boolean>},
    {pack_integers<int8_t>, unpack_integers<int8_t>, integers_within<int8_t>},
    {pack_integers<uint8_t>, unpack_integers<uint8_t>, integers_within<uint8_t>},
    {pack_integers<int16_t>, unpack_integers<int16_t>, integers_within<int16_t>},
    {pack_integers<int32_t>, unpack_integers<int32_t>, integers_within<int32_t>},
};

}  // namespace switchml::kernels
