// The arithmetic with NEON, on 64-bit ARM: four values at a time.
#if defined(__aarch64__)

#include <arm_neon.h>

#include <type_traits>

#include "native/kernels/code_numbers.h"
#include "native/kernels/kernel_functions.h"

namespace switchml::kernels {

namespace {

constexpr size_t kLanes = 4;

inline uint32x4_t load_words(const uint8_t* from) { return vreinterpretq_u32_u8(vld1q_u8(from)); }

inline void store_words(uint8_t* to, uint32x4_t words) { vst1q_u8(to, vreinterpretq_u8_u32(words)); }

inline uint32x4_t swap(uint32x4_t words) { return vreinterpretq_u32_u8(vrev32q_u8(vreinterpretq_u8_u32(words))); }

// The weighed sum of words, a vector at a time, from word `first` of the block on.
class Weigher {
 public:
  explicit Weigher(const Weights& weights, size_t first = 0) : next_(weights.of.data() + first) {}

  inline void add(uint32x4_t words) {
    const int32x4_t weights = vld1q_s32(next_);
    const int32x4_t factors = vreinterpretq_s32_u32(words);
    next_ += kLanes;
    low_ = vmlal_s32(low_, vget_low_s32(factors), vget_low_s32(weights));
    high_ = vmlal_high_s32(high_, factors, weights);
  }

  inline uint64_t sum() const { return vaddvq_u64(vreinterpretq_u64_s64(vaddq_s64(low_, high_))); }

 private:
  const int32_t* next_;
  int64x2_t low_ = vdupq_n_s64(0);  // of the words in the lower half of a vector
  int64x2_t high_ = vdupq_n_s64(0);
};

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

// Returns the largest of the values in whole vectors, with their signs moved, and sets `done` to their number.
uint32_t largest_of(const float* values, size_t count, size_t* done) {
  uint32x4_t largest = vdupq_n_u32(0);
  for (; *done + kLanes <= count; *done += kLanes) {
    const uint32x4_t bits = vreinterpretq_u32_f32(vld1q_f32(values + *done));
    largest = vmaxq_u32(largest, vsraq_n_u32(vshlq_n_u32(bits, 1), bits, 31));
  }
  return vmaxvq_u32(largest);
}

template <typename Half>
uint32_t largest_of(const Half* values, size_t count, size_t* done) {
  uint16x8_t largest = vdupq_n_u16(0);
  for (; *done + 2 * kLanes <= count; *done += 2 * kLanes) {
    const uint16x8_t bits = vld1q_u16(&values[*done].bits);
    largest = vmaxq_u16(largest, vsraq_n_u16(vshlq_n_u16(bits, 1), bits, 15));
  }
  return vmaxvq_u16(largest);
}

template <typename Value>
uint32_t largest_magnitude(const Value* values, size_t count) {
  size_t done = 0;
  const uint32_t of_vectors = largest_of(values, count, &done);
  return std::max(of_vectors, portable::largest_magnitude(values, done, count));
}

template <typename Value>
uint64_t quantize(const Weights& weights, const Value* values, size_t count, Factors factors, uint8_t* words,
                  const uint8_t* /*next*/, bool /*alone*/) {
  Weigher weigher(weights);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const float32x4_t scaled = vmulq_n_f32(vmulq_n_f32(load_values(values + i), factors.first), factors.second);
    const uint32x4_t word = vreinterpretq_u32_s32(vcvtnq_s32_f32(scaled));
    weigher.add(word);
    store_words(words + 4 * i, swap(word));
  }
  return weigher.sum() + portable::quantize(weights, values, i, count, factors, words);
}

template <typename Value>
uint64_t dequantize(const Weights& weights, const uint8_t* words, size_t count, int shift, float divisor, Value* values,
                    bool /*alone*/) {
  const float factor = power_of_two(-shift);
  Weigher weigher(weights);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const uint32x4_t word = swap(load_words(words + 4 * i));
    weigher.add(word);
    store_values(values + i, scaled_words<Value>(vreinterpretq_s32_u32(word), factor, divisor));
  }
  return weigher.sum() + portable::dequantize(weights, words, i, count, shift, divisor, values);
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

uint64_t pack(const Weights& weights, const uint8_t* values, size_t count, uint8_t* words) {
  Weigher weigher(weights);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const uint32x4_t word = load_words(values + 4 * i);
    weigher.add(word);
    store_words(words + 4 * i, swap(word));
  }
  return weigher.sum() + portable::pack(weights, values, i, count, words);
}

