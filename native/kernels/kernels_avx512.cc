// The arithmetic with AVX-512 (F, BW, DQ): sixteen values at a time.
#if defined(__x86_64__)

#include <immintrin.h>

#include <type_traits>

#include "native/kernels/code_numbers.h"
#include "native/kernels/kernel_functions.h"

namespace switchml::kernels {

namespace {

// NOLINTBEGIN(portability-simd-intrinsics)
#define SWITCHML_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,prfchw")))

// Prefetch distance in bytes. The CPU prefetches sequential reads by itself, but not across a page boundary, and it
// does not request ownership of a line in another core's cache that will be written.
constexpr size_t kAhead = 2048;
constexpr size_t distance_for(bool alone) { return alone ? 0 : kAhead; }
constexpr size_t kLanes = 16;

SWITCHML_AVX512 inline __m512i swap(__m512i words) {
  const __m512i order = _mm512_broadcast_i32x4(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
  return _mm512_shuffle_epi8(words, order);
}

// The weighed sum of words, a vector at a time, from word `first` of the block on.
class Weigher {
 public:
  SWITCHML_AVX512 explicit Weigher(const Weights& weights, size_t first = 0)
      : next_(weights.of.data() + first), even_(_mm512_setzero_si512()), odd_(_mm512_setzero_si512()) {}

  SWITCHML_AVX512 inline void add(__m512i words) {
    const __m512i weights = _mm512_loadu_si512(next_);
    next_ += kLanes;
    even_ = _mm512_add_epi64(even_, _mm512_mul_epi32(words, weights));
    odd_ = _mm512_add_epi64(odd_, _mm512_mul_epi32(_mm512_srli_epi64(words, 32), _mm512_srli_epi64(weights, 32)));
  }

  SWITCHML_AVX512 inline uint64_t sum() const {
    const __m512i eight = _mm512_add_epi64(even_, odd_);
    const __m256i four = _mm256_add_epi64(_mm512_castsi512_si256(eight), _mm512_extracti64x4_epi64(eight, 1));
    const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    return static_cast<uint64_t>(_mm_cvtsi128_si64(two)) + static_cast<uint64_t>(_mm_extract_epi64(two, 1));
  }

 private:
  const int32_t* next_;
  __m512i even_;  // of the words in even lanes
  __m512i odd_;
};

SWITCHML_AVX512 inline __m512 load_values(const float* from) { return _mm512_loadu_ps(from); }

SWITCHML_AVX512 inline __m512 load_values(const Float16* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

SWITCHML_AVX512 inline __m512 load_values(const BFloat16* from) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

SWITCHML_AVX512 inline void store_values(float* to, __m512 values) { _mm512_storeu_ps(to, values); }

SWITCHML_AVX512 inline void store_values(Float16* to, __m512 values) {
  const __m256i halves = _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
}

// Precondition: no NaN.
SWITCHML_AVX512 inline __m512i rounded_to_upper_half(__m512i bits) {
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  const __m512i almost = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF));
  return _mm512_mask_add_epi32(almost, odd, almost, _mm512_set1_epi32(1));
}

SWITCHML_AVX512 inline void store_upper_halves(BFloat16* to, __m512i words) {
  const __m256i halves = _mm512_cvtepi32_epi16(_mm512_srli_epi32(words, 16));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
}

SWITCHML_AVX512 inline void store_values(BFloat16* to, __m512 values) {
  const __m512i bits = _mm512_castps_si512(values);
  const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  const __m512i quiet = _mm512_set1_epi32(0x400000);
  store_upper_halves(to, _mm512_mask_or_epi32(rounded_to_upper_half(bits), nan, bits, quiet));
}

// Precondition: no NaN.
template <typename Value>
SWITCHML_AVX512 inline void store_numbers(Value* to, __m512 values) {
  if constexpr (std::is_same_v<Value, BFloat16>) {
    store_upper_halves(to, rounded_to_upper_half(_mm512_castps_si512(values)));
  } else {
    store_values(to, values);
  }
}

// Returns the words as float32: rounded to nearest, or to odd if they will be rounded once more to Value (half.h).
template <typename Value>
SWITCHML_AVX512 inline __m512 float_of_words(__m512i words) {
  if constexpr (std::is_same_v<Value, float>) {
    return _mm512_cvtepi32_ps(words);
  } else {
    const __m512 cut = _mm512_cvt_roundepi32_ps(words, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    const __mmask16 inexact = _mm512_cmpneq_epi32_mask(_mm512_cvttps_epi32(cut), words);
    const __m512i bits = _mm512_castps_si512(cut);
    return _mm512_castsi512_ps(_mm512_mask_or_epi32(bits, inexact, bits, _mm512_set1_epi32(1)));
  }
}

// Returns words / parts * factor, computed in double: rounding it to float32 gives the same number as rounding the
// exact quotient (kernels_portable.cc).
SWITCHML_AVX512 inline __m256 divided(__m256i words, __m512 factor, __m512 parts) {
  const __m512d quotient = _mm512_div_pd(_mm512_cvtepi32_pd(words), _mm512_cvtps_pd(_mm512_castps512_ps256(parts)));
  return _mm512_cvtpd_ps(_mm512_mul_pd(quotient, _mm512_cvtps_pd(_mm512_castps512_ps256(factor))));
}

// Returns words * factor / parts, ready to be rounded to Value. It divides first and scales last, so that no
// intermediate result overflows unless the final one does.
template <typename Value>
SWITCHML_AVX512 inline __m512 scaled(__m512i words, __m512 factor, bool divides, __m512 parts) {
  if constexpr (std::is_same_v<Value, float>) {
    if (divides) {
      const __m512 low = _mm512_castps256_ps512(divided(_mm512_castsi512_si256(words), factor, parts));
      const __m256 high = divided(_mm512_extracti64x4_epi64(words, 1), factor, parts);
      return _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castps_pd(low), _mm256_castps_pd(high), 1));
    }
  }
  const __m512 value = float_of_words<Value>(words);
  return _mm512_mul_ps(divides ? _mm512_div_ps(value, parts) : value, factor);
}

// Returns the largest of the values in whole vectors, with their signs moved, and sets `done` to their number.
SWITCHML_AVX512 uint32_t largest_of(const float* values, size_t count, size_t* done) {
  __m512i largest = _mm512_setzero_si512();
  for (; *done + kLanes <= count; *done += kLanes) {
    largest = _mm512_max_epu32(largest, _mm512_rol_epi32(_mm512_loadu_si512(values + *done), 1));
  }
  return _mm512_reduce_max_epu32(largest);
}

template <typename Half>
SWITCHML_AVX512 uint32_t largest_of(const Half* values, size_t count, size_t* done) {
  __m512i largest = _mm512_setzero_si512();
  for (; *done + 2 * kLanes <= count; *done += 2 * kLanes) {
    const __m512i bits = _mm512_loadu_si512(values + *done);
    const __m512i moved = _mm512_or_si512(_mm512_slli_epi16(bits, 1), _mm512_srli_epi16(bits, 15));
    largest = _mm512_max_epu16(largest, moved);
  }
  const __m512i odd = _mm512_srli_epi32(largest, 16);
  const __m512i even = _mm512_and_si512(largest, _mm512_set1_epi32(0xFFFF));
  return _mm512_reduce_max_epu32(_mm512_max_epu32(odd, even));
}

template <typename Value>
uint32_t largest_magnitude(const Value* values, size_t count) {
  size_t done = 0;
  const uint32_t of_vectors = largest_of(values, count, &done);
  return std::max(of_vectors, portable::largest_magnitude(values, done, count));
}

template <bool kTwoFactors, typename Value>
SWITCHML_AVX512 uint64_t quantize_to(const Weights& weights, const Value* values, size_t count, Factors factors,
                                     uint8_t* words, const uint8_t* next, bool alone) {
  const size_t distance = distance_for(alone);
  const __m512 first = _mm512_set1_ps(factors.first);
  const __m512 second = _mm512_set1_ps(factors.second);
  Weigher weigher(weights);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    _mm_prefetch(next + sizeof(Value) * i, _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const uint8_t*>(values + i) + distance, _MM_HINT_T0);
    __builtin_prefetch(words + 4 * i + kAhead, 1);
    __m512 scaled = _mm512_mul_ps(load_values(values + i), first);
    if (kTwoFactors) {
      scaled = _mm512_mul_ps(scaled, second);
    }
    const __m512i word = _mm512_cvt_roundps_epi32(scaled, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    weigher.add(word);
    _mm512_storeu_si512(words + 4 * i, swap(word));
  }
  return weigher.sum() + (i < count ? portable::quantize(weights, values, i, count, factors, words) : 0);
}

template <typename Value>
uint64_t quantize(const Weights& weights, const Value* values, size_t count, Factors factors, uint8_t* words,
                  const uint8_t* next, bool alone) {
  return factors.second == 1.0F ? quantize_to<false>(weights, values, count, factors, words, next, alone)
                                : quantize_to<true>(weights, values, count, factors, words, next, alone);
}

template <typename Value>
SWITCHML_AVX512 uint64_t dequantize(const Weights& weights, const uint8_t* words, size_t count, int shift,
                                    float divisor, Value* values, bool alone) {
  const size_t distance = distance_for(alone);
  const __m512 factor = _mm512_set1_ps(power_of_two(-shift));
  const __m512 parts = _mm512_set1_ps(divisor);
  const bool divides = divisor != 1.0F;
  Weigher weigher(weights);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    _mm_prefetch(words + 4 * i + kAhead, _MM_HINT_T0);
    __builtin_prefetch(reinterpret_cast<const uint8_t*>(values + i) + distance, 1);
    const __m512i word = swap(_mm512_loadu_si512(words + 4 * i));
    weigher.add(word);
    store_numbers(values + i, scaled<Value>(word, factor, divides, parts));
  }
  return weigher.sum() + (i < count ? portable::dequantize(weights, words, i, count, shift, divisor, values) : 0);
}

