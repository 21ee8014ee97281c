// The arithmetic with AVX2: eight values at a time.
#if defined(__x86_64__)

#include <immintrin.h>

#include <type_traits>

#include "native/kernels/code_numbers.h"
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

SWITCHML_AVX2 inline void store(uint8_t* to, __m256i words) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), words);
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

// The weighed sum of words, a vector at a time, from word `first` of the block on.
class Weigher {
 public:
  SWITCHML_AVX2 explicit Weigher(const Weights& weights, size_t first = 0)
      : next_(weights.of.data() + first), even_(_mm256_setzero_si256()), odd_(_mm256_setzero_si256()) {}

  SWITCHML_AVX2 inline void add(__m256i words) {
    const __m256i weights = load(next_);
    next_ += kLanes;
    even_ = _mm256_add_epi64(even_, _mm256_mul_epi32(words, weights));
    odd_ = _mm256_add_epi64(odd_, _mm256_mul_epi32(_mm256_srli_epi64(words, 32), _mm256_srli_epi64(weights, 32)));
  }

  SWITCHML_AVX2 inline uint64_t sum() const {
    const __m256i four = _mm256_add_epi64(even_, odd_);
    const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    return static_cast<uint64_t>(_mm_cvtsi128_si64(two)) + static_cast<uint64_t>(_mm_extract_epi64(two, 1));
  }

 private:
  const int32_t* next_;
  __m256i even_;  // of the words in even lanes
  __m256i odd_;
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

// Returns the largest of the values in whole vectors, with their signs moved, and sets `done` to their number.
SWITCHML_AVX2 uint32_t largest_of(const float* values, size_t count, size_t* done) {
  __m256i largest = _mm256_setzero_si256();
  for (; *done + kLanes <= count; *done += kLanes) {
    const __m256i bits = load(values + *done);
    const __m256i moved = _mm256_or_si256(_mm256_slli_epi32(bits, 1), _mm256_srli_epi32(bits, 31));
    largest = _mm256_max_epu32(largest, moved);
  }
  return largest_lane(largest);
}

template <typename Half>
SWITCHML_AVX2 uint32_t largest_of(const Half* values, size_t count, size_t* done) {
  __m256i largest = _mm256_setzero_si256();
  for (; *done + 2 * kLanes <= count; *done += 2 * kLanes) {
    const __m256i bits = load(values + *done);
    const __m256i moved = _mm256_or_si256(_mm256_slli_epi16(bits, 1), _mm256_srli_epi16(bits, 15));
    largest = _mm256_max_epu16(largest, moved);
  }
  const __m256i odd = _mm256_srli_epi32(largest, 16);
  const __m256i even = _mm256_and_si256(largest, _mm256_set1_epi32(0xFFFF));
  return largest_lane(_mm256_max_epu32(odd, even));
}

template <typename Value>
uint32_t largest_magnitude(const Value* values, size_t count) {
  size_t done = 0;
  const uint32_t of_vectors = largest_of(values, count, &done);
  return std::max(of_vectors, portable::largest_magnitude(values, done, count));
}

template <bool kTwoFactors, typename Value>
SWITCHML_AVX2 uint64_t quantize_to(const Weights& weights, const Value* values, size_t count, Factors factors,
                                   uint8_t* words, const uint8_t* /*next*/) {
  const __m256 first = _mm256_set1_ps(factors.first);
  const __m256 second = _mm256_set1_ps(factors.second);
  Weigher weigher(weights);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    __m256 scaled = _mm256_mul_ps(load_values(values + i), first);
    if (kTwoFactors) {
      scaled = _mm256_mul_ps(scaled, second);
    }
    const __m256i word = _mm256_cvtps_epi32(scaled);
    weigher.add(word);
    store(words + 4 * i, swap(word));
  }
  return weigher.sum() + (i < count ? portable::quantize(weights, values, i, count, factors, words) : 0);
}

template <typename Value>
uint64_t quantize(const Weights& weights, const Value* values, size_t count, Factors factors, uint8_t* words,
                  const uint8_t* next, bool /*alone*/) {
  return factors.second == 1.0F ? quantize_to<false>(weights, values, count, factors, words, next)
                                : quantize_to<true>(weights, values, count, factors, words, next);
}