uint64_t unpack(const Weights& weights, const uint8_t* words, size_t count, uint8_t* values) {
  Weigher weigher(weights);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const uint32x4_t word = swap(load_words(words + 4 * i));
    weigher.add(word);
    store_words(values + 4 * i, word);
  }
  return weigher.sum() + portable::unpack(weights, words, i, count, values);
}

uint64_t weigh(const Weights& weights, const uint8_t* words, size_t first, size_t count) {
  Weigher weigher(weights, first);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    weigher.add(swap(load_words(words + 4 * i)));
  }
  return weigher.sum() + portable::weigh(weights, words, first, i, count);
}

// Narrow lanes. Vectors of 8 integers of 16 bits ("halves"), in the order of the elements, stand between values and
// words.

constexpr size_t kHalves = 2 * kLanes;

// Do what kSignBits in kernel_functions.h describes.
template <int kBits>
inline uint32x4_t words_of(uint32x4_t lanes) {
  const uint32x4_t signs = vdupq_n_u32(kSignBits<kBits>);
  return vsubq_u32(veorq_u32(lanes, signs), signs);
}

template <int kBits>
inline uint32x4_t lanes_of(uint32x4_t words) {
  const uint32x4_t signs = vdupq_n_u32(kSignBits<kBits>);
  return veorq_u32(vaddq_u32(words, signs), signs);
}

// Writes as many words as fill whole vectors, and sets `done` to their elements. halves(i) returns the lanes of 8
// elements from i on.
template <int kBits, typename Halves>
inline uint64_t write_lanes(const Weights& weights, size_t count, uint8_t* words, size_t* done, const Halves& halves) {
  constexpr size_t kElements = kLanes * kWordBits / kBits;
  Weigher weigher(weights);
  size_t place = 0;
  size_t i = 0;
  for (; i + kElements <= count; i += kElements, place += kLanes) {
    const int16x8_t first = halves(i);
    uint32x4_t lanes = vreinterpretq_u32_s16(first);
    if constexpr (kBits == 8) {
      lanes = vreinterpretq_u32_s8(vcombine_s8(vmovn_s16(first), vmovn_s16(halves(i + kHalves))));
    }
    const uint32x4_t word = words_of<kBits>(lanes);
    weigher.add(word);
    store_words(words + 4 * place, swap(word));
  }
  *done = i;
  return weigher.sum();
}

// Reads as many words as fill whole vectors, and sets `done` to their elements. Calls set(i, halves) for each 8
// elements.
template <int kBits, typename Set>
inline uint64_t read_lanes(const Weights& weights, const uint8_t* words, size_t count, size_t* done, const Set& set) {
  constexpr size_t kElements = kLanes * kWordBits / kBits;
  Weigher weigher(weights);
  size_t place = 0;
  size_t i = 0;
  for (; i + kElements <= count; i += kElements, place += kLanes) {
    const uint32x4_t word = swap(load_words(words + 4 * place));
    weigher.add(word);
    const uint32x4_t lanes = lanes_of<kBits>(word);
    if constexpr (kBits == 16) {
      set(i, vreinterpretq_s16_u32(lanes));
    } else {
      const int8x16_t bytes = vreinterpretq_s8_u32(lanes);
      set(i, vmovl_s8(vget_low_s8(bytes)));
      set(i + kHalves, vmovl_s8(vget_high_s8(bytes)));
    }
  }
  *done = i;
  return weigher.sum();
}

