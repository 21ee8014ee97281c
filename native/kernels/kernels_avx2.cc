// The arithmetic with AVX2: eight values at a time.
#if defined(__x86_64__)

#include <immintrin.h>

#include <type_traits>

#include "native/kernels/kernel_functions.h"

namespace switchml::kernels {

namespace {

// NOLINTBEGIN(portability-simd-intrinsics)
#define SWITCHML_AVX2 __attribute__((target("avx2,fma,f16c")))

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

SWITCHML_AVX2 inline uint32_t largest_lane(__m256i vector) {
  uint32_t largest = 0;
  for (const uint32_t lane : lanes_of(vector)) {
    largest = lane > largest ? lane : largest;
  }
  return largest;
}

SWITCHML_AVX2 inline uint32_t sum_of(__m256i lanes) {
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(two)) + static_cast<uint32_t>(_mm_extract_epi32(two, 1));
}

// Computes the sum of weight_(first + i) * word_i without one multiplication per word. A weight is (place *
// weight_multiplier) | 1, where place counts from 1, and weight_multiplier is odd: so the sum is weight_multiplier
// times the sum of place * word, plus the words in even places. With vector number k of n: the sum of k * vector_k is n
// * all - running, where `running` adds up what `all` is after each vector.
class Weigher {
 public:
  SWITCHML_AVX2 Weigher() : all_(_mm256_setzero_si256()), running_(_mm256_setzero_si256()) {}

  SWITCHML_AVX2 inline void add(__m256i words) {
    all_ = _mm256_add_epi32(all_, words);
    running_ = _mm256_add_epi32(running_, all_);
  }

  SWITCHML_AVX2 inline uint32_t sum(size_t vectors, size_t first = 0) const {
    const __m256i place =
        _mm256_add_epi32(_mm256_setr_epi32(1, 2, 3, 4, 5, 6, 7, 8), _mm256_set1_epi32(static_cast<int>(first)));
    // place in the first vector, plus 8 for each vector before; `running` holds n - k times vector number k from 0.
    const __m256i highest = _mm256_add_epi32(place, _mm256_set1_epi32(static_cast<int>(kLanes * vectors)));
    const __m256i by_place = _mm256_sub_epi32(_mm256_mullo_epi32(highest, all_), _mm256_slli_epi32(running_, 3));
    const __m256i in_even_places = _mm256_blend_epi32(_mm256_setzero_si256(), all_, 0xAA);
    const __m256i in_odd_places = _mm256_blend_epi32(_mm256_setzero_si256(), all_, 0x55);
    return sum_of(by_place) * wire::check::weight_multiplier + sum_of(first % 2 == 0 ? in_even_places : in_odd_places);
  }

 private:
  __m256i all_;
  __m256i running_;
};

SWITCHML_AVX2 inline __m256 load_values(const float* from) { return _mm256_loadu_ps(from); }

SWITCHML_AVX2 inline __m256 load_values(const Float16* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

SWITCHML_AVX2 inline __m256 load_values(const BFloat16* from) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

SWITCHML_AVX2 inline void store_values(float* to, __m256 values) { _mm256_storeu_ps(to, values); }

SWITCHML_AVX2 inline void store_values(Float16* to, __m256 values) {
  const __m128i halves = _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
}

// Precondition: no NaN.
SWITCHML_AVX2 inline __m256i rounded_to_upper_half(__m256i bits) {
  const __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_add_epi32(_mm256_add_epi32(bits, last), _mm256_set1_epi32(0x7FFF));
}

SWITCHML_AVX2 inline void store_upper_halves(BFloat16* to, __m256i words) {
  const __m256i upper = _mm256_srli_epi32(words, 16);
  const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(upper, upper), 0b1000);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(halves));
}

SWITCHML_AVX2 inline void store_values(BFloat16* to, __m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  store_upper_halves(to, _mm256_blendv_epi8(rounded_to_upper_half(bits), quiet, nan));
}

