// The arithmetic with AVX-512 (F, BW, DQ): sixteen values at a time.
#if defined(__x86_64__)

#include <immintrin.h>

#include "switchml/native/kernel_functions.h"

namespace switchml::kernels {

namespace {

// NOLINTBEGIN(portability-simd-intrinsics)
#define SWITCHML_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,prfchw")))

// How many bytes before its use a cache line is fetched. The processor sees by itself where reading goes on, but not
// across a page, and not that a line will be written which another core has.
constexpr size_t kAhead = 2048;
constexpr size_t kLanes = 16;

SWITCHML_AVX512 inline __m512i swap(__m512i words) {
  const __m512i order = _mm512_broadcast_i32x4(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
  return _mm512_shuffle_epi8(words, order);
}

template <bool kStreaming>
SWITCHML_AVX512 inline void store(uint8_t* to, __m512i words) {
  if (kStreaming) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), words);
  } else {
    _mm512_storeu_si512(to, words);
  }
}

// The compiler's own reduction adds signed integers, which must not wrap.
SWITCHML_AVX512 inline uint32_t sum_of(__m512i lanes) {
  std::array<uint32_t, kLanes> of;
  _mm512_storeu_si512(of.data(), lanes);
  uint32_t sum = 0;
  for (const uint32_t lane : of) {
    sum += lane;
  }
  return sum;
}

SWITCHML_AVX512 inline __m512i weighed(__m512i words, size_t first) {
  return _mm512_mullo_epi32(words, _mm512_loadu_si512(&kWeights.of[first]));
}

SWITCHML_AVX512 uint16_t block_exponent(const float* values, size_t count) {
  __m512i largest = _mm512_setzero_si512();
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    _mm_prefetch(reinterpret_cast<const uint8_t*>(values + i) + kAhead, _MM_HINT_T0);
    largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_loadu_si512(values + i), magnitude));
  }
  const auto of_vectors = static_cast<uint16_t>(_mm512_reduce_max_epu32(largest) >> 23);
  const uint16_t of_rest = portable::block_exponent(values, i, count);
  return of_vectors > of_rest ? of_vectors : of_rest;
}

template <bool kStreaming>
SWITCHML_AVX512 uint32_t quantize_to(const float* values, size_t count, Factors factors, uint8_t* words,
                                     const uint8_t* next) {
  const __m512 first = _mm512_set1_ps(factors.first);
  const __m512 second = _mm512_set1_ps(factors.second);
  __m512i sum = _mm512_setzero_si512();
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    _mm_prefetch(next + 4 * i, _MM_HINT_T1);
    __builtin_prefetch(words + 4 * i + kAhead, 1);
    const __m512 scaled = _mm512_mul_ps(_mm512_mul_ps(_mm512_loadu_ps(values + i), first), second);
    const __m512i word = _mm512_cvt_roundps_epi32(scaled, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    sum = _mm512_add_epi32(sum, weighed(word, i));
    store<kStreaming>(words + 4 * i, swap(word));
  }
  return sum_of(sum) + portable::quantize(values, i, count, factors, words);
}

uint32_t quantize(const float* values, size_t count, Factors factors, uint8_t* words, bool streaming,
                  const uint8_t* next) {
  return streaming ? quantize_to<true>(values, count, factors, words, next)
                   : quantize_to<false>(values, count, factors, words, next);
}

SWITCHML_AVX512 uint32_t dequantize(const uint8_t* words, size_t count, int shift, float divisor, float* values) {
  const __m512 factor = _mm512_set1_ps(power_of_two(-shift));
  const __m512 parts = _mm512_set1_ps(divisor);
  const bool divides = divisor != 1.0F;
  __m512i sum = _mm512_setzero_si512();
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    _mm_prefetch(words + 4 * i + kAhead, _MM_HINT_T0);
    __builtin_prefetch(reinterpret_cast<const uint8_t*>(values + i) + kAhead, 1);
    const __m512i word = swap(_mm512_loadu_si512(words + 4 * i));
    sum = _mm512_add_epi32(sum, weighed(word, i));
    __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(word), factor);
    if (divides) {
      value = _mm512_div_ps(value, parts);
    }
    _mm512_storeu_ps(values + i, value);
  }
  return sum_of(sum) + portable::dequantize(words, i, count, shift, divisor, values);
}

template <bool kStreaming>
SWITCHML_AVX512 uint32_t pack_to(const uint8_t* values, size_t count, uint8_t* words) {
  __m512i sum = _mm512_setzero_si512();
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m512i word = _mm512_loadu_si512(values + 4 * i);
    sum = _mm512_add_epi32(sum, weighed(word, i));
    store<kStreaming>(words + 4 * i, swap(word));
  }
  return sum_of(sum) + portable::pack(values, i, count, words);
}

uint32_t pack(const uint8_t* values, size_t count, uint8_t* words, bool streaming) {
  return streaming ? pack_to<true>(values, count, words) : pack_to<false>(values, count, words);
}

SWITCHML_AVX512 uint32_t unpack(const uint8_t* words, size_t count, uint8_t* values) {
  __m512i sum = _mm512_setzero_si512();
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m512i word = swap(_mm512_loadu_si512(words + 4 * i));
    sum = _mm512_add_epi32(sum, weighed(word, i));
    _mm512_storeu_si512(values + 4 * i, word);
  }
  return sum_of(sum) + portable::unpack(words, i, count, values);
}

SWITCHML_AVX512 uint32_t weigh(const uint8_t* words, size_t first, size_t count) {
  __m512i sum = _mm512_setzero_si512();
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    sum = _mm512_add_epi32(sum, weighed(swap(_mm512_loadu_si512(words + 4 * i)), first + i));
  }
  return sum_of(sum) + portable::weigh(words, first, i, count);
}
// NOLINTEND(portability-simd-intrinsics)

}  // namespace

const Functions kAvx512 = {block_exponent, quantize, dequantize, pack, unpack, weigh};

}  // namespace switchml::kernels

#endif