// The definition is in lanes.h.
void write_thresholds(const Rounding& rounding, size_t count, uint16_t* thresholds) {
  constexpr std::array<uint32_t, kLanes> kPlace = {0, 1, 2, 3};
  const uint32x4_t key = vdupq_n_u32(rounding.second_key);
  uint32x4_t state = vmlaq_n_u32(vdupq_n_u32(rounding.first_key), vld1q_u32(kPlace.data()), Rounding::kStep);
  for (size_t i = 0; i < count; i += 8 * kHalves) {
    for (size_t part = 0; part < 4 * kHalves; part += kHalves) {
      uint32x4_t bits = veorq_u32(veorq_u32(state, vshrq_n_u32(state, 15)), key);
      bits = vmulq_n_u32(bits, Rounding::kFactor);
      bits = veorq_u32(bits, vshrq_n_u32(bits, 16));
      const uint32x4_t rotated = vorrq_u32(vshlq_n_u32(bits, 8), vshrq_n_u32(bits, 24));
      vst1q_u16(thresholds + i + part, vreinterpretq_u16_u32(bits));
      vst1q_u16(thresholds + i + part + 4 * kHalves, vreinterpretq_u16_u32(rotated));
      state = vaddq_u32(state, vdupq_n_u32(static_cast<uint32_t>(kLanes * Rounding::kStep)));
    }
  }
}

// Returns values * first * second, rounded to the nearest integers.
template <typename Value>
inline int32x4_t rounded(const Value* values, const LaneScale& scale) {
  return vcvtnq_s32_f32(vmulq_n_f32(vmulq_n_f32(load_values(values), scale.first), scale.second));
}

template <int kBits, bool kStochastic, typename Value>
uint64_t quantize_lanes_to(const Weights& weights, const Value* values, size_t count, const LaneScale& scale,
                           const uint16_t* thresholds, uint8_t* words) {
  size_t done = 0;
  const uint64_t sum = write_lanes<kBits>(weights, count, words, &done, [&](size_t i) {
    uint32x4_t first = vreinterpretq_u32_s32(rounded(values + i, scale));
    uint32x4_t second = vreinterpretq_u32_s32(rounded(values + i + kLanes, scale));
    if constexpr (kStochastic) {
      const uint16x8_t added = vld1q_u16(thresholds + i);
      first = vaddw_u16(first, vget_low_u16(added));
      second = vaddw_u16(second, vget_high_u16(added));
      return vuzp2q_s16(vreinterpretq_s16_u32(first), vreinterpretq_s16_u32(second));
    } else {
      return vuzp1q_s16(vreinterpretq_s16_u32(first), vreinterpretq_s16_u32(second));
    }
  });
  return sum + portable::quantize_lanes(weights, values, done, count, kBits, scale, thresholds, words);
}

template <typename Value>
uint64_t quantize_lanes(const Weights& weights, const Value* values, size_t count, int lane_bits,
                        const LaneScale& scale, const Rounding& rounding, uint8_t* words, const uint8_t* /*next*/) {
  Thresholds thresholds;
  if (rounding.stochastic) {
    write_thresholds(rounding, count, thresholds.of.data());
  }
  return with_lane_bits(lane_bits, [&](auto bits) {
    return with_flag(rounding.stochastic, [&](auto stochastic) {
      return quantize_lanes_to<bits(), stochastic()>(weights, values, count, scale,
                                                     stochastic() ? thresholds.of.data() : nullptr, words);
    });
  });
}

