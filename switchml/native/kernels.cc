#include "switchml/native/kernels.h"

#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "dataplane/native/constants.h"
#include "dataplane/native/wire.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace switchml::kernels {

namespace {

// Odd weights of the linear check (constants.toml). A little longer than a block, so that vectors may read past its
// end.
struct Weights {
  alignas(64) std::array<uint32_t, protocol::max_values + 16> of;
  Weights() {
    for (uint32_t i = 0; i < of.size(); ++i) {
      of[i] = ((i + 1) * check::weight_multiplier) | 1;
    }
  }
};
const Weights kWeights;

Instructions detect() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
    return Instructions::avx512;
  }
  if (__builtin_cpu_supports("avx2")) {
    return Instructions::avx2;
  }
#endif
  return Instructions::portable;
}

Instructions instructions_in_use = detect();

constexpr int kLargestFactor = 126;  // 2^126 and 2^-126 are normal float32 numbers

float power_of_two(int exponent) { return std::ldexp(1.0F, exponent); }

// A factor 2^shift as two factors that are normal numbers each. Multiplying by the first loses no bit that matters:
// either it enlarges, exactly, or the result rounds to zero as an integer anyway.
struct Factors {
  float first;
  float second;
  explicit Factors(int shift) {
    const int part = shift > kLargestFactor ? kLargestFactor : (shift < -kLargestFactor ? -kLargestFactor : shift);
    first = power_of_two(part);
    second = power_of_two(shift - part);
  }
};

// ---- portable: the meaning, and what is left over at the end of a block ----

uint16_t block_exponent_portable(const float* values, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i, sizeof bits);
    bits &= 0x7FFFFFFF;
    largest = bits > largest ? bits : largest;
  }
  return static_cast<uint16_t>(largest >> 23);
}

int32_t round_to_integer(float value) {
  // Out of range is the caller's fault, but must not be undefined behaviour.
  return value >= 2147483648.0F || value < -2147483648.0F || std::isnan(value)
             ? INT32_MIN
             : static_cast<int32_t>(std::nearbyint(value));
}

uint32_t quantize_portable(const float* values, size_t first, size_t count, Factors factors, uint8_t* words) {
  uint32_t sum = 0;
  for (size_t i = first; i < count; ++i) {
    const auto word = static_cast<uint32_t>(round_to_integer(values[i] * factors.first * factors.second));
    sum += kWeights.of[i] * word;
    wire::store32(words + 4 * i, word);
  }
  return sum;
}

uint32_t dequantize_portable(const uint8_t* words, size_t first, size_t count, double factor, float divisor,
                             float* values) {
  uint32_t sum = 0;
  for (size_t i = first; i < count; ++i) {
    const uint32_t word = wire::load32(words + 4 * i);
    sum += kWeights.of[i] * word;
    // In double, an integer times a power of two is exact, so that float32 rounds once, among subnormals too.
    values[i] = static_cast<float>(static_cast<double>(static_cast<int32_t>(word)) * factor) / divisor;
  }
  return sum;
}

uint32_t pack_portable(const uint8_t* values, size_t first, size_t count, uint8_t* words) {
  uint32_t sum = 0;
  for (size_t i = first; i < count; ++i) {
    uint32_t value;
    std::memcpy(&value, values + 4 * i, sizeof value);
    sum += kWeights.of[i] * value;
    wire::store32(words + 4 * i, value);
  }
  return sum;
}

uint32_t unpack_portable(const uint8_t* words, size_t first, size_t count, uint8_t* values) {
  uint32_t sum = 0;
  for (size_t i = first; i < count; ++i) {
    const uint32_t value = wire::load32(words + 4 * i);
    sum += kWeights.of[i] * value;
    std::memcpy(values + 4 * i, &value, sizeof value);
  }
  return sum;
}

#if defined(__x86_64__)

// ---- x86: each handles the whole vectors of a block and says how many values those were ----

