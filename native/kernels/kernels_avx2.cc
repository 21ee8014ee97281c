// The arithmetic with AVX2: eight values at a time.
#if defined(__x86_64__)

#include <immintrin.h>

#include "native/kernels/vectors.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace switchml::kernels {

namespace {

// NOLINTBEGIN(portability-simd-intrinsics)
constexpr size_t kLanes = 8;
constexpr bool kPrefetches = false;

using Words = Vector<uint32_t, kLanes>;
using Integers = Vector<int32_t, kLanes>;
using Floats = Vector<float, kLanes>;
using Halves = Vector<int16_t, 2 * kLanes>;
using Bytes = Vector<int8_t, 4 * kLanes>;
using Longs = Vector<uint64_t, kLanes / 2>;

using portable::expand_codes;  // a gather of eight words takes longer than eight loads

template <typename From>
inline __m256i raw(From vector) {
  return reinterpret_cast<__m256i>(vector);
}
inline __m128i lower(__m256i vector) { return _mm256_castsi256_si128(vector); }
inline __m128i upper(__m256i vector) { return _mm256_extracti128_si256(vector, 1); }

// Returns the words with the bytes of each in reverse order.
inline Words swapped(Words words) {
  const __m256i order = _mm256_broadcastsi128_si256(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
  return reinterpret_cast<Words>(_mm256_shuffle_epi8(raw(words), order));
}

inline Words rotated_by_8(Words words) {
  const __m256i order =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14));
  return reinterpret_cast<Words>(_mm256_shuffle_epi8(raw(words), order));
}

// Adds the products of signed words: those in even lanes to one sum, those in odd lanes to the other.
inline void add_products(Words left, Words right, Longs* even, Longs* odd) {
  *even += reinterpret_cast<Longs>(_mm256_mul_epi32(raw(left), raw(right)));
  *odd +=
      reinterpret_cast<Longs>(_mm256_mul_epi32(_mm256_srli_epi64(raw(left), 32), _mm256_srli_epi64(raw(right), 32)));
}

inline uint64_t total(Longs sums) {
  const __m128i two = _mm_add_epi64(lower(raw(sums)), upper(raw(sums)));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(two)) + static_cast<uint64_t>(_mm_extract_epi64(two, 1));
}

// Returns added + left * right, rounded once.
inline Floats plus_product(float added, Floats left, float right) {
  return _mm256_fmadd_ps(left, _mm256_set1_ps(right), _mm256_set1_ps(added));
}

// Stores at a multiple of the vector's size, past the caches.
inline void stream(void* to, Words words) { _mm256_stream_si256(static_cast<__m256i*>(to), raw(words)); }

// Returns the values as signed words, rounded to nearest even.
inline Words rounded(Floats values) { return reinterpret_cast<Words>(_mm256_cvtps_epi32(values)); }

// Returns signed words as floats, rounded to odd (half.h).
inline Floats rounded_to_odd(Words words) {
  const __m256 nearest = _mm256_cvtepi32_ps(raw(words));
  const Words bits = reinterpret_cast<Words>(nearest);
  // A word that was rounded up to 2^31 comes back as -2^31; modulo 2^32 the difference is the same.
  const Words missing = words - reinterpret_cast<Words>(_mm256_cvttps_epi32(nearest));
  const Integers right = (missing == 0) | ((bits & 1) == 1);
  const Integers step = reinterpret_cast<Integers>(missing ^ bits) >> 31 | 1;
  return reinterpret_cast<Floats>(bits + reinterpret_cast<Words>(step & ~right));
}

inline __m128 quotients(__m128i words, __m256d divisor, __m256d factor) {
  return _mm256_cvtpd_ps(_mm256_cvtepi32_pd(words) / divisor * factor);
}

// Returns signed words / divisor * factor, computed in double: rounding it to float32 gives the same number as rounding
// the exact quotient (kernels_portable.cc).
inline Floats quotients(Words words, float divisor, float factor) {
  const __m256d divisors = _mm256_set1_pd(divisor);
  const __m256d factors = _mm256_set1_pd(factor);
  return _mm256_set_m128(quotients(upper(raw(words)), divisors, factors),
                         quotients(lower(raw(words)), divisors, factors));
}

inline Floats load_floats(const Float16* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

inline void store_floats(Float16* to, Floats values) {
  const __m128i halves = _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
}

// The following functions convert between numbers of different sizes and keep the order of the elements. Integers that
// get fewer bits must fit these, except in store_halves().

inline Words load_words(const uint16_t* from) {
  return reinterpret_cast<Words>(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}

inline Halves load_halves(const uint8_t* from) {
  return reinterpret_cast<Halves>(_mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}

inline Halves load_halves(const int8_t* from) {
  return reinterpret_cast<Halves>(_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}

inline void store_words(uint16_t* to, Words words) {
  const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(raw(words), raw(words)), 0b1000);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), lower(halves));
}

// Stores the lower byte of each half.
inline void store_halves(uint8_t* to, Halves halves) {
  const __m256i low = raw(halves & 0xFF);
  const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(low, low), 0b1000);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), lower(bytes));
}

// Puts four quarters of 64 bits, which a pack instruction has interleaved, in order.
inline __m256i in_order(__m256i packed) { return _mm256_permute4x64_epi64(packed, 0b11011000); }

inline Halves narrowed(Words first, Words second) {
  return reinterpret_cast<Halves>(in_order(_mm256_packs_epi32(raw(first), raw(second))));
}

inline Bytes narrowed(Halves first, Halves second) {
  return reinterpret_cast<Bytes>(in_order(_mm256_packs_epi16(raw(first), raw(second))));
}

inline Words lower_of(Halves halves) { return reinterpret_cast<Words>(_mm256_cvtepi16_epi32(lower(raw(halves)))); }
inline Words upper_of(Halves halves) { return reinterpret_cast<Words>(_mm256_cvtepi16_epi32(upper(raw(halves)))); }
inline Halves lower_of(Bytes bytes) { return reinterpret_cast<Halves>(_mm256_cvtepi8_epi16(lower(raw(bytes)))); }
inline Halves upper_of(Bytes bytes) { return reinterpret_cast<Halves>(_mm256_cvtepi8_epi16(upper(raw(bytes)))); }

// Returns the upper half of each word.
inline Halves upper_halves_of(Words first, Words second) {
  return narrowed(reinterpret_cast<Words>(_mm256_srai_epi32(raw(first), 16)),
                  reinterpret_cast<Words>(_mm256_srai_epi32(raw(second), 16)));
}

// Returns words with their lower halves from one vector and their upper halves from another.
inline Halves alternating(Words lower_halves, Words upper_halves) {
  return reinterpret_cast<Halves>(_mm256_blend_epi16(raw(lower_halves), raw(upper_halves), 0b10101010));
}

// Returns table[place] for each place.
inline Words looked_up(const uint32_t* table, Words places) {
  return reinterpret_cast<Words>(_mm256_i32gather_epi32(reinterpret_cast<const int*>(table), raw(places), 4));
}
// NOLINTEND(portability-simd-intrinsics)

}  // namespace

}  // namespace switchml::kernels

#include "native/kernels/vector_kernels.h"

namespace switchml::kernels {

const Functions kAvx2 = kFunctions;
const LaneFunctions kAvx2Lanes = kLaneFunctions;
const CodeFunctions kAvx2Codes = kCodeFunctions;

}  // namespace switchml::kernels

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