template <typename Value>
SWITCHML_AVX2 uint64_t dequantize(const Weights& weights, const uint8_t* words, size_t count, int shift, float divisor,
                                  Value* values, bool /*alone*/) {
  const __m256 factor = _mm256_set1_ps(power_of_two(-shift));
  const __m256 parts = _mm256_set1_ps(divisor);
  const bool divides = divisor != 1.0F;
  Weigher weigher(weights);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256i word = swap(load(words + 4 * i));
    weigher.add(word);
    store_numbers(values + i, scaled<Value>(word, factor, divides, parts));
  }
  return weigher.sum() + (i < count ? portable::dequantize(weights, words, i, count, shift, divisor, values) : 0);
}

SWITCHML_AVX2 uint64_t pack(const Weights& weights, const uint8_t* values, size_t count, uint8_t* words) {
  Weigher weigher(weights);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256i word = load(values + 4 * i);
    weigher.add(word);
    store(words + 4 * i, swap(word));
  }
  return weigher.sum() + (i < count ? portable::pack(weights, values, i, count, words) : 0);
}

SWITCHML_AVX2 uint64_t unpack(const Weights& weights, const uint8_t* words, size_t count, uint8_t* values) {
  Weigher weigher(weights);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256i word = swap(load(words + 4 * i));
    weigher.add(word);
    store(values + 4 * i, word);
  }
  return weigher.sum() + (i < count ? portable::unpack(weights, words, i, count, values) : 0);
}

SWITCHML_AVX2 uint64_t weigh(const Weights& weights, const uint8_t* words, size_t first, size_t count) {
  Weigher weigher(weights, first);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    weigher.add(swap(load(words + 4 * i)));
  }
  return weigher.sum() + (i < count ? portable::weigh(weights, words, first, i, count) : 0);
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

// Narrow lanes. Vectors of 16 integers of 16 bits ("halves"), in the order of the elements, stand between values and
// words.

constexpr size_t kHalves = 2 * kLanes;

// Do what kSignBits in kernel_functions.h describes.
template <int kBits>
SWITCHML_AVX2 inline __m256i words_of(__m256i lanes) {
  const __m256i signs = _mm256_set1_epi32(static_cast<int>(kSignBits<kBits>));
  return _mm256_sub_epi32(_mm256_xor_si256(lanes, signs), signs);
}

template <int kBits>
SWITCHML_AVX2 inline __m256i lanes_of(__m256i words) {
  const __m256i signs = _mm256_set1_epi32(static_cast<int>(kSignBits<kBits>));
  return _mm256_xor_si256(_mm256_add_epi32(words, signs), signs);
}

// Puts four quarters of 64 bits, which a pack instruction has interleaved, in order.
SWITCHML_AVX2 inline __m256i in_order(__m256i packed) { return _mm256_permute4x64_epi64(packed, 0b11011000); }

struct Pair {
  __m256i first;
  __m256i second;
};

struct FloatPair {
  __m256 first;
  __m256 second;
};

// The 16 values of a pair are in their order. But BFloat16 has those in even places first, because then its halves need
// no shuffling.
template <typename Value>
constexpr bool kSplitsByPlace = std::is_same_v<Value, BFloat16>;

template <typename Value>
SWITCHML_AVX2 inline FloatPair load_pair(const Value* from) {
  if constexpr (kSplitsByPlace<Value>) {
    const __m256i halves = load(from);
    return {_mm256_castsi256_ps(_mm256_slli_epi32(halves, 16)),
            _mm256_castsi256_ps(_mm256_and_si256(halves, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))))};
  } else {
    return {load_values(from), load_values(from + kLanes)};
  }
}

// Adds the thresholds of 16 elements, which begin at `thresholds`.
template <typename Value>
SWITCHML_AVX2 inline Pair plus_thresholds(Pair numbers, const uint16_t* thresholds) {
  Pair added;
  if constexpr (kSplitsByPlace<Value>) {
    const __m256i halves = load(thresholds);
    added = {_mm256_and_si256(halves, _mm256_set1_epi32(0xFFFF)), _mm256_srli_epi32(halves, 16)};
  } else {
    const auto* from = reinterpret_cast<const __m128i*>(thresholds);
    added = {_mm256_cvtepu16_epi32(_mm_loadu_si128(from)), _mm256_cvtepu16_epi32(_mm_loadu_si128(from + 1))};
  }
  return {_mm256_add_epi32(numbers.first, added.first), _mm256_add_epi32(numbers.second, added.second)};
}