// NOLINTBEGIN(portability-simd-intrinsics)
#define SWITCHML_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,prfchw")))
#define SWITCHML_AVX2 __attribute__((target("avx2,fma,prfchw")))

SWITCHML_AVX512 inline __m512i swap_512(__m512i words) {
  const __m512i order = _mm512_broadcast_i32x4(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
  return _mm512_shuffle_epi8(words, order);
}

SWITCHML_AVX2 inline __m256i swap_256(__m256i words) {
  const __m256i order = _mm256_broadcastsi128_si256(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
  return _mm256_shuffle_epi8(words, order);
}

template <bool kStreaming>
SWITCHML_AVX512 inline void store_512(uint8_t* to, __m512i words) {
  if (kStreaming) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), words);
  } else {
    _mm512_storeu_si512(to, words);
  }
}

template <bool kStreaming>
SWITCHML_AVX2 inline void store_256(uint8_t* to, __m256i words) {
  if (kStreaming) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), words);
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), words);
  }
}

// How many bytes before its use a cache line is fetched. The processor sees by itself where reading goes on, but not
// across a page, and not that a line will be written which another core has.
constexpr size_t kAhead = 2048;

// The compiler's own reduction adds signed integers, which must not wrap.
SWITCHML_AVX512 inline uint32_t sum_512(__m512i lanes) {
  std::array<uint32_t, 16> of;
  _mm512_storeu_si512(of.data(), lanes);
  uint32_t sum = 0;
  for (const uint32_t lane : of) {
    sum += lane;
  }
  return sum;
}

SWITCHML_AVX2 inline uint32_t sum_256(__m256i lanes) {
  std::array<uint32_t, 8> of;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(of.data()), lanes);
  uint32_t sum = 0;
  for (const uint32_t lane : of) {
    sum += lane;
  }
  return sum;
}

SWITCHML_AVX512 uint32_t block_exponent_512(const float* values, size_t vectors) {
  __m512i largest = _mm512_setzero_si512();
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  for (size_t i = 0; i < vectors; ++i) {
    _mm_prefetch(reinterpret_cast<const uint8_t*>(values) + 64 * i + kAhead, _MM_HINT_T0);
    largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_loadu_si512(values + 16 * i), magnitude));
  }
  return _mm512_reduce_max_epu32(largest);
}

SWITCHML_AVX2 uint32_t block_exponent_256(const float* values, size_t vectors) {
  __m256i largest = _mm256_setzero_si256();
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  for (size_t i = 0; i < vectors; ++i) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + 8 * i));
    largest = _mm256_max_epu32(largest, _mm256_and_si256(bits, magnitude));
  }
  std::array<uint32_t, 8> of;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(of.data()), largest);
  uint32_t result = 0;
  for (const uint32_t lane : of) {
    result = lane > result ? lane : result;
  }
  return result;
}

template <bool kStreaming>
SWITCHML_AVX512 uint32_t quantize_512(const float* values, size_t vectors, Factors factors, uint8_t* words,
                                      const uint8_t* next) {
  const __m512 first = _mm512_set1_ps(factors.first);
  const __m512 second = _mm512_set1_ps(factors.second);
  __m512i sum = _mm512_setzero_si512();
  for (size_t i = 0; i < vectors; ++i) {
    _mm_prefetch(next + 64 * i, _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const uint8_t*>(values) + 64 * i + kAhead, _MM_HINT_T0);
    __builtin_prefetch(words + 64 * i + kAhead, 1);
    const __m512 scaled = _mm512_mul_ps(_mm512_mul_ps(_mm512_loadu_ps(values + 16 * i), first), second);
    const __m512i word = _mm512_cvt_roundps_epi32(scaled, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(word, _mm512_load_si512(&kWeights.of[16 * i])));
    store_512<kStreaming>(words + 64 * i, swap_512(word));
  }
  return sum_512(sum);
}

