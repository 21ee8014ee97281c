// The arithmetic with NEON, on 64-bit ARM: four values at a time.
#if defined(__aarch64__)

#include <arm_neon.h>

#include <cstring>
#include <type_traits>

#include "native/kernels/kernel_functions.h"

namespace switchml::kernels {

namespace {

constexpr size_t kLanes = 4;

inline uint32x4_t load_words(const uint8_t* from) { return vreinterpretq_u32_u8(vld1q_u8(from)); }

inline void store_words(uint8_t* to, uint32x4_t words) { vst1q_u8(to, vreinterpretq_u8_u32(words)); }

inline uint32x4_t swap(uint32x4_t words) { return vreinterpretq_u32_u8(vrev32q_u8(vreinterpretq_u8_u32(words))); }

inline uint32x4_t add_weighed(uint32x4_t sum, uint32x4_t words, size_t first) {
  return vmlaq_u32(sum, words, vld1q_u32(&kWeights.of[first]));
}

inline float32x4_t load_values(const float* from) { return vld1q_f32(from); }

inline float32x4_t load_values(const Float16* from) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&from->bits)));
}

inline float32x4_t load_values(const BFloat16* from) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(&from->bits), 16));
}

inline void store_values(float* to, float32x4_t values) { vst1q_f32(to, values); }

inline void store_values(Float16* to, float32x4_t values) {
  vst1_u16(&to->bits, vreinterpret_u16_f16(vcvt_f16_f32(values)));
}

inline void store_values(BFloat16* to, float32x4_t values) {
  const uint32x4_t bits = vreinterpretq_u32_f32(values);
  const uint32x4_t upper = vshrq_n_u32(bits, 16);
  const uint32x4_t last = vandq_u32(upper, vdupq_n_u32(1));
  const uint32x4_t rounded = vshrq_n_u32(vaddq_u32(vaddq_u32(bits, last), vdupq_n_u32(0x7FFF)), 16);
  const uint32x4_t number = vceqq_f32(values, values);
  vst1_u16(&to->bits, vmovn_u32(vbslq_u32(number, rounded, vorrq_u32(upper, vdupq_n_u32(0x40)))));
}

// Returns words * factor / divisor, ready to be rounded to Value.
template <typename Value>
inline float32x4_t scaled_words(int32x4_t words, float factor, float divisor) {
  const bool whole = divisor == 1.0F;
  if (std::is_same_v<Value, float> && whole) {
    return vmulq_n_f32(vcvtq_f32_s32(words), factor);
  }
  const float64x2_t parts = vdupq_n_f64(divisor);
  const float64x2_t low = vmulq_n_f64(vcvtq_f64_s64(vmovl_s32(vget_low_s32(words))), factor);
  const float64x2_t high = vmulq_n_f64(vcvtq_f64_s64(vmovl_high_s32(words)), factor);
  if constexpr (std::is_same_v<Value, float>) {  // rounding the double gives the same as rounding the exact quotient
    return vcvt_high_f32_f64(vcvt_f32_f64(vdivq_f64(low, parts)), vdivq_f64(high, parts));
  } else {  // computed in double, then rounded to odd in float32 (half.h)
    return whole ? vcvtx_high_f32_f64(vcvtx_f32_f64(low), high)
                 : vcvtx_high_f32_f64(vcvtx_f32_f64(vdivq_f64(low, parts)), vdivq_f64(high, parts));
  }
}

// Returns the largest magnitude (sign bits cleared) of the values in whole vectors, and sets `done` to their number.
uint32_t largest_of(const float* values, size_t count, size_t* done) {
  uint32x4_t largest = vdupq_n_u32(0);
  for (; *done + kLanes <= count; *done += kLanes) {
    largest = vmaxq_u32(largest, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(values + *done))));
  }
  return vmaxvq_u32(largest);
}

template <typename Half>
uint32_t largest_of(const Half* values, size_t count, size_t* done) {
  uint16x8_t largest = vdupq_n_u16(0);
  for (; *done + 2 * kLanes <= count; *done += 2 * kLanes) {
    largest = vmaxq_u16(largest, vandq_u16(vld1q_u16(&values[*done].bits), vdupq_n_u16(0x7FFF)));
  }
  return vmaxvq_u16(largest);
}

template <typename Value>
uint16_t block_exponent(const Value* values, size_t count) {
  size_t done = 0;
  const uint16_t of_vectors = portable::exponent_of(largest_of(values, count, &done), values);
  const uint16_t of_rest = portable::block_exponent(values, done, count);
  return of_vectors > of_rest ? of_vectors : of_rest;
}