// Returns the upper or the lower 16 bits of 16 numbers, in the order of the elements. Precondition, except for
// BFloat16: the numbers fit the lower 16 bits if those are taken.
template <typename Value, bool kUpper>
SWITCHML_AVX2 inline __m256i halves_of(Pair numbers) {
  if constexpr (kSplitsByPlace<Value>) {
    const __m256i first = kUpper ? _mm256_srli_epi32(numbers.first, 16) : numbers.first;
    const __m256i second = kUpper ? numbers.second : _mm256_slli_epi32(numbers.second, 16);
    return _mm256_blend_epi16(first, second, 0b10101010);
  } else if constexpr (kUpper) {
    return in_order(_mm256_packs_epi32(_mm256_srai_epi32(numbers.first, 16), _mm256_srai_epi32(numbers.second, 16)));
  } else {
    return in_order(_mm256_packs_epi32(numbers.first, numbers.second));
  }
}

SWITCHML_AVX2 inline __m256i rounded(__m256 numbers) { return _mm256_cvtps_epi32(numbers); }

// Returns the levels nearest to values * factor as 16 halves.
template <typename Value>
SWITCHML_AVX2 inline __m256i nearest_halves(FloatPair values, __m256 factor) {
  if constexpr (kSplitsByPlace<Value>) {
    // The product, of eight bits and at most fifteen, is exact. A float of this size has no bits below 1, so the sum is
    // rounded to an integer, whose lower half is in the lower half of the float.
    const __m256 large = _mm256_set1_ps(0x1.8p23F);
    const Pair sums = {_mm256_castps_si256(_mm256_fmadd_ps(values.first, factor, large)),
                       _mm256_castps_si256(_mm256_fmadd_ps(values.second, factor, large))};
    return halves_of<Value, false>(sums);
  } else {
    return halves_of<Value, false>(
        {rounded(_mm256_mul_ps(values.first, factor)), rounded(_mm256_mul_ps(values.second, factor))});
  }
}

// Returns values * factor, in which a level is kThresholds, rounded stochastically to levels as 16 halves.
template <typename Value>
SWITCHML_AVX2 inline __m256i random_halves(FloatPair values, __m256 factor, const uint16_t* thresholds) {
  const Pair numbers = {rounded(_mm256_mul_ps(values.first, factor)), rounded(_mm256_mul_ps(values.second, factor))};
  return halves_of<Value, true>(plus_thresholds<Value>(numbers, thresholds));
}

// Writes as many words as fill whole vectors, and sets `done` to their elements. halves(i) returns the lanes of 32
// elements from i on.
template <int kBits, typename Halves>
SWITCHML_AVX2 inline uint64_t write_lanes(const Weights& weights, size_t count, uint8_t* words, size_t* done,
                                          const Halves& halves) {
  constexpr size_t kElements = kLanes * kWordBits / kBits;
  Weigher weigher(weights);
  size_t vectors = 0;
  size_t i = 0;
  for (; i + kElements <= count; i += kElements, ++vectors) {
    uint8_t* to = words + 4 * kLanes * vectors;
    __m256i lanes = halves(i);
    if constexpr (kBits == 8) {
      lanes = in_order(_mm256_packs_epi16(lanes, halves(i + kHalves)));
    }
    const __m256i word = words_of<kBits>(lanes);
    weigher.add(word);
    store(to, swap(word));
  }
  *done = i;
  return weigher.sum();
}

// Reads as many words as fill whole vectors, and sets `done` to their elements. Calls set(i, halves) for each 16
// elements.
template <int kBits, typename Set>
SWITCHML_AVX2 inline uint64_t read_lanes(const Weights& weights, const uint8_t* words, size_t count, size_t* done,
                                         const Set& set) {
  constexpr size_t kElements = kLanes * kWordBits / kBits;
  Weigher weigher(weights);
  size_t vectors = 0;
  size_t i = 0;
  for (; i + kElements <= count; i += kElements, ++vectors) {
    const uint8_t* from = words + 4 * kLanes * vectors;
    const __m256i word = swap(load(from));
    weigher.add(word);
    const __m256i lanes = lanes_of<kBits>(word);
    if constexpr (kBits == 16) {
      set(i, lanes);
    } else {
      set(i, _mm256_cvtepi8_epi16(_mm256_castsi256_si128(lanes)));
      set(i + kHalves, _mm256_cvtepi8_epi16(_mm256_extracti128_si256(lanes, 1)));
    }
  }
  *done = i;
  return weigher.sum();
}