template <bool kStreaming>
SWITCHML_AVX2 uint32_t quantize_256(const float* values, size_t vectors, Factors factors, uint8_t* words) {
  const __m256 first = _mm256_set1_ps(factors.first);
  const __m256 second = _mm256_set1_ps(factors.second);
  __m256i sum = _mm256_setzero_si256();
  for (size_t i = 0; i < vectors; ++i) {
    const __m256 scaled = _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(values + 8 * i), first), second);
    const __m256i word = _mm256_cvtps_epi32(scaled);
    const __m256i weight = _mm256_load_si256(reinterpret_cast<const __m256i*>(&kWeights.of[8 * i]));
    sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(word, weight));
    store_256<kStreaming>(words + 32 * i, swap_256(word));
  }
  return sum_256(sum);
}

SWITCHML_AVX512 uint32_t dequantize_512(const uint8_t* words, size_t vectors, float factor, float divisor,
                                        float* values) {
  const __m512 by = _mm512_set1_ps(factor);
  const __m512 parts = _mm512_set1_ps(divisor);
  const bool divides = divisor != 1.0F;
  __m512i sum = _mm512_setzero_si512();
  for (size_t i = 0; i < vectors; ++i) {
    _mm_prefetch(words + 64 * i + kAhead, _MM_HINT_T0);
    __builtin_prefetch(reinterpret_cast<const uint8_t*>(values) + 64 * i + kAhead, 1);
    const __m512i word = swap_512(_mm512_loadu_si512(words + 64 * i));
    sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(word, _mm512_load_si512(&kWeights.of[16 * i])));
    __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(word), by);
    if (divides) {
      value = _mm512_div_ps(value, parts);
    }
    _mm512_storeu_ps(values + 16 * i, value);
  }
  return sum_512(sum);
}

SWITCHML_AVX2 uint32_t dequantize_256(const uint8_t* words, size_t vectors, float factor, float divisor,
                                      float* values) {
  const __m256 by = _mm256_set1_ps(factor);
  const __m256 parts = _mm256_set1_ps(divisor);
  const bool divides = divisor != 1.0F;
  __m256i sum = _mm256_setzero_si256();
  for (size_t i = 0; i < vectors; ++i) {
    const __m256i word = swap_256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + 32 * i)));
    const __m256i weight = _mm256_load_si256(reinterpret_cast<const __m256i*>(&kWeights.of[8 * i]));
    sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(word, weight));
    __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(word), by);
    if (divides) {
      value = _mm256_div_ps(value, parts);
    }
    _mm256_storeu_ps(values + 8 * i, value);
  }
  return sum_256(sum);
}

template <bool kStreaming>
SWITCHML_AVX512 uint32_t swap_words_512(const uint8_t* from, size_t vectors, bool to_wire, uint8_t* to) {
  __m512i sum = _mm512_setzero_si512();
  for (size_t i = 0; i < vectors; ++i) {
    const __m512i before = _mm512_loadu_si512(from + 64 * i);
    const __m512i after = swap_512(before);
    const __m512i native = to_wire ? before : after;
    sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(native, _mm512_load_si512(&kWeights.of[16 * i])));
    store_512<kStreaming>(to + 64 * i, after);
  }
  return sum_512(sum);
}

template <bool kStreaming>
SWITCHML_AVX2 uint32_t swap_words_256(const uint8_t* from, size_t vectors, bool to_wire, uint8_t* to) {
  __m256i sum = _mm256_setzero_si256();
  for (size_t i = 0; i < vectors; ++i) {
    const __m256i before = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32 * i));
    const __m256i after = swap_256(before);
    const __m256i weight = _mm256_load_si256(reinterpret_cast<const __m256i*>(&kWeights.of[8 * i]));
    sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(to_wire ? before : after, weight));
    store_256<kStreaming>(to + 32 * i, after);
  }
  return sum_256(sum);
}
// NOLINTEND(portability-simd-intrinsics)