template <typename Value>
uint32_t quantize(const Value* values, size_t count, Factors factors, uint8_t* words, bool /*streaming*/,
                  const uint8_t* /*next*/) {
  uint32x4_t sum = vdupq_n_u32(0);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const float32x4_t scaled = vmulq_n_f32(vmulq_n_f32(load_values(values + i), factors.first), factors.second);
    const uint32x4_t word = vreinterpretq_u32_s32(vcvtnq_s32_f32(scaled));
    sum = add_weighed(sum, word, i);
    store_words(words + 4 * i, swap(word));
  }
  return vaddvq_u32(sum) + portable::quantize(values, i, count, factors, words);
}

template <typename Value>
uint32_t dequantize(const uint8_t* words, size_t count, int shift, float divisor, Value* values) {
  const float factor = power_of_two(-shift);
  uint32x4_t sum = vdupq_n_u32(0);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const uint32x4_t word = swap(load_words(words + 4 * i));
    sum = add_weighed(sum, word, i);
    store_values(values + i, scaled_words<Value>(vreinterpretq_s32_u32(word), factor, divisor));
  }
  return vaddvq_u32(sum) + portable::dequantize(words, i, count, shift, divisor, values);
}

template <typename Half>
void widen(const Half* values, size_t count, float* floats) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_values(floats + i, load_values(values + i));
  }
  portable::widen(values, i, count, floats);
}

template <typename Half>
void narrow(const float* floats, size_t count, Half* values) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_values(values + i, load_values(floats + i));
  }
  portable::narrow(floats, i, count, values);
}

uint32_t pack(const uint8_t* values, size_t count, uint8_t* words, bool /*streaming*/) {
  uint32x4_t sum = vdupq_n_u32(0);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const uint32x4_t word = load_words(values + 4 * i);
    sum = add_weighed(sum, word, i);
    store_words(words + 4 * i, swap(word));
  }
  return vaddvq_u32(sum) + portable::pack(values, i, count, words);
}

uint32_t unpack(const uint8_t* words, size_t count, uint8_t* values) {
  uint32x4_t sum = vdupq_n_u32(0);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const uint32x4_t word = swap(load_words(words + 4 * i));
    sum = add_weighed(sum, word, i);
    store_words(values + 4 * i, word);
  }
  return vaddvq_u32(sum) + portable::unpack(words, i, count, values);
}

uint32_t weigh(const uint8_t* words, size_t first, size_t count) {
  uint32x4_t sum = vdupq_n_u32(0);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    sum = add_weighed(sum, swap(load_words(words + 4 * i)), first + i);
  }
  return vaddvq_u32(sum) + portable::weigh(words, first, i, count);
}

// Narrow lanes. The functions below take eight (16 bits) or sixteen (8 bits) elements at a time, which fill a vector of
// words.

inline int32x4_t load_integers(const int32_t* from) { return vld1q_s32(from); }

inline int32x4_t load_integers(const int16_t* from) { return vmovl_s16(vld1_s16(from)); }

// Returns four bytes in the lower half of a vector.
inline uint8x8_t load_four(const void* from) {
  uint32_t four;
  std::memcpy(&four, from, sizeof four);
  return vreinterpret_u8_u32(vdup_n_u32(four));
}

inline int32x4_t load_integers(const int8_t* from) {
  return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(load_four(from)))));
}

inline int32x4_t load_integers(const uint8_t* from) {
  return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(load_four(from)))));
}

inline int32x4_t load_integers(const Boolean* from) { return vminq_s32(load_integers(&from->byte), vdupq_n_s32(1)); }

inline void store_integers(int32_t* to, int32x4_t integers) { vst1q_s32(to, integers); }

inline void store_integers(int16_t* to, int32x4_t integers) { vst1_s16(to, vmovn_s32(integers)); }

inline void store_integers(uint8_t* to, int32x4_t integers) {
  const uint16x4_t halves = vmovn_u32(vreinterpretq_u32_s32(integers));
  const uint32_t four = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(halves, halves))), 0);
  std::memcpy(to, &four, sizeof four);
}

inline void store_integers(int8_t* to, int32x4_t integers) { store_integers(reinterpret_cast<uint8_t*>(to), integers); }

inline void store_integers(Boolean* to, int32x4_t integers) {
  const uint32x4_t zero = vceqzq_s32(integers);
  store_integers(&to->byte, vreinterpretq_s32_u32(vbicq_u32(vdupq_n_u32(1), zero)));
}

// Returns first_i + second_i * 2^kBits for the adjacent pairs (first_i, second_i) in the 8 integers of `low` and
// `high`.
template <int kBits>
inline int32x4_t joined(int32x4_t low, int32x4_t high) {
  return vaddq_s32(vuzp1q_s32(low, high), vshlq_n_s32(vuzp2q_s32(low, high), kBits));
}