SWITCHML_AVX512 uint64_t pack(const Weights& weights, const uint8_t* values, size_t count, uint8_t* words) {
  Weigher weigher(weights);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m512i word = _mm512_loadu_si512(values + 4 * i);
    weigher.add(word);
    _mm512_storeu_si512(words + 4 * i, swap(word));
  }
  return weigher.sum() + (i < count ? portable::pack(weights, values, i, count, words) : 0);
}

SWITCHML_AVX512 uint64_t unpack(const Weights& weights, const uint8_t* words, size_t count, uint8_t* values) {
  Weigher weigher(weights);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m512i word = swap(_mm512_loadu_si512(words + 4 * i));
    weigher.add(word);
    _mm512_storeu_si512(values + 4 * i, word);
  }
  return weigher.sum() + (i < count ? portable::unpack(weights, words, i, count, values) : 0);
}

SWITCHML_AVX512 uint64_t weigh(const Weights& weights, const uint8_t* words, size_t first, size_t count) {
  Weigher weigher(weights, first);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    weigher.add(swap(_mm512_loadu_si512(words + 4 * i)));
  }
  return weigher.sum() + (i < count ? portable::weigh(weights, words, first, i, count) : 0);
}

template <typename Half>
SWITCHML_AVX512 void widen(const Half* values, size_t count, float* floats) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_values(floats + i, load_values(values + i));
  }
  portable::widen(values, i, count, floats);
}