// Precondition: no NaN.
template <typename Value>
SWITCHML_AVX2 inline void store_numbers(Value* to, __m256 values) {
  if constexpr (std::is_same_v<Value, BFloat16>) {
    store_upper_halves(to, rounded_to_upper_half(_mm256_castps_si256(values)));
  } else {
    store_values(to, values);
  }
}

// Returns the words as float32: rounded to nearest, or to odd if they will be rounded once more to Value (half.h).
template <typename Value>
SWITCHML_AVX2 inline __m256 float_of_words(__m256i words) {
  const __m256 nearest = _mm256_cvtepi32_ps(words);
  if constexpr (std::is_same_v<Value, float>) {
    return nearest;
  } else {
    const __m256i one = _mm256_set1_epi32(1);
    const __m256i bits = _mm256_castps_si256(nearest);
    // A word that was rounded up to 2^31 comes back as -2^31, from which the difference, modulo 2^32, is right too.
    const __m256i missing = _mm256_sub_epi32(words, _mm256_cvttps_epi32(nearest));
    const __m256i right = _mm256_or_si256(_mm256_cmpeq_epi32(missing, _mm256_setzero_si256()),
                                          _mm256_cmpeq_epi32(_mm256_and_si256(bits, one), one));
    const __m256i step = _mm256_or_si256(_mm256_srai_epi32(_mm256_xor_si256(missing, bits), 31), one);
    return _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_andnot_si256(right, step)));
  }
}

// Returns words / parts * factor, computed in double: rounding it to float32 gives the same number as rounding the
// exact quotient (kernels_portable.cc).
SWITCHML_AVX2 inline __m128 divided(__m128i words, __m256 factor, __m256 parts) {
  const __m256d quotient = _mm256_div_pd(_mm256_cvtepi32_pd(words), _mm256_cvtps_pd(_mm256_castps256_ps128(parts)));
  return _mm256_cvtpd_ps(_mm256_mul_pd(quotient, _mm256_cvtps_pd(_mm256_castps256_ps128(factor))));
}

// Returns words * factor / parts, ready to be rounded to Value. It divides first and scales last, so that no
// intermediate result overflows unless the final one does.
template <typename Value>
SWITCHML_AVX2 inline __m256 scaled(__m256i words, __m256 factor, bool divides, __m256 parts) {
  if constexpr (std::is_same_v<Value, float>) {
    if (divides) {
      return _mm256_set_m128(divided(_mm256_extracti128_si256(words, 1), factor, parts),
                             divided(_mm256_castsi256_si128(words), factor, parts));
    }
  }
  const __m256 value = float_of_words<Value>(words);
  return _mm256_mul_ps(divides ? _mm256_div_ps(value, parts) : value, factor);
}

// Returns the largest magnitude (sign bits cleared) of the values in whole vectors, and sets `done` to their number.
SWITCHML_AVX2 uint32_t largest_of(const float* values, size_t count, size_t* done) {
  __m256i largest = _mm256_setzero_si256();
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  for (; *done + kLanes <= count; *done += kLanes) {
    largest = _mm256_max_epu32(largest, _mm256_and_si256(load(values + *done), magnitude));
  }
  return largest_lane(largest);
}

template <typename Half>
SWITCHML_AVX2 uint32_t largest_of(const Half* values, size_t count, size_t* done) {
  __m256i largest = _mm256_setzero_si256();
  const __m256i magnitude = _mm256_set1_epi16(0x7FFF);
  for (; *done + 2 * kLanes <= count; *done += 2 * kLanes) {
    largest = _mm256_max_epu16(largest, _mm256_and_si256(load(values + *done), magnitude));
  }
  const __m256i odd = _mm256_srli_epi32(largest, 16);
  const __m256i even = _mm256_and_si256(largest, _mm256_set1_epi32(0xFFFF));
  return largest_lane(_mm256_max_epu32(odd, even));
}

template <typename Value>
uint16_t block_exponent(const Value* values, size_t count) {
  size_t done = 0;
  const uint16_t of_vectors = portable::exponent_of(largest_of(values, count, &done), values);
  const uint16_t of_rest = portable::block_exponent(values, done, count);
  return of_vectors > of_rest ? of_vectors : of_rest;
}