template <int kBits, typename Value>
uint64_t dequantize_lanes_from(const Weights& weights, const uint8_t* words, size_t count, const LaneUnit& unit,
                               Value* values) {
  size_t done = 0;
  const uint64_t sum = read_lanes<kBits>(weights, words, count, &done, [&](size_t i, int16x8_t halves) {
    const float32x4_t first = vcvtq_f32_s32(vmovl_s16(vget_low_s16(halves)));
    const float32x4_t second = vcvtq_f32_s32(vmovl_s16(vget_high_s16(halves)));
    store_values(values + i, vmulq_n_f32(vmulq_n_f32(first, unit.first), unit.second));
    store_values(values + i + kLanes, vmulq_n_f32(vmulq_n_f32(second, unit.first), unit.second));
  });
  return sum + portable::dequantize_lanes(weights, words, done, count, kBits, unit, values);
}

template <typename Value>
uint64_t dequantize_lanes(const Weights& weights, const uint8_t* words, size_t count, int lane_bits,
                          const LaneUnit& unit, Value* values) {
  return with_lane_bits(lane_bits,
                        [&](auto bits) { return dequantize_lanes_from<bits()>(weights, words, count, unit, values); });
}

// Integers that fit 16 bits.
inline int16x8_t load_halves(const int32_t* from) {
  return vcombine_s16(vmovn_s32(vld1q_s32(from)), vmovn_s32(vld1q_s32(from + kLanes)));
}

inline int16x8_t load_halves(const int16_t* from) { return vld1q_s16(from); }

inline int16x8_t load_halves(const int8_t* from) { return vmovl_s8(vld1_s8(from)); }

inline int16x8_t load_halves(const uint8_t* from) { return vreinterpretq_s16_u16(vmovl_u8(vld1_u8(from))); }

inline int16x8_t load_halves(const Boolean* from) { return vminq_s16(load_halves(&from->byte), vdupq_n_s16(1)); }

inline void store_halves(int32_t* to, int16x8_t halves) {
  vst1q_s32(to, vmovl_s16(vget_low_s16(halves)));
  vst1q_s32(to + kLanes, vmovl_s16(vget_high_s16(halves)));
}

inline void store_halves(int16_t* to, int16x8_t halves) { vst1q_s16(to, halves); }

inline void store_halves(int8_t* to, int16x8_t halves) { vst1_s8(to, vmovn_s16(halves)); }

inline void store_halves(uint8_t* to, int16x8_t halves) { vst1_u8(to, vmovn_u16(vreinterpretq_u16_s16(halves))); }

inline void store_halves(Boolean* to, int16x8_t halves) {
  vst1_u8(&to->byte, vmovn_u16(vbicq_u16(vdupq_n_u16(1), vceqzq_s16(halves))));
}

template <int kBits, typename Integer>
uint64_t pack_lanes_to(const Weights& weights, const Integer* values, size_t count, uint8_t* words) {
  size_t done = 0;
  const uint64_t sum =
      write_lanes<kBits>(weights, count, words, &done, [&](size_t i) { return load_halves(values + i); });
  return sum + portable::pack_lanes(weights, values, done, count, kBits, words);
}

template <typename Integer>
uint64_t pack_integers(const Weights& weights, const Integer* values, size_t count, int lane_bits, uint8_t* words) {
  if (lane_bits == kWordBits) {
    return portable::pack_lanes(weights, values, 0, count, lane_bits, words);
  }
  return with_lane_bits(lane_bits, [&](auto bits) { return pack_lanes_to<bits()>(weights, values, count, words); });
}

template <int kBits, typename Integer>
uint64_t unpack_lanes_from(const Weights& weights, const uint8_t* words, size_t count, Integer* values) {
  size_t done = 0;
  const uint64_t sum = read_lanes<kBits>(weights, words, count, &done,
                                         [&](size_t i, int16x8_t halves) { store_halves(values + i, halves); });
  return sum + portable::unpack_lanes(weights, words, done, count, kBits, values);
}

template <typename Integer>
uint64_t unpack_integers(const Weights& weights, const uint8_t* words, size_t count, int lane_bits, Integer* values) {
  if (lane_bits == kWordBits) {
    return portable::unpack_lanes(weights, words, 0, count, lane_bits, values);
  }
  return with_lane_bits(lane_bits, [&](auto bits) { return unpack_lanes_from<bits()>(weights, words, count, values); });
}