template <typename Half>
SWITCHML_AVX512 void narrow(const float* floats, size_t count, Half* values) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_values(values + i, load_values(floats + i));
  }
  portable::narrow(floats, i, count, values);
}

// Narrow lanes. Vectors of 32 integers of 16 bits ("halves"), in the order of the elements, stand between values and
// words.

constexpr size_t kHalves = 2 * kLanes;

// Do what kSignBits in kernel_functions.h describes.
template <int kBits>
SWITCHML_AVX512 inline __m512i words_of(__m512i lanes) {
  const __m512i signs = _mm512_set1_epi32(static_cast<int>(kSignBits<kBits>));
  return _mm512_sub_epi32(_mm512_xor_si512(lanes, signs), signs);
}

template <int kBits>
SWITCHML_AVX512 inline __m512i lanes_of(__m512i words) {
  const __m512i signs = _mm512_set1_epi32(static_cast<int>(kSignBits<kBits>));
  return _mm512_xor_si512(_mm512_add_epi32(words, signs), signs);
}

// Puts eight quarters of 128 bits, which a pack instruction has interleaved, in order.
SWITCHML_AVX512 inline __m512i in_order(__m512i packed) {
  return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), packed);
}

struct Pair {
  __m512i first;
  __m512i second;
};

struct FloatPair {
  __m512 first;
  __m512 second;
};

// The 32 values of a pair are in their order. But BFloat16 has those in even places first, because then its halves need
// no shuffling.
template <typename Value>
constexpr bool kSplitsByPlace = std::is_same_v<Value, BFloat16>;

