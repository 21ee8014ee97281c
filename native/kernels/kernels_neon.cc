// The arithmetic with NEON, on 64-bit ARM: four values at a time.
#if defined(__aarch64__)

#include <arm_neon.h>

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

}  // namespace

const Functions kNeon = {
    {block_exponent<float>, quantize<float>, dequantize<float>, nullptr, nullptr},
    {block_exponent<Float16>, quantize<Float16>, dequantize<Float16>, widen<Float16>, narrow<Float16>},
    {block_exponent<BFloat16>, quantize<BFloat16>, dequantize<BFloat16>, widen<BFloat16>, narrow<BFloat16>},
    pack,
    unpack,
    weigh,
};

}  // namespace switchml::kernels

#endif