// Runs the widest variant over the whole vectors; `done` is how many values that were.
template <typename Wide, typename Narrow>
uint32_t in_vectors(size_t count, size_t* done, Wide wide, Narrow narrow) {
  if (instructions_in_use == Instructions::avx512) {
    *done = count / 16 * 16;
    return wide(count / 16);
  }
  if (instructions_in_use == Instructions::avx2) {
    *done = count / 8 * 8;
    return narrow(count / 8);
  }
  *done = 0;
  return 0;
}

#else

template <typename Wide, typename Narrow>
uint32_t in_vectors(size_t, size_t* done, Wide, Narrow) {
  *done = 0;
  return 0;
}

#endif

}  // namespace

Instructions best_instructions() { return detect(); }

void use_instructions(Instructions instructions) {
  if (instructions > detect()) {
    throw std::invalid_argument("this processor does not have these instructions");
  }
  instructions_in_use = instructions;
}

uint16_t block_exponent(const float* values, size_t count) {
  size_t done;
  const uint32_t largest = in_vectors(
      count, &done, [&](size_t n) { return block_exponent_512(values, n); },
      [&](size_t n) { return block_exponent_256(values, n); });
  const auto of_vectors = static_cast<uint16_t>(largest >> 23);
  const uint16_t of_rest = block_exponent_portable(values + done, count - done);
  return of_vectors > of_rest ? of_vectors : of_rest;
}

uint32_t quantize(const float* values, size_t count, int shift, uint8_t* words, bool streaming, const float* next) {
  const Factors factors(shift);
  // What is in the cache already costs nothing to fetch.
  const auto* fetched = reinterpret_cast<const uint8_t*>(next != nullptr ? next : values);
  size_t done;
  const uint32_t sum = in_vectors(
      count, &done,
      [&](size_t n) {
        return streaming ? quantize_512<true>(values, n, factors, words, fetched)
                         : quantize_512<false>(values, n, factors, words, fetched);
      },
      [&](size_t n) {
        return streaming ? quantize_256<true>(values, n, factors, words)
                         : quantize_256<false>(values, n, factors, words);
      });
  return sum + quantize_portable(values, done, count, factors, words);
}

void fence_streaming_stores() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

uint32_t dequantize(const uint8_t* words, size_t count, int shift, float divisor, float* values) {
  size_t done = 0;
  uint32_t sum = 0;
  // A float32 product is exact but for overflow unless it can be subnormal: the smallest is 1 * 2^-shift.
  if (shift <= kLargestFactor) {
    const float factor = power_of_two(-shift);
    sum = in_vectors(
        count, &done, [&](size_t n) { return dequantize_512(words, n, factor, divisor, values); },
        [&](size_t n) { return dequantize_256(words, n, factor, divisor, values); });
  }
  return sum + dequantize_portable(words, done, count, std::ldexp(1.0, -shift), divisor, values);
}

uint32_t pack(const uint8_t* values, size_t count, uint8_t* words, bool streaming) {
  size_t done;
  const uint32_t sum = in_vectors(
      count, &done,
      [&](size_t n) {
        return streaming ? swap_words_512<true>(values, n, true, words) : swap_words_512<false>(values, n, true, words);
      },
      [&](size_t n) {
        return streaming ? swap_words_256<true>(values, n, true, words) : swap_words_256<false>(values, n, true, words);
      });
  return sum + pack_portable(values, done, count, words);
}

uint32_t unpack(const uint8_t* words, size_t count, uint8_t* values) {
  size_t done;
  const uint32_t sum = in_vectors(
      count, &done, [&](size_t n) { return swap_words_512<false>(words, n, false, values); },
      [&](size_t n) { return swap_words_256<false>(words, n, false, values); });
  return sum + unpack_portable(words, done, count, values);
}

uint32_t weigh(const uint8_t* words, size_t first, size_t count) {
  uint32_t sum = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += kWeights.of[first + i] * wire::load32(words + 4 * i);
  }
  return sum;
}

}  // namespace switchml::kernels