template <typename Value>
SWITCHML_AVX512 inline FloatPair load_pair(const Value* from) {
  if constexpr (kSplitsByPlace<Value>) {
    const __m512i halves = _mm512_loadu_si512(from);
    return {_mm512_castsi512_ps(_mm512_slli_epi32(halves, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(halves, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))))};
  } else {
    return {load_values(from), load_values(from + kLanes)};
  }
}

// Adds the thresholds of 32 elements, which begin at `thresholds`.
template <typename Value>
SWITCHML_AVX512 inline Pair plus_thresholds(Pair numbers, const uint16_t* thresholds) {
  Pair added;
  if constexpr (kSplitsByPlace<Value>) {
    const __m512i halves = _mm512_loadu_si512(thresholds);
    added = {_mm512_and_si512(halves, _mm512_set1_epi32(0xFFFF)), _mm512_srli_epi32(halves, 16)};
  } else {
    const auto* from = reinterpret_cast<const __m256i*>(thresholds);
    added = {_mm512_cvtepu16_epi32(_mm256_loadu_si256(from)), _mm512_cvtepu16_epi32(_mm256_loadu_si256(from + 1))};
  }
  return {_mm512_add_epi32(numbers.first, added.first), _mm512_add_epi32(numbers.second, added.second)};
}

// Returns the upper or the lower 16 bits of 32 numbers, in the order of the elements. Precondition, except for
// BFloat16: the numbers fit the lower 16 bits if those are taken.
template <typename Value, bool kUpper>
SWITCHML_AVX512 inline __m512i halves_of(Pair numbers) {
  if constexpr (kSplitsByPlace<Value>) {
    const __m512i first = kUpper ? _mm512_srli_epi32(numbers.first, 16) : numbers.first;
    const __m512i second = kUpper ? numbers.second : _mm512_slli_epi32(numbers.second, 16);
    return _mm512_mask_blend_epi16(0xAAAAAAAA, first, second);
  } else if constexpr (kUpper) {
    return in_order(_mm512_packs_epi32(_mm512_srai_epi32(numbers.first, 16), _mm512_srai_epi32(numbers.second, 16)));
  } else {
    return in_order(_mm512_packs_epi32(numbers.first, numbers.second));
  }
}