struct Pair {
  int32x4_t low;
  int32x4_t high;
};

// Does the opposite of joined(): a first number is signed and has kBits bits.
template <int kBits>
inline Pair split(int32x4_t numbers) {
  const int32x4_t first = vshrq_n_s32(vshlq_n_s32(numbers, kWordBits - kBits), kWordBits - kBits);
  const int32x4_t second = vshrq_n_s32(vsubq_s32(numbers, first), kBits);
  return {vzip1q_s32(first, second), vzip2q_s32(first, second)};
}

// Writes as many words as fill whole vectors, and sets `done` to their elements. integers(i) returns the four lanes
// from i on.
template <int kBits, typename Integers>
inline uint32_t write_lanes(size_t count, uint8_t* words, size_t* done, const Integers& integers) {
  constexpr size_t kElements = kLanes * kWordBits / kBits;
  uint32x4_t sum = vdupq_n_u32(0);
  size_t place = 0;
  size_t i = 0;
  for (; i + kElements <= count; i += kElements, place += kLanes) {
    int32x4_t lanes = joined<kBits>(integers(i), integers(i + kLanes));
    if constexpr (kBits == 8) {
      lanes = joined<16>(lanes, joined<kBits>(integers(i + 2 * kLanes), integers(i + 3 * kLanes)));
    }
    const uint32x4_t word = vreinterpretq_u32_s32(lanes);
    sum = add_weighed(sum, word, place);
    store_words(words + 4 * place, swap(word));
  }
  *done = i;
  return vaddvq_u32(sum);
}

// Reads as many words as fill whole vectors, and sets `done` to their elements. Calls set(i, lanes) for each four.
template <int kBits, typename Set>
inline uint32_t read_lanes(const uint8_t* words, size_t count, size_t* done, const Set& set) {
  constexpr size_t kElements = kLanes * kWordBits / kBits;
  uint32x4_t sum = vdupq_n_u32(0);
  size_t place = 0;
  size_t i = 0;
  for (; i + kElements <= count; i += kElements, place += kLanes) {
    const uint32x4_t word = swap(load_words(words + 4 * place));
    sum = add_weighed(sum, word, place);
    const Pair halves = split<16>(vreinterpretq_s32_u32(word));
    if constexpr (kBits == 16) {
      set(i, halves.low);
      set(i + kLanes, halves.high);
    } else {
      const Pair first = split<kBits>(halves.low);
      const Pair second = split<kBits>(halves.high);
      set(i, first.low);
      set(i + kLanes, first.high);
      set(i + 2 * kLanes, second.low);
      set(i + 3 * kLanes, second.high);
    }
  }
  *done = i;
  return vaddvq_u32(sum);
}

// The same numbers as scrambled() in lanes.h.
inline uint32x4_t scrambled_from(uint32_t counter, const Rounding& rounding) {
  constexpr std::array<uint32_t, kLanes> kPlace = {0, 1, 2, 3};
  uint32x4_t bits = vaddq_u32(vld1q_u32(kPlace.data()), vdupq_n_u32(counter + rounding.first_key));
  bits = veorq_u32(bits, vshrq_n_u32(bits, 16));
  bits = vmulq_n_u32(bits, 0x7feb352dU);
  bits = veorq_u32(bits, vshrq_n_u32(bits, 15));
  bits = vaddq_u32(bits, vdupq_n_u32(rounding.second_key));
  bits = vmulq_n_u32(bits, 0x846ca68bU);
  return veorq_u32(bits, vshrq_n_u32(bits, 16));
}

template <bool kStochastic>
inline int32x4_t rounded(float32x4_t scaled, uint32_t counter, const Rounding& rounding) {
  if constexpr (kStochastic) {
    const float32x4_t below = vrndmq_f32(scaled);
    const uint32x4_t bits = vshrq_n_u32(scrambled_from(counter, rounding), 8);
    const float32x4_t random = vmulq_n_f32(vcvtq_f32_u32(bits), kUnitOfRandom);
    const uint32x4_t up = vcltq_f32(random, vsubq_f32(scaled, below));
    return vsubq_s32(vcvtq_s32_f32(below), vreinterpretq_s32_u32(up));  // all bits set are -1
  } else {
    return vcvtnq_s32_f32(scaled);
  }
}

template <int kBits, bool kStochastic, typename Value>
uint32_t quantize_lanes_to(const Value* values, size_t count, LaneScale scale, const Rounding& rounding,
                           uint8_t* words) {
  size_t done = 0;
  const uint32_t sum = write_lanes<kBits>(count, words, &done, [&](size_t i) {
    const float32x4_t scaled = vmulq_n_f32(vmulq_n_f32(load_values(values + i), scale.first), scale.second);
    return rounded<kStochastic>(scaled, rounding.counter + static_cast<uint32_t>(i), rounding);
  });
  return sum + portable::quantize_lanes(values, done, count, kBits, scale, rounding, words);
}