// The definition is in lanes.h.
SWITCHML_AVX2 void write_thresholds(const Rounding& rounding, size_t count, uint16_t* thresholds) {
  const __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i step = _mm256_set1_epi32(static_cast<int>(kLanes * Rounding::kStep));
  const __m256i key = _mm256_set1_epi32(static_cast<int>(rounding.second_key));
  const __m256i factor = _mm256_set1_epi32(static_cast<int>(Rounding::kFactor));
  const __m256i rotation =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14));
  __m256i state = _mm256_add_epi32(_mm256_mullo_epi32(place, _mm256_set1_epi32(static_cast<int>(Rounding::kStep))),
                                   _mm256_set1_epi32(static_cast<int>(rounding.first_key)));
  for (size_t i = 0; i < count; i += 4 * kHalves) {
    for (size_t half = 0; half < 2 * kHalves; half += kHalves) {
      __m256i bits = _mm256_xor_si256(_mm256_xor_si256(state, _mm256_srli_epi32(state, 15)), key);
      bits = _mm256_mullo_epi32(bits, factor);
      bits = _mm256_xor_si256(bits, _mm256_srli_epi32(bits, 16));
      auto* const to = reinterpret_cast<__m256i*>(thresholds + i + half);
      _mm256_store_si256(to, bits);
      _mm256_store_si256(to + 2, _mm256_shuffle_epi8(bits, rotation));
      state = _mm256_add_epi32(state, step);
    }
  }
}

template <int kBits, bool kStochastic, bool kTwoFactors, typename Value>
SWITCHML_AVX2 uint64_t quantize_lanes_to(const Weights& weights, const Value* values, size_t count,
                                         const LaneScale& scale, const uint16_t* thresholds, uint8_t* words,
                                         const uint8_t* /*next*/) {
  const __m256 first = _mm256_set1_ps(scale.first);
  const __m256 second = _mm256_set1_ps(scale.second);
  size_t done = 0;
  const uint64_t sum = write_lanes<kBits>(weights, count, words, &done, [&](size_t i) SWITCHML_AVX2 {
    FloatPair floats = load_pair(values + i);
    if constexpr (kTwoFactors) {
      floats = {_mm256_mul_ps(floats.first, first), _mm256_mul_ps(floats.second, first)};
    }
    const __m256 factor = kTwoFactors ? second : first;
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

// Returns 16 integers as floats, in the order of load_pair(), times kEnlarged<Value>.
template <typename Value>
SWITCHML_AVX2 inline FloatPair floats_of(__m256i halves) {
  if constexpr (kSplitsByPlace<Value>) {
    const __m256i second = _mm256_and_si256(halves, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U)));
    return {_mm256_cvtepi32_ps(_mm256_slli_epi32(halves, 16)), _mm256_cvtepi32_ps(second)};
  } else {
    const __m256i first = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(halves));
    const __m256i second = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(halves, 1));
    return {_mm256_cvtepi32_ps(first), _mm256_cvtepi32_ps(second)};
  }
}

// Precondition: no NaN.
template <typename Value>
SWITCHML_AVX2 inline void store_pair(Value* to, FloatPair floats) {
  if constexpr (kSplitsByPlace<Value>) {
    const Pair bits = {rounded_to_upper_half(_mm256_castps_si256(floats.first)),
                       rounded_to_upper_half(_mm256_castps_si256(floats.second))};
    store(reinterpret_cast<uint8_t*>(to), halves_of<Value, true>(bits));
  } else {
    store_numbers(to, floats.first);
    store_numbers(to + kLanes, floats.second);
  }
}

template <bool kTwoFactors>
SWITCHML_AVX2 inline __m256 scaled(__m256 values, __m256 first, __m256 second) {
  const __m256 once = _mm256_mul_ps(values, first);
  return kTwoFactors ? _mm256_mul_ps(once, second) : once;
}