SWITCHML_AVX512 inline __m512i rounded(__m512 numbers) {
  return _mm512_cvt_roundps_epi32(numbers, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// Returns the levels nearest to values * factor as 32 halves.
template <typename Value>
SWITCHML_AVX512 inline __m512i nearest_halves(FloatPair values, __m512 factor) {
  if constexpr (kSplitsByPlace<Value>) {
    // The product, of eight bits and at most fifteen, is exact. A float of this size has no bits below 1, so the sum is
    // rounded to an integer, whose lower half is in the lower half of the float.
    const __m512 large = _mm512_set1_ps(0x1.8p23F);
    const Pair sums = {_mm512_castps_si512(_mm512_fmadd_ps(values.first, factor, large)),
                       _mm512_castps_si512(_mm512_fmadd_ps(values.second, factor, large))};
    return halves_of<Value, false>(sums);
  } else {
    return halves_of<Value, false>(
        {rounded(_mm512_mul_ps(values.first, factor)), rounded(_mm512_mul_ps(values.second, factor))});
  }
}

// Returns values * factor, in which a level is kThresholds, rounded stochastically to levels as 32 halves.
template <typename Value>
SWITCHML_AVX512 inline __m512i random_halves(FloatPair values, __m512 factor, const uint16_t* thresholds) {
  const Pair numbers = {rounded(_mm512_mul_ps(values.first, factor)), rounded(_mm512_mul_ps(values.second, factor))};
  return halves_of<Value, true>(plus_thresholds<Value>(numbers, thresholds));
}

// Writes as many words as fill whole vectors, and sets `done` to their elements. halves(i) returns the lanes of 32
// elements from i on.
template <int kBits, typename Halves>
SWITCHML_AVX512 inline uint64_t write_lanes(const Weights& weights, size_t count, uint8_t* words, size_t* done,
                                            const Halves& halves) {
  constexpr size_t kElements = kLanes * kWordBits / kBits;
  Weigher weigher(weights);
  size_t vectors = 0;
  size_t i = 0;
  for (; i + kElements <= count; i += kElements, ++vectors) {
    uint8_t* to = words + 4 * kLanes * vectors;
    __builtin_prefetch(to + kAhead, 1);
    __m512i lanes = halves(i);
    if constexpr (kBits == 8) {
      lanes = in_order(_mm512_packs_epi16(lanes, halves(i + kHalves)));
    }
    const __m512i word = words_of<kBits>(lanes);
    weigher.add(word);
    _mm512_storeu_si512(to, swap(word));
  }
  *done = i;
  return weigher.sum();
}

// Reads as many words as fill whole vectors, and sets `done` to their elements. Calls set(i, halves) for each 32
// elements.
template <int kBits, typename Set>
SWITCHML_AVX512 inline uint64_t read_lanes(const Weights& weights, const uint8_t* words, size_t count, size_t* done,
                                           const Set& set) {
  constexpr size_t kElements = kLanes * kWordBits / kBits;
  Weigher weigher(weights);
  size_t vectors = 0;
  size_t i = 0;
  for (; i + kElements <= count; i += kElements, ++vectors) {
    const uint8_t* from = words + 4 * kLanes * vectors;
    _mm_prefetch(from + kAhead, _MM_HINT_T0);
    const __m512i word = swap(_mm512_loadu_si512(from));
    weigher.add(word);
    const __m512i lanes = lanes_of<kBits>(word);
    if constexpr (kBits == 16) {
      set(i, lanes);
    } else {
      set(i, _mm512_cvtepi8_epi16(_mm512_castsi512_si256(lanes)));
      set(i + kHalves, _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(lanes, 1)));
    }
  }
  *done = i;
  return weigher.sum();
}

// The definition is in lanes.h.
SWITCHML_AVX512 void write_thresholds(const Rounding& rounding, size_t count, uint16_t* thresholds) {
  const __m512i place = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i step = _mm512_set1_epi32(static_cast<int>(kLanes * Rounding::kStep));
  const __m512i key = _mm512_set1_epi32(static_cast<int>(rounding.second_key));
  const __m512i factor = _mm512_set1_epi32(static_cast<int>(Rounding::kFactor));
  __m512i state = _mm512_add_epi32(_mm512_mullo_epi32(place, _mm512_set1_epi32(static_cast<int>(Rounding::kStep))),
                                   _mm512_set1_epi32(static_cast<int>(rounding.first_key)));
  for (size_t i = 0; i < count; i += 2 * kHalves) {
    __m512i bits = _mm512_xor_si512(_mm512_xor_si512(state, _mm512_srli_epi32(state, 15)), key);
    bits = _mm512_mullo_epi32(bits, factor);
    bits = _mm512_xor_si512(bits, _mm512_srli_epi32(bits, 16));
    _mm512_store_si512(thresholds + i, bits);
    _mm512_store_si512(thresholds + i + kHalves, _mm512_rol_epi32(bits, 8));
    state = _mm512_add_epi32(state, step);
  }
}

template <int kBits, bool kStochastic, bool kTwoFactors, typename Value>
SWITCHML_AVX512 uint64_t quantize_lanes_to(const Weights& weights, const Value* values, size_t count,
                                           const LaneScale& scale, const uint16_t* thresholds, uint8_t* words,
                                           const uint8_t* next) {
  const __m512 first = _mm512_set1_ps(scale.first);
  const __m512 second = _mm512_set1_ps(scale.second);
  size_t done = 0;
  const uint64_t sum = write_lanes<kBits>(weights, count, words, &done, [&](size_t i) SWITCHML_AVX512 {
    for (size_t line = 0; line < kHalves * sizeof(Value); line += kCacheLine) {
      _mm_prefetch(next + sizeof(Value) * i + line, _MM_HINT_T1);
      _mm_prefetch(reinterpret_cast<const uint8_t*>(values + i) + line + kAhead, _MM_HINT_T0);
    }
    FloatPair floats = load_pair(values + i);
    if constexpr (kTwoFactors) {
      floats = {_mm512_mul_ps(floats.first, first), _mm512_mul_ps(floats.second, first)};
    }
    const __m512 factor = kTwoFactors ? second : first;
    if constexpr (kStochastic) {
      return random_halves<Value>(floats, factor, thresholds + i);
    } else {
      return nearest_halves<Value>(floats, factor);
    }
  });
  return sum +
         (done < count ? portable::quantize_lanes(weights, values, done, count, kBits, scale, thresholds, words) : 0);
}

template <typename Value>
uint64_t quantize_lanes(const Weights& weights, const Value* values, size_t count, int lane_bits,
                        const LaneScale& scale, const Rounding& rounding, uint8_t* words, const uint8_t* next) {
  Thresholds thresholds;
  if (rounding.stochastic) {
    write_thresholds(rounding, count, thresholds.of.data());
  }
  return with_lane_bits(lane_bits, [&](auto bits) {
    return with_flag(rounding.stochastic, [&](auto stochastic) {
      return with_flag(scale.second != 1.0F, [&](auto two_factors) {
        return quantize_lanes_to<bits(), stochastic(), two_factors()>(
            weights, values, count, scale, stochastic() ? thresholds.of.data() : nullptr, words, next);
      });
    });
  });
}

// The factor of what floats_of() returns.
template <typename Value>
constexpr float kEnlarged = kSplitsByPlace<Value> ? 0x1p16F : 1.0F;

// Returns 32 integers as floats, in the order of load_pair(), times kEnlarged<Value>.
template <typename Value>
SWITCHML_AVX512 inline FloatPair floats_of(__m512i halves) {
  if constexpr (kSplitsByPlace<Value>) {
    const __m512i second = _mm512_and_si512(halves, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U)));
    return {_mm512_cvtepi32_ps(_mm512_slli_epi32(halves, 16)), _mm512_cvtepi32_ps(second)};
  } else {
    const __m512i first = _mm512_cvtepi16_epi32(_mm512_castsi512_si256(halves));
    const __m512i second = _mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(halves, 1));
    return {_mm512_cvtepi32_ps(first), _mm512_cvtepi32_ps(second)};
  }
}