template <bool kStreaming, bool kTwoFactors, typename Value>
SWITCHML_AVX2 uint32_t quantize_to(const Value* values, size_t count, Factors factors, uint8_t* words,
                                   const uint8_t* /*next*/) {
  const __m256 first = _mm256_set1_ps(factors.first);
  const __m256 second = _mm256_set1_ps(factors.second);
  Weigher weigher;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    __m256 scaled = _mm256_mul_ps(load_values(values + i), first);
    if (kTwoFactors) {
      scaled = _mm256_mul_ps(scaled, second);
    }
    const __m256i word = _mm256_cvtps_epi32(scaled);
    weigher.add(word);
    store<kStreaming>(words + 4 * i, swap(word));
  }
  return weigher.sum(i / kLanes) + (i < count ? portable::quantize(values, i, count, factors, words) : 0);
}

template <bool kStreaming, typename Value>
uint32_t quantize_to(const Value* values, size_t count, Factors factors, uint8_t* words, const uint8_t* next) {
  return factors.second == 1.0F ? quantize_to<kStreaming, false>(values, count, factors, words, next)
                                : quantize_to<kStreaming, true>(values, count, factors, words, next);
}

template <typename Value>
uint32_t quantize(const Value* values, size_t count, Factors factors, uint8_t* words, bool streaming,
                  const uint8_t* next) {
  return streaming ? quantize_to<true>(values, count, factors, words, next)
                   : quantize_to<false>(values, count, factors, words, next);
}

template <typename Value>
SWITCHML_AVX2 uint32_t dequantize(const uint8_t* words, size_t count, int shift, float divisor, Value* values) {
  const __m256 factor = _mm256_set1_ps(power_of_two(-shift));
  const __m256 parts = _mm256_set1_ps(divisor);
  const bool divides = divisor != 1.0F;
  Weigher weigher;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256i word = swap(load(words + 4 * i));
    weigher.add(word);
    store_numbers(values + i, scaled<Value>(word, factor, divides, parts));
  }
  return weigher.sum(i / kLanes) + (i < count ? portable::dequantize(words, i, count, shift, divisor, values) : 0);
}

template <bool kStreaming>
SWITCHML_AVX2 uint32_t pack_to(const uint8_t* values, size_t count, uint8_t* words) {
  Weigher weigher;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256i word = load(values + 4 * i);
    weigher.add(word);
    store<kStreaming>(words + 4 * i, swap(word));
  }
  return weigher.sum(i / kLanes) + (i < count ? portable::pack(values, i, count, words) : 0);
}

uint32_t pack(const uint8_t* values, size_t count, uint8_t* words, bool streaming) {
  return streaming ? pack_to<true>(values, count, words) : pack_to<false>(values, count, words);
}

SWITCHML_AVX2 uint32_t unpack(const uint8_t* words, size_t count, uint8_t* values) {
  Weigher weigher;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256i word = swap(load(words + 4 * i));
    weigher.add(word);
    store<false>(values + 4 * i, word);
  }
  return weigher.sum(i / kLanes) + (i < count ? portable::unpack(words, i, count, values) : 0);
}

SWITCHML_AVX2 uint32_t weigh(const uint8_t* words, size_t first, size_t count) {
  Weigher weigher;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    weigher.add(swap(load(words + 4 * i)));
  }
  return weigher.sum(i / kLanes, first) + (i < count ? portable::weigh(words, first, i, count) : 0);
}

template <typename Half>
SWITCHML_AVX2 void widen(const Half* values, size_t count, float* floats) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_values(floats + i, load_values(values + i));
  }
  portable::widen(values, i, count, floats);
}

template <typename Half>
SWITCHML_AVX2 void narrow(const float* floats, size_t count, Half* values) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_values(values + i, load_values(floats + i));
  }
  portable::narrow(floats, i, count, values);
}

// Narrow lanes. The functions below take sixteen (16 bits) or thirty-two (8 bits) elements at a time, which fill a
// vector of words.

SWITCHML_AVX2 inline __m256i load_integers(const int32_t* from) { return load(from); }