template <int kBits, bool kTwoFactors, typename Value>
SWITCHML_AVX2 uint64_t dequantize_lanes_from(const Weights& weights, const uint8_t* words, size_t count,
                                             const LaneUnit& unit, Value* values) {
  const __m256 first = _mm256_set1_ps(unit.first / kEnlarged<Value>);
  const __m256 second = _mm256_set1_ps(unit.second);
  size_t done = 0;
  const uint64_t sum = read_lanes<kBits>(weights, words, count, &done, [&](size_t i, __m256i halves) SWITCHML_AVX2 {
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

SWITCHML_AVX2 inline __m256i load_halves(const int32_t* from) {
  return in_order(_mm256_packs_epi32(load(from), load(from + kLanes)));
}

SWITCHML_AVX2 inline __m256i load_halves(const int16_t* from) { return load(from); }

SWITCHML_AVX2 inline __m256i load_halves(const int8_t* from) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

SWITCHML_AVX2 inline __m256i load_halves(const uint8_t* from) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

SWITCHML_AVX2 inline __m256i load_halves(const Boolean* from) {
  return _mm256_min_epu16(load_halves(&from->byte), _mm256_set1_epi16(1));
}

SWITCHML_AVX2 inline void store_halves(int32_t* to, __m256i halves) {
  store(reinterpret_cast<uint8_t*>(to), _mm256_cvtepi16_epi32(_mm256_castsi256_si128(halves)));
  store(reinterpret_cast<uint8_t*>(to + kLanes), _mm256_cvtepi16_epi32(_mm256_extracti128_si256(halves, 1)));
}

SWITCHML_AVX2 inline void store_halves(int16_t* to, __m256i halves) { store(reinterpret_cast<uint8_t*>(to), halves); }

SWITCHML_AVX2 inline void store_halves(uint8_t* to, __m256i halves) {
  const __m256i low = _mm256_and_si256(halves, _mm256_set1_epi16(0xFF));
  const __m256i bytes = in_order(_mm256_packus_epi16(low, low));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(bytes));
}

SWITCHML_AVX2 inline void store_halves(int8_t* to, __m256i halves) {
  store_halves(reinterpret_cast<uint8_t*>(to), halves);
}

SWITCHML_AVX2 inline void store_halves(Boolean* to, __m256i halves) {
  const __m256i zero = _mm256_cmpeq_epi16(halves, _mm256_setzero_si256());
  store_halves(&to->byte, _mm256_andnot_si256(zero, _mm256_set1_epi16(1)));
}

template <int kBits, typename Integer>
SWITCHML_AVX2 uint64_t pack_lanes_to(const Weights& weights, const Integer* values, size_t count, uint8_t* words) {
  size_t done = 0;
  const uint64_t sum =
      write_lanes<kBits>(weights, count, words, &done, [&](size_t i) SWITCHML_AVX2 { return load_halves(values + i); });
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
SWITCHML_AVX2 uint64_t unpack_lanes_from(const Weights& weights, const uint8_t* words, size_t count, Integer* values) {
  size_t done = 0;
  const uint64_t sum = read_lanes<kBits>(
      weights, words, count, &done, [&](size_t i, __m256i halves) SWITCHML_AVX2 { store_halves(values + i, halves); });
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
SWITCHML_AVX2 bool integers_within(const Integer* values, size_t count, int32_t bound) {
  return portable::all_within(values, count, bound);
}

// Codes.

SWITCHML_AVX2 inline __m256 magnitudes_of(__m256 values) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), values); }

SWITCHML_AVX2 inline __m256i with_signs(__m256i numbers, __m256 values) {
  const __m256i sign = _mm256_set1_epi32(wire::kCodeSign);
  return _mm256_or_si256(numbers, _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(values), 24), sign));
}

SWITCHML_AVX2 inline void store_codes(uint8_t* to, FloatPair values, Pair numbers) {
  const Pair codes = {with_signs(numbers.first, values.first), with_signs(numbers.second, values.second)};
  store_halves(to, halves_of<float, false>(codes));
}

template <typename Value>
SWITCHML_AVX2 inline FloatPair load_scaled(const Value* from, const Factors& factors) {
  const __m256 first = _mm256_set1_ps(factors.first);
  const __m256 second = _mm256_set1_ps(factors.second);
  return {scaled<true>(load_values(from), first, second), scaled<true>(load_values(from + kLanes), first, second)};
}