// Precondition: no NaN.
template <typename Value>
SWITCHML_AVX512 inline void store_pair(Value* to, FloatPair floats) {
  if constexpr (kSplitsByPlace<Value>) {
    const Pair bits = {rounded_to_upper_half(_mm512_castps_si512(floats.first)),
                       rounded_to_upper_half(_mm512_castps_si512(floats.second))};
    _mm512_storeu_si512(to, halves_of<Value, true>(bits));
  } else {
    store_numbers(to, floats.first);
    store_numbers(to + kLanes, floats.second);
  }
}

template <bool kTwoFactors>
SWITCHML_AVX512 inline __m512 scaled(__m512 values, __m512 first, __m512 second) {
  const __m512 once = _mm512_mul_ps(values, first);
  return kTwoFactors ? _mm512_mul_ps(once, second) : once;
}

template <int kBits, bool kTwoFactors, typename Value>
SWITCHML_AVX512 uint64_t dequantize_lanes_from(const Weights& weights, const uint8_t* words, size_t count,
                                               const LaneUnit& unit, Value* values) {
  const __m512 first = _mm512_set1_ps(unit.first / kEnlarged<Value>);
  const __m512 second = _mm512_set1_ps(unit.second);
  size_t done = 0;
  const uint64_t sum = read_lanes<kBits>(weights, words, count, &done, [&](size_t i, __m512i halves) SWITCHML_AVX512 {
    for (size_t line = 0; line < kHalves * sizeof(Value); line += kCacheLine) {
      __builtin_prefetch(reinterpret_cast<const uint8_t*>(values + i) + line + kAhead, 1);
    }
    const FloatPair lanes = floats_of<Value>(halves);
    store_pair(values + i,
               {scaled<kTwoFactors>(lanes.first, first, second), scaled<kTwoFactors>(lanes.second, first, second)});
  });
  return sum + (done < count ? portable::dequantize_lanes(weights, words, done, count, kBits, unit, values) : 0);
}

template <typename Value>
uint64_t dequantize_lanes(const Weights& weights, const uint8_t* words, size_t count, int lane_bits,
                          const LaneUnit& unit, Value* values) {
  return with_lane_bits(lane_bits, [&](auto bits) {
    return with_flag(unit.second != 1.0F, [&](auto two_factors) {
      return dequantize_lanes_from<bits(), two_factors()>(weights, words, count, unit, values);
    });
  });
}

SWITCHML_AVX512 inline __m512i load_halves(const int32_t* from) {
  return in_order(_mm512_packs_epi32(_mm512_loadu_si512(from), _mm512_loadu_si512(from + kLanes)));
}

SWITCHML_AVX512 inline __m512i load_halves(const int16_t* from) { return _mm512_loadu_si512(from); }

SWITCHML_AVX512 inline __m512i load_halves(const int8_t* from) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