template <int kBits, typename Value>
uint32_t quantize_lanes_to(const Value* values, size_t count, LaneScale scale, const Rounding& rounding,
                           uint8_t* words) {
  return rounding.stochastic ? quantize_lanes_to<kBits, true>(values, count, scale, rounding, words)
                             : quantize_lanes_to<kBits, false>(values, count, scale, rounding, words);
}

template <typename Value>
uint32_t quantize_lanes(const Value* values, size_t count, int lane_bits, LaneScale scale, const Rounding& rounding,
                        uint8_t* words, bool /*streaming*/) {
  switch (lane_bits) {
    case 8:
      return quantize_lanes_to<8>(values, count, scale, rounding, words);
    case 16:
      return quantize_lanes_to<16>(values, count, scale, rounding, words);
    default:
      return portable::quantize_lanes(values, 0, count, lane_bits, scale, rounding, words);
  }
}

template <int kBits, typename Value>
uint32_t dequantize_lanes_from(const uint8_t* words, size_t count, LaneUnit unit, Value* values) {
  size_t done = 0;
  const uint32_t sum = read_lanes<kBits>(words, count, &done, [&](size_t i, int32x4_t lanes) {
    store_values(values + i, vmulq_n_f32(vmulq_n_f32(vcvtq_f32_s32(lanes), unit.first), unit.second));
  });
  return sum + portable::dequantize_lanes(words, done, count, kBits, unit, values);
}

template <typename Value>
uint32_t dequantize_lanes(const uint8_t* words, size_t count, int lane_bits, LaneUnit unit, Value* values) {
  switch (lane_bits) {
    case 8:
      return dequantize_lanes_from<8>(words, count, unit, values);
    case 16:
      return dequantize_lanes_from<16>(words, count, unit, values);
    default:
      return portable::dequantize_lanes(words, 0, count, lane_bits, unit, values);
  }
}

template <int kBits, typename Integer>
uint32_t pack_lanes_to(const Integer* values, size_t count, uint8_t* words) {
  size_t done = 0;
  const uint32_t sum = write_lanes<kBits>(count, words, &done, [&](size_t i) { return load_integers(values + i); });
  return sum + portable::pack_lanes(values, done, count, kBits, words);
}

template <typename Integer>
uint32_t pack_integers(const Integer* values, size_t count, int lane_bits, uint8_t* words, bool /*streaming*/) {
  switch (lane_bits) {
    case 8:
      return pack_lanes_to<8>(values, count, words);
    case 16:
      return pack_lanes_to<16>(values, count, words);
    default:
      return portable::pack_lanes(values, 0, count, lane_bits, words);
  }
}

template <int kBits, typename Integer>
uint32_t unpack_lanes_from(const uint8_t* words, size_t count, Integer* values) {
  size_t done = 0;
  const uint32_t sum =
      read_lanes<kBits>(words, count, &done, [&](size_t i, int32x4_t lanes) { store_integers(values + i, lanes); });
  return sum + portable::unpack_lanes(words, done, count, kBits, values);
}

template <typename Integer>
uint32_t unpack_integers(const uint8_t* words, size_t count, int lane_bits, Integer* values) {
  switch (lane_bits) {
    case 8:
      return unpack_lanes_from<8>(words, count, values);
    case 16:
      return unpack_lanes_from<16>(words, count, values);
    default:
      return portable::unpack_lanes(words, 0, count, lane_bits, values);
  }
}

}  // namespace

const Functions kNeon = {
    {block_exponent<float>, quantize<float>, dequantize<float>, nullptr, nullptr},
    {block_exponent<Float16>, quantize<Float16>, dequantize<Float16>, widen<Float16>, narrow<Float16>},
    {block_exponent<BFloat16>, quantize<BFloat16>, dequantize<BFloat16>, widen<BFloat16>, narrow<BFloat16>},
    pack,
    unpack,
    weigh,
};

const LaneFunctions kNeonLanes = {
    {quantize_lanes<float>, dequantize_lanes<float>},       {quantize_lanes<Float16>, dequantize_lanes<Float16>},
    {quantize_lanes<BFloat16>, dequantize_lanes<BFloat16>}, {pack_integers<Boolean>, unpack_integers<Boolean>},
    {pack_integers<int8_t>, unpack_integers<int8_t>},       {pack_integers<uint8_t>, unpack_integers<uint8_t>},
    {pack_integers<int16_t>, unpack_integers<int16_t>},     {pack_integers<int32_t>, unpack_integers<int32_t>},
};

}  // namespace switchml::kernels

#endif
