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

Rounding::Rounding(uint64_t seed, uint64_t call, uint32_t rank, uint64_t element)
    : stochastic(true), counter(static_cast<uint32_t>(element)) {
  uint64_t key = 0;
  for (const uint64_t part : {seed, call, uint64_t{rank}, element >> 32}) {
    key = mixed((key ^ part) + kGolden);
  }
  first_key = static_cast<uint32_t>(key);
  second_key = static_cast<uint32_t>(key >> 32);
}

LaneScale::LaneScale(int shift, int32_t levels) {
  const Factors factors(shift);
  first = factors.first;
  second = factors.second * static_cast<float>(levels);
}

LaneUnit::LaneUnit(int shift, int32_t divisor) {
  const Factors factors(-shift);
  first = factors.second / static_cast<float>(divisor);
  second = factors.first;
}

namespace portable {

namespace {

int32_t truncated(float value) {
  // A value out of range is the caller's error, but must not be undefined behaviour.
  return value >= 2147483648.0F || value < -2147483648.0F || std::isnan(value) ? INT32_MIN
                                                                               : static_cast<int32_t>(value);
}

int32_t rounded(float scaled, const Rounding& rounding, size_t place) {
  if (!rounding.stochastic) {
    return truncated(std::nearbyint(scaled));
  }
  const float below = std::floor(scaled);
  const uint32_t bits =
      scrambled(rounding.counter + static_cast<uint32_t>(place), rounding.first_key, rounding.second_key);
  const bool up = static_cast<float>(bits >> 8) * kUnitOfRandom < scaled - below;
  return static_cast<int32_t>(static_cast<uint32_t>(truncated(below)) + (up ? 1U : 0U));
}

template <typename Integer>
int32_t integer_of(Integer value) {
  if constexpr (std::is_same_v<Integer, Boolean>) {
    return value.byte != 0 ? 1 : 0;
  } else {
    return value;
  }
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
uint32_t write_lanes(size_t first, size_t count, int lane_bits, uint8_t* words, Lane lane) {
  const size_t lanes = lanes_per_word(lane_bits);
  uint32_t sum = 0;
  for (size_t begin = first; begin < count; begin += lanes) {
    uint32_t word = 0;
    for (size_t i = begin; i < std::min(begin + lanes, count); ++i) {
      word += static_cast<uint32_t>(lane(i)) << (static_cast<size_t>(lane_bits) * (i - begin));
    }
    sum += kWeights.of[begin / lanes] * word;
    wire::store32(words + 4 * (begin / lanes), word);
  }
  return sum;
}

// Splits off the lower half of a number: returns it as a signed number of `bits` bits, and keeps the rest.
int32_t lower_part(int32_t* number, int bits) {
  const auto whole = static_cast<uint32_t>(*number);
  const int32_t lower = static_cast<int32_t>(whole << (kWordBits - bits)) >> (kWordBits - bits);
  *number = static_cast<int32_t>(whole - static_cast<uint32_t>(lower)) >> bits;
  return lower;
}

// Calls set(i, lane) for each lane of the words.
template <typename Set>
uint32_t read_lanes(const uint8_t* words, size_t first, size_t count, int lane_bits, Set set) {
  const size_t lanes = lanes_per_word(lane_bits);
  uint32_t sum = 0;
  for (size_t begin = first; begin < count; begin += lanes) {
    const uint32_t word = wire::load32(words + 4 * (begin / lanes));
    sum += kWeights.of[begin / lanes] * word;
    int32_t rest = static_cast<int32_t>(word);
    for (size_t i = begin; i < count && i < begin + lanes;) {
      int32_t half = lane_bits == kWordBits ? rest : lower_part(&rest, 16);
      for (size_t j = 0; j < std::max<size_t>(1, lanes / 2) && i < count; ++j, ++i) {
        set(i, lane_bits == 8 && j == 0 ? lower_part(&half, 8) : half);
      }
    }
  }
  return sum;
}

}  // namespace

template <typename Value>
uint32_t quantize_lanes(const Value* values, size_t first, size_t count, int lane_bits, LaneScale scale,
                        const Rounding& rounding, uint8_t* words) {
  return write_lanes(first, count, lane_bits, words, [&](size_t i) {
    return rounded(kernels::widen(values[i]) * scale.first * scale.second, rounding, i);
  });
}

template <typename Value>
uint32_t dequantize_lanes(const uint8_t* words, size_t first, size_t count, int lane_bits, LaneUnit unit,
                          Value* values) {
  return read_lanes(words, first, count, lane_bits, [&](size_t i, int32_t lane) {
    kernels::narrow(static_cast<float>(lane) * unit.first * unit.second, values + i);
  });
}

template <typename Integer>
uint32_t pack_lanes(const Integer* values, size_t first, size_t count, int lane_bits, uint8_t* words) {
  return write_lanes(first, count, lane_bits, words, [&](size_t i) { return integer_of(values[i]); });
}

template <typename Integer>
uint32_t unpack_lanes(const uint8_t* words, size_t first, size_t count, int lane_bits, Integer* values) {
  return read_lanes(words, first, count, lane_bits,
                    [&](size_t i, int32_t lane) { values[i] = integer_from<Integer>(lane); });
}

template uint32_t quantize_lanes(const float*, size_t, size_t, int, LaneScale, const Rounding&, uint8_t*);
template uint32_t quantize_lanes(const Float16*, size_t, size_t, int, LaneScale, const Rounding&, uint8_t*);
template uint32_t quantize_lanes(const BFloat16*, size_t, size_t, int, LaneScale, const Rounding&, uint8_t*);
template uint32_t dequantize_lanes(const uint8_t*, size_t, size_t, int, LaneUnit, float*);
template uint32_t dequantize_lanes(const uint8_t*, size_t, size_t, int, LaneUnit, Float16*);
template uint32_t dequantize_lanes(const uint8_t*, size_t, size_t, int, LaneUnit, BFloat16*);
template uint32_t pack_lanes(const Boolean*, size_t, size_t, int, uint8_t*);
template uint32_t pack_lanes(const int8_t*, size_t, size_t, int, uint8_t*);
template uint32_t pack_lanes(const uint8_t*, size_t, size_t, int, uint8_t*);
template uint32_t pack_lanes(const int16_t*, size_t, size_t, int, uint8_t*);
template uint32_t pack_lanes(const int32_t*, size_t, size_t, int, uint8_t*);
template uint32_t unpack_lanes(const uint8_t*, size_t, size_t, int, Boolean*);
template uint32_t unpack_lanes(const uint8_t*, size_t, size_t, int, int8_t*);
template uint32_t unpack_lanes(const uint8_t*, size_t, size_t, int, uint8_t*);
template uint32_t unpack_lanes(const uint8_t*, size_t, size_t, int, int16_t*);
template uint32_t unpack_lanes(const uint8_t*, size_t, size_t, int, int32_t*);

}  // namespace portable

namespace {

template <typename Value>
uint32_t quantize_lanes(const Value* values, size_t count, int lane_bits, LaneScale scale, const Rounding& rounding,
                        uint8_t* words, bool /*streaming*/) {
  return portable::quantize_lanes(values, 0, count, lane_bits, scale, rounding, words);
}

template <typename Value>
uint32_t dequantize_lanes(const uint8_t* words, size_t count, int lane_bits, LaneUnit unit, Value* values) {
  return portable::dequantize_lanes(words, 0, count, lane_bits, unit, values);
}

template <typename Integer>
uint32_t pack_integers(const Integer* values, size_t count, int lane_bits, uint8_t* words, bool /*streaming*/) {
  return portable::pack_lanes(values, 0, count, lane_bits, words);
}

template <typename Integer>
uint32_t unpack_integers(const uint8_t* words, size_t count, int lane_bits, Integer* values) {
  return portable::unpack_lanes(words, 0, count, lane_bits, values);
}

}  // namespace

const LaneFunctions kPortableLanes = {
    {quantize_lanes<float>, dequantize_lanes<float>},       {quantize_lanes<Float16>, dequantize_lanes<Float16>},
    {quantize_lanes<BFloat16>, dequantize_lanes<BFloat16>}, {pack_integers<Boolean>, unpack_integers<Boolean>},
    {pack_integers<int8_t>, unpack_integers<int8_t>},       {pack_integers<uint8_t>, unpack_integers<uint8_t>},
    {pack_integers<int16_t>, unpack_integers<int16_t>},     {pack_integers<int32_t>, unpack_integers<int32_t>},
};

template <typename Integer>
bool all_within(const Integer* values, size_t count, int32_t bound) {
  constexpr size_t kPart = 4096;  // after which a value beyond the bound is noticed
  for (size_t begin = 0; begin < count; begin += kPart) {
    int beyond = 0;
    for (size_t i = begin; i < std::min(begin + kPart, count); ++i) {
      const int32_t value = portable::integer_of(values[i]);
      beyond |= static_cast<int>(value > bound) | static_cast<int>(value < -bound);
    }
    if (beyond != 0) {
      return false;
    }
  }
  return true;
}

template bool all_within(const Boolean*, size_t, int32_t);
template bool all_within(const int8_t*, size_t, int32_t);
template bool all_within(const uint8_t*, size_t, int32_t);
template bool all_within(const int16_t*, size_t, int32_t);
template bool all_within(const int32_t*, size_t, int32_t);

}  // namespace switchml::kernels