template <typename Integer>
bool integers_within(const Integer* values, size_t count, int32_t bound) {
  return portable::all_within(values, count, bound);
}

// Codes.

// Does what natural8_number() does for 4 values.
inline uint16x4_t natural8_numbers(float32x4_t values, uint16x4_t thresholds) {
  const float32x4_t magnitudes = vabsq_f32(values);
  const float32x4_t plus_one = vaddq_f32(magnitudes, vdupq_n_f32(1.0F));
  const uint32x4_t bits = vreinterpretq_u32_f32(vmaxq_f32(plus_one, vaddq_f32(magnitudes, magnitudes)));
  const uint32x4_t added = vaddq_u32(vshll_n_u16(thresholds, kThresholdBit), vdupq_n_u32(kNatural8Offset));
  return vmovn_u32(vandq_u32(vshrq_n_u32(vaddq_u32(bits, added), kFractionBits), vdupq_n_u32(kNumberMask)));
}

// Returns the signs of 4 values in the places that they have in codes.
inline uint16x4_t code_signs_of(float32x4_t values) {
  return vand_u16(vshr_n_u16(vshrn_n_u32(vreinterpretq_u32_f32(values), 16), 8), vdup_n_u16(wire::kCodeSign));
}

template <typename Value>
void write_natural8(const Value* values, size_t count, const Factors& factors, const Rounding& rounding,
                    uint8_t* codes) {
  Thresholds thresholds;
  write_thresholds(rounding, count, thresholds.of.data());
  const auto codes_from = [&](size_t i) {
    const float32x4_t value = vmulq_n_f32(vmulq_n_f32(load_values(values + i), factors.first), factors.second);
    return vorr_u16(natural8_numbers(value, vld1_u16(&thresholds.of[i])), code_signs_of(value));
  };
  size_t i = 0;
  for (; i + kHalves <= count; i += kHalves) {
    vst1_u8(codes + i, vmovn_u16(vcombine_u16(codes_from(i), codes_from(i + kLanes))));
  }
  portable::write_natural8(values + i, count - i, factors, &thresholds.of[i], codes + i);
}

}  // namespace

const Functions kNeon = {
    {largest_magnitude<float>, quantize<float>, dequantize<float>, nullptr, nullptr},
    {largest_magnitude<Float16>, quantize<Float16>, dequantize<Float16>, widen<Float16>, narrow<Float16>},
    {largest_magnitude<BFloat16>, quantize<BFloat16>, dequantize<BFloat16>, widen<BFloat16>, narrow<BFloat16>},
    pack,
    unpack,
    weigh,
};

const LaneFunctions kNeonLanes = {
    {quantize_lanes<float>, dequantize_lanes<float>},
    {quantize_lanes<Float16>, dequantize_lanes<Float16>},
    {quantize_lanes<BFloat16>, dequantize_lanes<BFloat16>},
    {pack_integers<Boolean>, unpack_integers<Boolean>, integers_within<Boolean>},
    {pack_integers<int8_t>, unpack_integers<int8_t>, integers_within<int8_t>},
    {pack_integers<uint8_t>, unpack_integers<uint8_t>, integers_within<uint8_t>},
    {pack_integers<int16_t>, unpack_integers<int16_t>, integers_within<int16_t>},
    {pack_integers<int32_t>, unpack_integers<int32_t>, integers_within<int32_t>},
};

// NEON cannot look up in large tables.
const CodeFunctions kNeonCodes = {
    {write_natural8<float>, portable::write_dynamic8<float>},
    {write_natural8<Float16>, portable::write_dynamic8<Float16>},
    {write_natural8<BFloat16>, portable::write_dynamic8<BFloat16>},
    portable::expand_codes,
};

}  // namespace switchml::kernels

#endif
