// The arithmetic with AVX-512 (F, BW, DQ): sixteen values at a time.
#if defined(__x86_64__)

#include <immintrin.h>

#include "native/kernels/vectors.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,prfchw"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,prfchw")
#endif

namespace switchml::kernels {

namespace {

// NOLINTBEGIN(portability-simd-intrinsics)
constexpr size_t kLanes = 16;
constexpr bool kPrefetches = true;

using Words = Vector<uint32_t, kLanes>;
using Integers = Vector<int32_t, kLanes>;
using Floats = Vector<float, kLanes>;
using Halves = Vector<int16_t, 2 * kLanes>;
using Bytes = Vector<int8_t, 4 * kLanes>;
using Longs = Vector<uint64_t, kLanes / 2>;

template <typename From>
inline __m512i raw(From vector) {
  return reinterpret_cast<__m512i>(vector);
}
inline __m256i lower(__m512i vector) { return _mm512_castsi512_si256(vector); }
inline __m256i upper(__m512i vector) { return _mm512_extracti64x4_epi64(vector, 1); }

// kernels_avx2.cc describes these functions.

inline Words swapped(Words words) {
  const __m512i order = _mm512_broadcast_i32x4(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
  return reinterpret_cast<Words>(_mm512_shuffle_epi8(raw(words), order));
}

inline Words rotated_by_8(Words words) { return reinterpret_cast<Words>(_mm512_rol_epi32(raw(words), 8)); }

inline void add_products(Words left, Words right, Longs* even, Longs* odd) {
  *even += reinterpret_cast<Longs>(_mm512_mul_epi32(raw(left), raw(right)));
  *odd +=
      reinterpret_cast<Longs>(_mm512_mul_epi32(_mm512_srli_epi64(raw(left), 32), _mm512_srli_epi64(raw(right), 32)));
}

inline uint64_t total(Longs sums) {
  const __m256i four = _mm256_add_epi64(lower(raw(sums)), upper(raw(sums)));
  const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(two)) + static_cast<uint64_t>(_mm_extract_epi64(two, 1));
}

inline Floats plus_product(float added, Floats left, float right) {
  return _mm512_fmadd_ps(left, _mm512_set1_ps(right), _mm512_set1_ps(added));
}

inline void stream(void* to, Words words) { _mm512_stream_si512(static_cast<__m512i*>(to), raw(words)); }

inline Words rounded(Floats values) {
  return reinterpret_cast<Words>(_mm512_cvt_roundps_epi32(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

inline Floats rounded_to_odd(Words words) {
  const __m512 cut = _mm512_cvt_roundepi32_ps(raw(words), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  const __mmask16 inexact = _mm512_cmpneq_epi32_mask(_mm512_cvttps_epi32(cut), raw(words));
  const __m512i bits = _mm512_castps_si512(cut);
  return _mm512_castsi512_ps(_mm512_mask_or_epi32(bits, inexact, bits, _mm512_set1_epi32(1)));
}

inline __m256 quotients(__m256i words, __m512d divisor, __m512d factor) {
  return _mm512_cvtpd_ps(_mm512_cvtepi32_pd(words) / divisor * factor);
}

inline Floats quotients(Words words, float divisor, float factor) {
  const __m512d divisors = _mm512_set1_pd(divisor);
  const __m512d factors = _mm512_set1_pd(factor);
  const __m512 low = _mm512_castps256_ps512(quotients(lower(raw(words)), divisors, factors));
  const __m256 high = quotients(upper(raw(words)), divisors, factors);
  return _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castps_pd(low), _mm256_castps_pd(high), 1));
}

inline Floats load_floats(const Float16* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

inline void store_floats(Float16* to, Floats values) {
  const __m256i halves = _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
}

inline Words load_words(const uint16_t* from) {
  return reinterpret_cast<Words>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
}

inline Halves load_halves(const uint8_t* from) {
  return reinterpret_cast<Halves>(_mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
}

inline Halves load_halves(const int8_t* from) {
  return reinterpret_cast<Halves>(_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
}

inline void store_words(uint16_t* to, Words words) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(raw(words)));
}

inline void store_halves(uint8_t* to, Halves halves) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi16_epi8(raw(halves)));
}

// Puts eight quarters of 128 bits, which a pack instruction has interleaved, in order.
inline __m512i in_order(__m512i packed) {
  return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), packed);
}

inline Halves narrowed(Words first, Words second) {
  return reinterpret_cast<Halves>(in_order(_mm512_packs_epi32(raw(first), raw(second))));
}

inline Bytes narrowed(Halves first, Halves second) {
  return reinterpret_cast<Bytes>(in_order(_mm512_packs_epi16(raw(first), raw(second))));
}

inline Words lower_of(Halves halves) { return reinterpret_cast<Words>(_mm512_cvtepi16_epi32(lower(raw(halves)))); }
inline Words upper_of(Halves halves) { return reinterpret_cast<Words>(_mm512_cvtepi16_epi32(upper(raw(halves)))); }
inline Halves lower_of(Bytes bytes) { return reinterpret_cast<Halves>(_mm512_cvtepi8_epi16(lower(raw(bytes)))); }
inline Halves upper_of(Bytes bytes) { return reinterpret_cast<Halves>(_mm512_cvtepi8_epi16(upper(raw(bytes)))); }

inline Halves upper_halves_of(Words first, Words second) {
  return narrowed(reinterpret_cast<Words>(_mm512_srai_epi32(raw(first), 16)),
                  reinterpret_cast<Words>(_mm512_srai_epi32(raw(second), 16)));
}

inline Halves alternating(Words lower_halves, Words upper_halves) {
  return reinterpret_cast<Halves>(_mm512_mask_blend_epi16(0xAAAAAAAA, raw(lower_halves), raw(upper_halves)));
}

inline Words looked_up(const uint32_t* table, Words places) {
  return reinterpret_cast<Words>(_mm512_i32gather_epi32(raw(places), table, 4));
}

// The magnitudes of the 128 positive codes are in eight vectors. An instruction looks up in two of them by the lowest
// five bits of a code; the next two bits choose among its results.
void expand_codes(const uint8_t* codes, size_t count, wire::Format format, uint8_t* words) {
  const wire::CodeTable& table = wire::code_table_of(format);
  __m512i magnitudes[wire::kCodeSign / kLanes];
  for (size_t i = 0; i < wire::kCodeSign / kLanes; ++i) {
    magnitudes[i] = _mm512_loadu_si512(&table[kLanes * i]);
  }
  const auto look_up = [&](size_t i, __m512i code) {
    return _mm512_permutex2var_epi32(magnitudes[i], code, magnitudes[i + 1]);
  };
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m512i code = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i)));
    const __mmask16 bit5 = _mm512_test_epi32_mask(code, _mm512_set1_epi32(1 << 5));
    const __mmask16 bit6 = _mm512_test_epi32_mask(code, _mm512_set1_epi32(1 << 6));
    const __m512i low = _mm512_mask_blend_epi32(bit5, look_up(0, code), look_up(2, code));
    const __m512i high = _mm512_mask_blend_epi32(bit5, look_up(4, code), look_up(6, code));
    const __m512i magnitude = _mm512_mask_blend_epi32(bit6, low, high);
    const __mmask16 negative = _mm512_movepi32_mask(code);
    const __m512i word = _mm512_mask_sub_epi32(magnitude, negative, _mm512_setzero_si512(), magnitude);
    _mm512_storeu_si512(words + 4 * i, raw(swapped(reinterpret_cast<Words>(word))));
  }
  portable::expand_codes(codes + i, count - i, format, words + 4 * i);
}
// NOLINTEND(portability-simd-intrinsics)

}  // namespace

}  // namespace switchml::kernels

#include "native/kernels/vector_kernels.h"

namespace switchml::kernels {

const Functions kAvx512 = kFunctions;
const LaneFunctions kAvx512Lanes = kLaneFunctions;
const CodeFunctions kAvx512Codes = kCodeFunctions;

}  // namespace switchml::kernels

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