SWITCHML_AVX512 inline __m512i load_halves(const uint8_t* from) {
  return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

SWITCHML_AVX512 inline __m512i load_halves(const Boolean* from) {
  return _mm512_min_epu16(load_halves(&from->byte), _mm512_set1_epi16(1));
}

SWITCHML_AVX512 inline void store_halves(int32_t* to, __m512i halves) {
  _mm512_storeu_si512(to, _mm512_cvtepi16_epi32(_mm512_castsi512_si256(halves)));
  _mm512_storeu_si512(to + kLanes, _mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(halves, 1)));
}

SWITCHML_AVX512 inline void store_halves(int16_t* to, __m512i halves) { _mm512_storeu_si512(to, halves); }

SWITCHML_AVX512 inline void store_halves(uint8_t* to, __m512i halves) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi16_epi8(halves));
}

SWITCHML_AVX512 inline void store_halves(int8_t* to, __m512i halves) {
  store_halves(reinterpret_cast<uint8_t*>(to), halves);
}

SWITCHML_AVX512 inline void store_halves(Boolean* to, __m512i halves) {
  store_halves(&to->byte, _mm512_maskz_set1_epi16(_mm512_test_epi16_mask(halves, halves), 1));
}

template <int kBits, typename Integer>
SWITCHML_AVX512 uint64_t pack_lanes_to(const Weights& weights, const Integer* values, size_t count, uint8_t* words) {
  size_t done = 0;
  const uint64_t sum = write_lanes<kBits>(weights, count, words, &done,
                                          [&](size_t i) SWITCHML_AVX512 { return load_halves(values + i); });
  return sum + (done < count ? portable::pack_lanes(weights, values, done, count, kBits, words) : 0);
}

template <typename Integer>
uint64_t pack_integers(const Weights& weights, const Integer* values, size_t count, int lane_bits, uint8_t* words) {
  if (lane_bits == kWordBits) {
    return portable::pack_lanes(weights, values, 0, count, lane_bits, words);
  }
  return with_lane_bits(lane_bits, [&](auto bits) { return pack_lanes_to<bits()>(weights, values, count, words); });
}

template <int kBits, typename Integer>
SWITCHML_AVX512 uint64_t unpack_lanes_from(const Weights& weights, const uint8_t* words, size_t count,
                                           Integer* values) {
  size_t done = 0;
  const uint64_t sum = read_lanes<kBits>(weights, words, count, &done, [&](size_t i, __m512i halves) SWITCHML_AVX512 {
    store_halves(values + i, halves);
  });
  return sum + (done < count ? portable::unpack_lanes(weights, words, done, count, kBits, values) : 0);
}

template <typename Integer>
uint64_t unpack_integers(const Weights& weights, const uint8_t* words, size_t count, int lane_bits, Integer* values) {
  if (lane_bits == kWordBits) {
    return portable::unpack_lanes(weights, words, 0, count, lane_bits, values);
  }
  return with_lane_bits(lane_bits, [&](auto bits) { return unpack_lanes_from<bits()>(weights, words, count, values); });
}

template <typename Integer>
SWITCHML_AVX512 bool integers_within(const Integer* values, size_t count, int32_t bound) {
  return portable::all_within(values, count, bound);
}

// Codes.

SWITCHML_AVX512 inline void store_codes(uint8_t* to, __m512 values, __m512i numbers) {
  const __m512i sign = _mm512_set1_epi32(wire::kCodeSign);
  const __m512i signs = _mm512_and_si512(_mm512_srli_epi32(_mm512_castps_si512(values), 24), sign);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(_mm512_or_si512(signs, numbers)));
}

template <typename Value>
SWITCHML_AVX512 inline __m512 load_scaled(const Value* from, const Factors& factors) {
  return scaled<true>(load_values(from), _mm512_set1_ps(factors.first), _mm512_set1_ps(factors.second));
}

// Does what natural8_number() does for 16 values, whose thresholds begin at `thresholds`.
SWITCHML_AVX512 inline __m512i natural8_numbers(__m512 values, const uint16_t* thresholds) {
  const __m512 magnitudes = _mm512_abs_ps(values);
  const __m512 plus_one = _mm512_add_ps(magnitudes, _mm512_set1_ps(1.0F));
  const __m512i bits = _mm512_castps_si512(_mm512_max_ps(plus_one, _mm512_add_ps(magnitudes, magnitudes)));
  const __m512i threshold = _mm512_cvtepu16_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(thresholds)));
  const __m512i offset = _mm512_set1_epi32(static_cast<int>(kNatural8Offset));
  const __m512i added = _mm512_add_epi32(_mm512_slli_epi32(threshold, kThresholdBit), offset);
  const __m512i numbers = _mm512_srli_epi32(_mm512_add_epi32(bits, added), kFractionBits);
  return _mm512_and_si512(numbers, _mm512_set1_epi32(kNumberMask));
}