// Does what natural8_number() does for 8 values, whose thresholds begin at `thresholds`.
SWITCHML_AVX2 inline __m256i natural8_numbers(__m256 values, const uint16_t* thresholds) {
  const __m256 magnitudes = magnitudes_of(values);
  const __m256 plus_one = _mm256_add_ps(magnitudes, _mm256_set1_ps(1.0F));
  const __m256i bits = _mm256_castps_si256(_mm256_max_ps(plus_one, _mm256_add_ps(magnitudes, magnitudes)));
  const __m256i threshold = _mm256_cvtepu16_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(thresholds)));
  const __m256i offset = _mm256_set1_epi32(static_cast<int>(kNatural8Offset));
  const __m256i added = _mm256_add_epi32(_mm256_slli_epi32(threshold, kThresholdBit), offset);
  const __m256i numbers = _mm256_srli_epi32(_mm256_add_epi32(bits, added), kFractionBits);
  return _mm256_and_si256(numbers, _mm256_set1_epi32(kNumberMask));
}

// Does what dynamic8_number() does for 8 values.
SWITCHML_AVX2 inline __m256i dynamic8_numbers(__m256 values) {
  const __m256i bits = _mm256_castps_si256(magnitudes_of(values));
  const __m256i first = _mm256_set1_epi32(kFirstCellBits);
  const __m256i from_first = _mm256_sub_epi32(_mm256_max_epu32(bits, first), first);
  const __m256i places = _mm256_min_epu32(from_first, _mm256_set1_epi32(kLastPlace));
  const auto* table = reinterpret_cast<const int*>(kDynamic8Cells.data());
  const __m256i cells = _mm256_i32gather_epi32(table, _mm256_srli_epi32(places, kRestBits), 4);
  const __m256i rests = _mm256_and_si256(places, _mm256_set1_epi32(kRests - 1));
  return _mm256_srli_epi32(_mm256_add_epi32(cells, rests), kRestBits);
}

template <typename Value>
SWITCHML_AVX2 void write_natural8(const Value* values, size_t count, const Factors& factors, const Rounding& rounding,
                                  uint8_t* codes) {
  Thresholds thresholds;
  write_thresholds(rounding, count, thresholds.of.data());
  size_t i = 0;
  for (; i + kHalves <= count; i += kHalves) {
    const uint16_t* const from = &thresholds.of[i];
    const FloatPair value = load_scaled(values + i, factors);
    store_codes(codes + i, value, {natural8_numbers(value.first, from), natural8_numbers(value.second, from + kLanes)});
  }
  portable::write_natural8(values + i, count - i, factors, &thresholds.of[i], codes + i);
}

template <typename Value>
SWITCHML_AVX2 void write_dynamic8(const Value* values, size_t count, const Factors& factors, uint8_t* codes) {
  size_t i = 0;
  for (; i + kHalves <= count; i += kHalves) {
    const FloatPair value = load_scaled(values + i, factors);
    store_codes(codes + i, value, {dynamic8_numbers(value.first), dynamic8_numbers(value.second)});
  }
  portable::write_dynamic8(values + i, count - i, factors, codes + i);
}
// NOLINTEND(portability-simd-intrinsics)

}  // namespace

const Functions kAvx2 = {
    {largest_magnitude<float>, quantize<float>, dequantize<float>, nullptr, nullptr},
    {largest_magnitude<Float16>, quantize<Float16>, dequantize<Float16>, widen<Float16>, narrow<Float16>},
    {largest_magnitude<BFloat16>, quantize<BFloat16>, dequantize<BFloat16>, widen<BFloat16>, narrow<BFloat16>},
    pack,
    unpack,
    weigh,
};

const LaneFunctions kAvx2Lanes = {
    {quantize_lanes<float>, dequantize_lanes<float>},
    {quantize_lanes<Float16>, dequantize_lanes<Float16>},
    {quantize_lanes<BFloat16>, dequantize_lanes<BFloat16>},
    {pack_integers<Boolean>, unpack_integers<Boolean>, integers_within<Boolean>},
    {pack_integers<int8_t>, unpack_integers<int8_t>, integers_within<int8_t>},
    {pack_integers<uint8_t>, unpack_integers<uint8_t>, integers_within<uint8_t>},
    {pack_integers<int16_t>, unpack_integers<int16_t>, integers_within<int16_t>},
    {pack_integers<int32_t>, unpack_integers<int32_t>, integers_within<int32_t>},
};

const CodeFunctions kAvx2Codes = {
    {write_natural8<float>, write_dynamic8<float>},
    {write_natural8<Float16>, write_dynamic8<Float16>},
    {write_natural8<BFloat16>, write_dynamic8<BFloat16>},
    portable::expand_codes,  // a gather of eight words takes longer than eight loads
};

}  // namespace switchml::kernels

#endif