SWITCHML_AVX2 inline __m256i load_integers(const int16_t* from) {
  return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

SWITCHML_AVX2 inline __m256i load_integers(const int8_t* from) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}

SWITCHML_AVX2 inline __m256i load_integers(const uint8_t* from) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}

SWITCHML_AVX2 inline __m256i load_integers(const Boolean* from) {
  return _mm256_min_epi32(load_integers(&from->byte), _mm256_set1_epi32(1));
}

SWITCHML_AVX2 inline void store_integers(int32_t* to, __m256i integers) {
  store<false>(reinterpret_cast<uint8_t*>(to), integers);
}

// Returns the lower halves of the integers, in 128 bits.
SWITCHML_AVX2 inline __m128i lower_halves(__m256i integers) {
  const __m256i order =
      _mm256_broadcastsi128_si256(_mm_set_epi8(-1, -1, -1, -1, -1, -1, -1, -1, 13, 12, 9, 8, 5, 4, 1, 0));
  const __m256i gathered = _mm256_shuffle_epi8(integers, order);
  return _mm_unpacklo_epi64(_mm256_castsi256_si128(gathered), _mm256_extracti128_si256(gathered, 1));
}

SWITCHML_AVX2 inline void store_integers(int16_t* to, __m256i integers) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), lower_halves(integers));
}

SWITCHML_AVX2 inline void store_integers(uint8_t* to, __m256i integers) {
  const __m128i order = _mm_set_epi8(-1, -1, -1, -1, -1, -1, -1, -1, 14, 12, 10, 8, 6, 4, 2, 0);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_shuffle_epi8(lower_halves(integers), order));
}

SWITCHML_AVX2 inline void store_integers(int8_t* to, __m256i integers) {
  store_integers(reinterpret_cast<uint8_t*>(to), integers);
}

SWITCHML_AVX2 inline void store_integers(Boolean* to, __m256i integers) {
  const __m256i zero = _mm256_cmpeq_epi32(integers, _mm256_setzero_si256());
  store_integers(&to->byte, _mm256_andnot_si256(zero, _mm256_set1_epi32(1)));
}

// Returns first_i + second_i * 2^kBits for the adjacent pairs (first_i, second_i) in the 16 integers of `low` and
// `high`.
template <int kBits>
SWITCHML_AVX2 inline __m256i joined(__m256i low, __m256i high) {
  const __m256 lower = _mm256_castsi256_ps(low);
  const __m256 upper = _mm256_castsi256_ps(high);
  const __m256i firsts = _mm256_castps_si256(_mm256_shuffle_ps(lower, upper, 0b10001000));
  const __m256i seconds = _mm256_castps_si256(_mm256_shuffle_ps(lower, upper, 0b11011101));
  return _mm256_permute4x64_epi64(_mm256_add_epi32(firsts, _mm256_slli_epi32(seconds, kBits)), 0b11011000);
}

struct Pair {
  __m256i low;
  __m256i high;
};

// Does the opposite of joined(): a first number is signed and has kBits bits.
template <int kBits>
SWITCHML_AVX2 inline Pair split(__m256i numbers) {
  const __m256i first = _mm256_srai_epi32(_mm256_slli_epi32(numbers, kWordBits - kBits), kWordBits - kBits);
  const __m256i second = _mm256_srai_epi32(_mm256_sub_epi32(numbers, first), kBits);
  const __m256i lower = _mm256_unpacklo_epi32(first, second);
  const __m256i upper = _mm256_unpackhi_epi32(first, second);
  return {_mm256_permute2x128_si256(lower, upper, 0x20), _mm256_permute2x128_si256(lower, upper, 0x31)};
}