// Does what dynamic8_number() does for 16 values.
SWITCHML_AVX512 inline __m512i dynamic8_numbers(__m512 values) {
  const __m512i bits = _mm512_castps_si512(_mm512_abs_ps(values));
  const __m512i first = _mm512_set1_epi32(kFirstCellBits);
  const __m512i from_first = _mm512_sub_epi32(_mm512_max_epu32(bits, first), first);
  const __m512i places = _mm512_min_epu32(from_first, _mm512_set1_epi32(kLastPlace));
  const __m512i cells = _mm512_i32gather_epi32(_mm512_srli_epi32(places, kRestBits), kDynamic8Cells.data(), 4);
  const __m512i rests = _mm512_and_si512(places, _mm512_set1_epi32(kRests - 1));
  return _mm512_srli_epi32(_mm512_add_epi32(cells, rests), kRestBits);
}

template <typename Value>
SWITCHML_AVX512 void write_natural8(const Value* values, size_t count, const Factors& factors, const Rounding& rounding,
                                    uint8_t* codes) {
  Thresholds thresholds;
  write_thresholds(rounding, count, thresholds.of.data());
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m512 value = load_scaled(values + i, factors);
    store_codes(codes + i, value, natural8_numbers(value, &thresholds.of[i]));
  }
  portable::write_natural8(values + i, count - i, factors, &thresholds.of[i], codes + i);
}

template <typename Value>
SWITCHML_AVX512 void write_dynamic8(const Value* values, size_t count, const Factors& factors, uint8_t* codes) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m512 value = load_scaled(values + i, factors);
    store_codes(codes + i, value, dynamic8_numbers(value));
  }
  portable::write_dynamic8(values + i, count - i, factors, codes + i);
}

// The magnitudes of the 128 positive codes are in eight vectors. An instruction looks up in two of them by the lowest
// five bits of a code; the next two bits choose among its results.
SWITCHML_AVX512 void expand_codes(const uint8_t* codes, size_t count, wire::Format format, uint8_t* words) {
  const wire::CodeTable& table = wire::code_table_of(format);
  __m512i magnitudes[wire::kCodeSign / kLanes];
  for (size_t i = 0; i < wire::kCodeSign / kLanes; ++i) {
    magnitudes[i] = _mm512_loadu_si512(&table[kLanes * i]);
  }
  const auto look_up = [&](size_t i, __m512i code) SWITCHML_AVX512 {
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
    _mm512_storeu_si512(words + 4 * i, swap(word));
  }
  portable::expand_codes(codes + i, count - i, format, words + 4 * i);
}
// NOLINTEND(portability-simd-intrinsics)

}  // namespace

const Functions kAvx512 = {
    {largest_magnitude<float>, quantize<float>, dequantize<float>, nullptr, nullptr},
    {largest_magnitude<Float16>, quantize<Float16>, dequantize<Float16>, widen<Float16>, narrow<Float16>},
    {largest_magnitude<BFloat16>, quantize<BFloat16>, dequantize<BFloat16>, widen<BFloat16>, narrow<BFloat16>},
    pack,
    unpack,
    weigh,
};

const LaneFunctions kAvx512Lanes = {
    {quantize_lanes<float>, dequantize_lanes<float>},
    {quantize_lanes<Float16>, dequantize_lanes<Float16>},
    {quantize_lanes<BFloat16>, dequantize_lanes<BFloat16>},
    {pack_integers<Boolean>, unpack_integers<Boolean>, integers_within<Boolean>},
    {pack_integers<int8_t>, unpack_integers<int8_t>, integers_within<int8_t>},
    {pack_integers<uint8_t>, unpack_integers<uint8_t>, integers_within<uint8_t>},
    {pack_integers<int16_t>, unpack_integers<int16_t>, integers_within<int16_t>},
    {pack_integers<int32_t>, unpack_integers<int32_t>, integers_within<int32_t>},
};

const CodeFunctions kAvx512Codes = {
    {write_natural8<float>, write_dynamic8<float>},
    {write_natural8<Float16>, write_dynamic8<Float16>},
    {write_natural8<BFloat16>, write_dynamic8<BFloat16>},
    expand_codes,
};

}  // namespace switchml::kernels

#endif
