// The arithmetic with NEON, on 64-bit ARM: four values at a time.
#if defined(__aarch64__)

#include <arm_neon.h>

#include "switchml/native/kernel_functions.h"

namespace switchml::kernels {

namespace {

constexpr size_t kLanes = 4;

inline uint32x4_t load_words(const uint8_t* from) { return vreinterpretq_u32_u8(vld1q_u8(from)); }

inline void store_words(uint8_t* to, uint32x4_t words) { vst1q_u8(to, vreinterpretq_u8_u32(words)); }

inline uint32x4_t swap(uint32x4_t words) { return vreinterpretq_u32_u8(vrev32q_u8(vreinterpretq_u8_u32(words))); }

inline uint32x4_t add_weighed(uint32x4_t sum, uint32x4_t words, size_t first) {
  return vmlaq_u32(sum, words, vld1q_u32(&kWeights.of[first]));
}

uint16_t block_exponent(const float* values, size_t count) {
  uint32x4_t largest = vdupq_n_u32(0);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    largest = vmaxq_u32(largest, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(values + i))));
  }
  const auto of_vectors = static_cast<uint16_t>(vmaxvq_u32(largest) >> 23);
  const uint16_t of_rest = portable::block_exponent(values, i, count);
  return of_vectors > of_rest ? of_vectors : of_rest;
}

uint32_t quantize(const float* values, size_t count, Factors factors, uint8_t* words, bool /*streaming*/,
                  const uint8_t* /*next*/) {
  uint32x4_t sum = vdupq_n_u32(0);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const float32x4_t scaled = vmulq_n_f32(vmulq_n_f32(vld1q_f32(values + i), factors.first), factors.second);
    const uint32x4_t word = vreinterpretq_u32_s32(vcvtnq_s32_f32(scaled));
    sum = add_weighed(sum, word, i);
    store_words(words + 4 * i, swap(word));
  }
  return vaddvq_u32(sum) + portable::quantize(values, i, count, factors, words);
}

uint32_t dequantize(const uint8_t* words, size_t count, int shift, float divisor, float* values) {
  const float factor = power_of_two(-shift);
  const float32x4_t parts = vdupq_n_f32(divisor);
  const bool divides = divisor != 1.0F;
  uint32x4_t sum = vdupq_n_u32(0);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const uint32x4_t word = swap(load_words(words + 4 * i));
    sum = add_weighed(sum, word, i);
    float32x4_t value = vmulq_n_f32(vcvtq_f32_s32(vreinterpretq_s32_u32(word)), factor);
    if (divides) {
      value = vdivq_f32(value, parts);
    }
    vst1q_f32(values + i, value);
  }
  return vaddvq_u32(sum) + portable::dequantize(words, i, count, shift, divisor, values);
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

const Functions kNeon = {block_exponent, quantize, dequantize, pack, unpack, weigh};

}  // namespace switchml::kernels

#endif
