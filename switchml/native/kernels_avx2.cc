// The arithmetic with AVX2: eight values at a time.
#if defined(__x86_64__)

#include <immintrin.h>

#include "switchml/native/kernel_functions.h"

namespace switchml::kernels {

namespace {

// NOLINTBEGIN(portability-simd-intrinsics)
#define SWITCHML_AVX2 __attribute__((target("avx2,fma")))

constexpr size_t kLanes = 8;

SWITCHML_AVX2 inline __m256i load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }

SWITCHML_AVX2 inline __m256i swap(__m256i words) {
  const __m256i order = _mm256_broadcastsi128_si256(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
  return _mm256_shuffle_epi8(words, order);
}

template <bool kStreaming>
SWITCHML_AVX2 inline void store(uint8_t* to, __m256i words) {
  if (kStreaming) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), words);
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), words);
  }
}

SWITCHML_AVX2 inline std::array<uint32_t, kLanes> lanes_of(__m256i vector) {
  std::array<uint32_t, kLanes> of;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(of.data()), vector);
  return of;
}

SWITCHML_AVX2 inline uint32_t sum_of(__m256i vector) {
  uint32_t sum = 0;
  for (const uint32_t lane : lanes_of(vector)) {
    sum += lane;
  }
  return sum;
}

SWITCHML_AVX2 inline __m256i weighed(__m256i words, size_t first) {
  return _mm256_mullo_epi32(words, load(&kWeights.of[first]));
}

SWITCHML_AVX2 uint16_t block_exponent(const float* values, size_t count) {
  __m256i largest = _mm256_setzero_si256();
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    largest = _mm256_max_epu32(largest, _mm256_and_si256(load(values + i), magnitude));
  }
  uint16_t result = portable::block_exponent(values, i, count);
  for (const uint32_t lane : lanes_of(largest)) {
    const auto exponent = static_cast<uint16_t>(lane >> 23);
    result = exponent > result ? exponent : result;
  }
  return result;
}

template <bool kStreaming>
SWITCHML_AVX2 uint32_t quantize_to(const float* values, size_t count, Factors factors, uint8_t* words) {
  const __m256 first = _mm256_set1_ps(factors.first);
  const __m256 second = _mm256_set1_ps(factors.second);
  __m256i sum = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256 scaled = _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(values + i), first), second);
    const __m256i word = _mm256_cvtps_epi32(scaled);
    sum = _mm256_add_epi32(sum, weighed(word, i));
    store<kStreaming>(words + 4 * i, swap(word));
  }
  return sum_of(sum) + portable::quantize(values, i, count, factors, words);
}

uint32_t quantize(const float* values, size_t count, Factors factors, uint8_t* words, bool streaming,
                  const uint8_t* /*next*/) {
  return streaming ? quantize_to<true>(values, count, factors, words)
                   : quantize_to<false>(values, count, factors, words);
}

SWITCHML_AVX2 uint32_t dequantize(const uint8_t* words, size_t count, int shift, float divisor, float* values) {
  const __m256 factor = _mm256_set1_ps(power_of_two(-shift));
  const __m256 parts = _mm256_set1_ps(divisor);
  const bool divides = divisor != 1.0F;
  __m256i sum = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256i word = swap(load(words + 4 * i));
    sum = _mm256_add_epi32(sum, weighed(word, i));
    __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(word), factor);
    if (divides) {
      value = _mm256_div_ps(value, parts);
    }
    _mm256_storeu_ps(values + i, value);
  }
  return sum_of(sum) + portable::dequantize(words, i, count, shift, divisor, values);
}

template <bool kStreaming>
SWITCHML_AVX2 uint32_t pack_to(const uint8_t* values, size_t count, uint8_t* words) {
  __m256i sum = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256i word = load(values + 4 * i);
    sum = _mm256_add_epi32(sum, weighed(word, i));
    store<kStreaming>(words + 4 * i, swap(word));
  }
  return sum_of(sum) + portable::pack(values, i, count, words);
}

uint32_t pack(const uint8_t* values, size_t count, uint8_t* words, bool streaming) {
  return streaming ? pack_to<true>(values, count, words) : pack_to<false>(values, count, words);
}

SWITCHML_AVX2 uint32_t unpack(const uint8_t* words, size_t count, uint8_t* values) {
  __m256i sum = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256i word = swap(load(words + 4 * i));
    sum = _mm256_add_epi32(sum, weighed(word, i));
    store<false>(values + 4 * i, word);
  }
  return sum_of(sum) + portable::unpack(words, i, count, values);
}

SWITCHML_AVX2 uint32_t weigh(const uint8_t* words, size_t first, size_t count) {
  __m256i sum = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    sum = _mm256_add_epi32(sum, weighed(swap(load(words + 4 * i)), first + i));
  }
  return sum_of(sum) + portable::weigh(words, first, i, count);
}
// NOLINTEND(portability-simd-intrinsics)

}  // namespace

const Functions kAvx2 = {block_exponent, quantize, dequantize, pack, unpack, weigh};

}  // namespace switchml::kernels

#endif