// Writes as many words as fill whole vectors, and sets `done` to their elements. integers(i) returns the eight lanes
// from i on.
template <int kBits, bool kStreaming, typename Integers>
SWITCHML_AVX2 inline uint32_t write_lanes(size_t count, uint8_t* words, size_t* done, const Integers& integers) {
  constexpr size_t kElements = kLanes * kWordBits / kBits;
  Weigher weigher;
  size_t vectors = 0;
  size_t i = 0;
  for (; i + kElements <= count; i += kElements, ++vectors) {
    uint8_t* to = words + 4 * kLanes * vectors;
    __m256i word = joined<kBits>(integers(i), integers(i + kLanes));
    if constexpr (kBits == 8) {
      word = joined<16>(word, joined<kBits>(integers(i + 2 * kLanes), integers(i + 3 * kLanes)));
    }
    weigher.add(word);
    store<kStreaming>(to, swap(word));
  }
  *done = i;
  return weigher.sum(vectors);
}

// Reads as many words as fill whole vectors, and sets `done` to their elements. Calls set(i, lanes) for each eight.
template <int kBits, typename Set>
SWITCHML_AVX2 inline uint32_t read_lanes(const uint8_t* words, size_t count, size_t* done, const Set& set) {
  constexpr size_t kElements = kLanes * kWordBits / kBits;
  Weigher weigher;
  size_t vectors = 0;
  size_t i = 0;
  for (; i + kElements <= count; i += kElements, ++vectors) {
    const uint8_t* from = words + 4 * kLanes * vectors;
    const __m256i word = swap(load(from));
    weigher.add(word);
    const Pair halves = split<16>(word);
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
  return weigher.sum(vectors);
}

// The same numbers as scrambled() in lanes.h.
SWITCHML_AVX2 inline __m256i scrambled_from(uint32_t counter, const Rounding& rounding) {
  const __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  __m256i bits = _mm256_add_epi32(place, _mm256_set1_epi32(static_cast<int>(counter + rounding.first_key)));
  bits = _mm256_xor_si256(bits, _mm256_srli_epi32(bits, 16));
  bits = _mm256_mullo_epi32(bits, _mm256_set1_epi32(0x7feb352d));
  bits = _mm256_xor_si256(bits, _mm256_srli_epi32(bits, 15));
  bits = _mm256_add_epi32(bits, _mm256_set1_epi32(static_cast<int>(rounding.second_key)));
  bits = _mm256_mullo_epi32(bits, _mm256_set1_epi32(static_cast<int>(0x846ca68bU)));
  return _mm256_xor_si256(bits, _mm256_srli_epi32(bits, 16));
}

template <bool kStochastic>
SWITCHML_AVX2 inline __m256i rounded(__m256 scaled, uint32_t counter, const Rounding& rounding) {
  if constexpr (kStochastic) {
    const __m256 below = _mm256_floor_ps(scaled);
    const __m256i bits = _mm256_srli_epi32(scrambled_from(counter, rounding), 8);
    const __m256 random = _mm256_mul_ps(_mm256_cvtepi32_ps(bits), _mm256_set1_ps(kUnitOfRandom));
    const __m256 up = _mm256_cmp_ps(random, _mm256_sub_ps(scaled, below), _CMP_LT_OQ);
    return _mm256_sub_epi32(_mm256_cvttps_epi32(below), _mm256_castps_si256(up));  // all bits set are -1
  } else {
    return _mm256_cvtps_epi32(scaled);
  }
}

template <int kBits, bool kStochastic, bool kStreaming, typename Value>
SWITCHML_AVX2 uint32_t quantize_lanes_to(const Value* values, size_t count, LaneScale scale, const Rounding& rounding,
                                         uint8_t* words) {
  const __m256 first = _mm256_set1_ps(scale.first);
  const __m256 second = _mm256_set1_ps(scale.second);
  size_t done = 0;
  const uint32_t sum = write_lanes<kBits, kStreaming>(count, words, &done, [&](size_t i) SWITCHML_AVX2 {
    const __m256 scaled = _mm256_mul_ps(_mm256_mul_ps(load_values(values + i), first), second);
    return rounded<kStochastic>(scaled, rounding.counter + static_cast<uint32_t>(i), rounding);
  });
  return sum + portable::quantize_lanes(values, done, count, kBits, scale, rounding, words);
}

template <int kBits, typename Value>
uint32_t quantize_lanes_to(const Value* values, size_t count, LaneScale scale, const Rounding& rounding, uint8_t* words,
                           bool streaming) {
  if (rounding.stochastic) {
    return streaming ? quantize_lanes_to<kBits, true, true>(values, count, scale, rounding, words)
                     : quantize_lanes_to<kBits, true, false>(values, count, scale, rounding, words);
  }
  return streaming ? quantize_lanes_to<kBits, false, true>(values, count, scale, rounding, words)
                   : quantize_lanes_to<kBits, false, false>(values, count, scale, rounding, words);
}

template <typename Value>
uint32_t quantize_lanes(const Value* values, size_t count, int lane_bits, LaneScale scale, const Rounding& rounding,
                        uint8_t* words, bool streaming) {
  switch (lane_bits) {
    case 8:
      return quantize_lanes_to<8>(values, count, scale, rounding, words, streaming);
    case 16:
      return quantize_lanes_to<16>(values, count, scale, rounding, words, streaming);
    default:
      return portable::quantize_lanes(values, 0, count, lane_bits, scale, rounding, words);
  }
}

template <int kBits, typename Value>
SWITCHML_AVX2 uint32_t dequantize_lanes_from(const uint8_t* words, size_t count, LaneUnit unit, Value* values) {
  const __m256 first = _mm256_set1_ps(unit.first);
  const __m256 second = _mm256_set1_ps(unit.second);
  size_t done = 0;
  const uint32_t sum = read_lanes<kBits>(words, count, &done, [&](size_t i, __m256i lanes) SWITCHML_AVX2 {
    store_numbers(values + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(lanes), first), second));
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

template <int kBits, bool kStreaming, typename Integer>
SWITCHML_AVX2 uint32_t pack_lanes_to(const Integer* values, size_t count, uint8_t* words) {
  size_t done = 0;
  const uint32_t sum = write_lanes<kBits, kStreaming>(
      count, words, &done, [&](size_t i) SWITCHML_AVX2 { return load_integers(values + i); });
  return sum + portable::pack_lanes(values, done, count, kBits, words);
}

template <typename Integer>
uint32_t pack_integers(const Integer* values, size_t count, int lane_bits, uint8_t* words, bool streaming) {
  switch (lane_bits) {
    case 8:
      return streaming ? pack_lanes_to<8, true>(values, count, words) : pack_lanes_to<8, false>(values, count, words);
    case 16:
      return streaming ? pack_lanes_to<16, true>(values, count, words) : pack_lanes_to<16, false>(values, count, words);
    default:
      return portable::pack_lanes(values, 0, count, lane_bits, words);
  }
}

template <int kBits, typename Integer>
SWITCHML_AVX2 uint32_t unpack_lanes_from(const uint8_t* words, size_t count, Integer* values) {
  size_t done = 0;
  const uint32_t sum = read_lanes<kBits>(
      words, count, &done, [&](size_t i, __m256i lanes) SWITCHML_AVX2 { store_integers(values + i, lanes); });
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
// NOLINTEND(portability-simd-intrinsics)

}  // namespace

const Functions kAvx2 = {
    {block_exponent<float>, quantize<float>, dequantize<float>, nullptr, nullptr},
    {block_exponent<Float16>, quantize<Float16>, dequantize<Float16>, widen<Float16>, narrow<Float16>},
    {block_exponent<BFloat16>, quantize<BFloat16>, dequantize<BFloat16>, widen<BFloat16>, narrow<BFloat16>},
    pack,
    unpack,
    weigh,
};

const LaneFunctions kAvx2Lanes = {
    {quantize_lanes<float>, dequantize_lanes<float>},       {quantize_lanes<Float16>, dequantize_lanes<Float16>},
    {quantize_lanes<BFloat16>, dequantize_lanes<BFloat16>}, {pack_integers<Boolean>, unpack_integers<Boolean>},
    {pack_integers<int8_t>, unpack_integers<int8_t>},       {pack_integers<uint8_t>, unpack_integers<uint8_t>},
    {pack_integers<int16_t>, unpack_integers<int16_t>},     {pack_integers<int32_t>, unpack_integers<int32_t>},
};

}  // namespace switchml::kernels

#endif
