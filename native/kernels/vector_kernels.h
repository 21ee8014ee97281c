// The arithmetic on vectors, in one source. The file for each instruction set includes it once, where it is compiled
// for these instructions, behind what differs between the sets:
//
//   kLanes       how many 32-bit numbers a vector has
//   kPrefetches  whether prefetching makes the kernels faster
//   Words, Integers, Floats, Halves, Bytes, Longs
//                vectors of uint32_t, int32_t, float, int16_t, int8_t and uint64_t
//   functions    of these vectors that the compiler's operators lack or translate badly; kernels_avx2.cc describes them
//
// A lambda captures local copies of factors: the compiler would load those in a structure again after each store.
#pragma once

namespace switchml::kernels {

namespace {

template <typename To>
inline To load(const void* from) {
  To vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

template <typename From>
inline void store(void* to, From vector) {
  std::memcpy(to, &vector, sizeof vector);
}

template <typename Numbers>
inline Numbers larger(Numbers left, Numbers right) {
  return left > right ? left : right;
}

template <typename Numbers>
inline Numbers smaller(Numbers left, Numbers right) {
  return left < right ? left : right;
}

// Prefetches memory that will be read. kLocality is 3, or 2 for the next block.
template <int kLocality>
inline void prefetch(const void* from) {
  if constexpr (kPrefetches) {
    __builtin_prefetch(from, 0, kLocality);
  }
}

inline void prefetch_to_write(const void* to) {
  if constexpr (kPrefetches) {
    __builtin_prefetch(to, 1);
  }
}

// Returns the weighed sum of the words of `count` elements; a word has kPerWord elements. words_at(i) returns the
// vector of words from element i on; words_from(i) returns the weighed sum of the last words, which fill no vector.
template <size_t kPerWord, typename WordsAt, typename WordsFrom>
inline uint64_t weighed(const int32_t* weights, size_t count, const WordsAt& words_at, const WordsFrom& words_from) {
  constexpr size_t kElements = kLanes * kPerWord;
  Longs first{};
  Longs second{};
  size_t i = 0;
  for (; i + kElements <= count; i += kElements, weights += kLanes) {
    add_products(words_at(i), load<Words>(weights), &first, &second);
  }
  return total(first + second) + (i < count ? words_from(i) : 0);
}

inline Floats load_floats(const float* from) { return load<Floats>(from); }

inline Floats load_floats(const BFloat16* from) { return reinterpret_cast<Floats>(load_words(&from->bits) << 16); }

inline void store_floats(float* to, Floats values) { store(to, values); }

// Precondition: no NaN.
inline Words rounded_to_upper_half(Floats values) {
  const Words bits = reinterpret_cast<Words>(values);
  return bits + (bits >> 16 & 1) + 0x7FFF;
}

inline void store_floats(BFloat16* to, Floats values) {
  const Words quiet = reinterpret_cast<Words>(values) >> 16 | 0x40;
  store_words(&to->bits, values == values ? rounded_to_upper_half(values) >> 16 : quiet);
}

// Precondition: no NaN.
template <typename Value>
inline void store_numbers(Value* to, Floats values) {
  if constexpr (std::is_same_v<Value, BFloat16>) {
    store_words(&to->bits, rounded_to_upper_half(values) >> 16);
  } else {
    store_floats(to, values);
  }
}

template <typename Value>
uint32_t largest_magnitude(const Value* values, size_t count) {
  using Number = std::conditional_t<sizeof(Value) == sizeof(uint32_t), uint32_t, uint16_t>;
  constexpr size_t kNumbers = sizeof(Words) / sizeof(Number);
  Vector<Number, kNumbers> largest{};
  size_t i = 0;
#pragma GCC unroll 4
  for (; i + kNumbers <= count; i += kNumbers) {
    const auto bits = load<Vector<Number, kNumbers>>(values + i);
    largest = larger(largest, bits << 1 | bits >> (8 * sizeof(Number) - 1));
  }
  uint32_t of_vectors = 0;
  for (size_t lane = 0; lane < kNumbers; ++lane) {
    of_vectors = largest[lane] > of_vectors ? largest[lane] : of_vectors;
  }
  return std::max(of_vectors, portable::largest_magnitude(values, i, count));
}

template <bool kTwoFactors>
inline Floats scaled(Floats values, float first, float second) {
  return kTwoFactors ? values * first * second : values * first;
}

template <bool kTwoFactors, typename Value>
uint64_t quantize_to(const Weights& weights, const Value* values, size_t count, Factors factors, uint8_t* words,
                     const uint8_t* next, bool alone) {
  const size_t distance = distance_for(alone);
  const auto words_at = [&](size_t i) {
    prefetch<2>(next + sizeof(Value) * i);
    prefetch<3>(reinterpret_cast<const uint8_t*>(values + i) + distance);
    prefetch_to_write(words + 4 * i + kAhead);
    const Words word = rounded(scaled<kTwoFactors>(load_floats(values + i), factors.first, factors.second));
    store(words + 4 * i, swapped(word));
    return word;
  };
  const auto words_from = [&](size_t i) { return portable::quantize(weights, values, i, count, factors, words); };
  return weighed<1>(weights.of.data(), count, words_at, words_from);
}

template <typename Value>
uint64_t quantize(const Weights& weights, const Value* values, size_t count, Factors factors, uint8_t* words,
                  const uint8_t* next, bool alone) {
  return factors.second == 1.0F ? quantize_to<false>(weights, values, count, factors, words, next, alone)
                                : quantize_to<true>(weights, values, count, factors, words, next, alone);
}

// Returns words * factor / divisor, ready to be rounded to Value. It divides first and scales last, so that no
// intermediate result overflows unless the final one does.
template <typename Value>
inline Floats scaled_words(Words words, float factor, float divisor) {
  const bool divides = divisor != 1.0F;
  if constexpr (std::is_same_v<Value, float>) {
    return divides ? quotients(words, divisor, factor)
                   : __builtin_convertvector(reinterpret_cast<Integers>(words), Floats) * factor;
  } else {
    const Floats value = rounded_to_odd(words);
    return (divides ? value / divisor : value) * factor;
  }
}

template <typename Value>
uint64_t dequantize(const Weights& weights, const uint8_t* words, size_t count, int shift, float divisor, Value* values,
                    bool alone) {
  const size_t distance = distance_for(alone);
  const float factor = power_of_two(-shift);
  const auto words_at = [&](size_t i) {
    prefetch<3>(words + 4 * i + kAhead);
    prefetch_to_write(reinterpret_cast<const uint8_t*>(values + i) + distance);
    const Words word = swapped(load<Words>(words + 4 * i));
    store_numbers(values + i, scaled_words<Value>(word, factor, divisor));
    return word;
  };
  const auto words_from = [&](size_t i) {
    return portable::dequantize(weights, words, i, count, shift, divisor, values);
  };
  return weighed<1>(weights.of.data(), count, words_at, words_from);
}

template <bool kTwoFactors, typename Value>
void sum_scaled(const Parts<Value>& parts, size_t count, const SumScale& scale, Value* sums) {
  const float first = scale.factors.first;
  const float second = scale.factors.second;
  const float divisor = scale.divisor;
  const float unit = power_of_two(-scale.shift);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Words word{};
    for (size_t part = 0; part < parts.count; ++part) {
      word += rounded(scaled<kTwoFactors>(load_floats(parts.first[part] + i), first, second));
    }
    store_numbers(sums + i, scaled_words<Value>(word, unit, divisor));
  }
  portable::sum(parts, i, count, scale, sums);
}

template <typename Value>
void sum(const Parts<Value>& parts, size_t count, const SumScale& scale, Value* sums) {
  scale.factors.second == 1.0F ? sum_scaled<false>(parts, count, scale, sums)
                               : sum_scaled<true>(parts, count, scale, sums);
}

uint64_t pack(const Weights& weights, const uint8_t* values, size_t count, uint8_t* words) {
  const auto words_at = [&](size_t i) {
    const Words word = load<Words>(values + 4 * i);
    store(words + 4 * i, swapped(word));
    return word;
  };
  const auto words_from = [&](size_t i) { return portable::pack(weights, values, i, count, words); };
  return weighed<1>(weights.of.data(), count, words_at, words_from);
}

uint64_t unpack(const Weights& weights, const uint8_t* words, size_t count, uint8_t* values) {
  const auto words_at = [&](size_t i) {
    const Words word = swapped(load<Words>(words + 4 * i));
    store(values + 4 * i, word);
    return word;
  };
  const auto words_from = [&](size_t i) { return portable::unpack(weights, words, i, count, values); };
  return weighed<1>(weights.of.data(), count, words_at, words_from);
}

uint64_t weigh(const Weights& weights, const uint8_t* words, size_t first, size_t count) {
  const auto words_at = [&](size_t i) { return swapped(load<Words>(words + 4 * i)); };
  const auto words_from = [&](size_t i) { return portable::weigh(weights, words, first, i, count); };
  return weighed<1>(weights.of.data() + first, count, words_at, words_from);
}

template <typename Store>
inline void copy_by(uint8_t* to, const uint8_t* from, size_t bytes, const Store& put) {
  // A streaming store needs an aligned place.
  const size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(to) % sizeof(Words));
  std::memcpy(to, from, head);
  size_t i = head;
  for (; i + 4 * sizeof(Words) <= bytes; i += 4 * sizeof(Words)) {
    const auto first = load<Words>(from + i);
    const auto second = load<Words>(from + i + sizeof(Words));
    const auto third = load<Words>(from + i + 2 * sizeof(Words));
    const auto fourth = load<Words>(from + i + 3 * sizeof(Words));
    put(to + i, first);
    put(to + i + sizeof(Words), second);
    put(to + i + 2 * sizeof(Words), third);
    put(to + i + 3 * sizeof(Words), fourth);
  }
  std::memcpy(to + i, from + i, bytes - i);
}

void copy(uint8_t* to, const uint8_t* from, size_t bytes, bool streamed) {
  if (streamed) {
    copy_by(to, from, bytes, [](uint8_t* at, Words words) { stream(at, words); });
    std::atomic_thread_fence(std::memory_order_seq_cst);  // streaming stores are weakly ordered
  } else {
    copy_by(to, from, bytes, [](uint8_t* at, Words words) { store(at, words); });
  }
}

template <typename Half>
void widen(const Half* values, size_t count, float* floats) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_floats(floats + i, load_floats(values + i));
  }
  portable::widen(values, i, count, floats);
}

template <typename Half>
void narrow(const float* floats, size_t count, Half* values) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_floats(values + i, load_floats(floats + i));
  }
  portable::narrow(floats, i, count, values);
}

// Call act() with a constant of the same value, from which it can choose a template.
template <typename Act>
uint64_t with_flag(bool flag, const Act& act) {
  return flag ? act(std::true_type{}) : act(std::false_type{});
}
template <typename Act>
uint64_t with_lane_bits(int lane_bits, const Act& act) {
  return lane_bits == 8 ? act(std::integral_constant<int, 8>{}) : act(std::integral_constant<int, 16>{});
}

// Narrow lanes. Vectors of integers of 16 bits ("halves"), in the order of the elements, stand between values and
// words.

constexpr size_t kHalves = 2 * kLanes;

struct Pair {
  Words first;
  Words second;
};

struct FloatPair {
  Floats first;
  Floats second;
};

// The values of a pair are in their order. But BFloat16 has those in even places first, because then its halves need no
// shuffling.
template <typename Value>
constexpr bool kSplitsByPlace = std::is_same_v<Value, BFloat16>;

template <typename Value>
inline FloatPair load_pair(const Value* from) {
  if constexpr (kSplitsByPlace<Value>) {
    const Words halves = load<Words>(from);
    return {reinterpret_cast<Floats>(halves << 16), reinterpret_cast<Floats>(halves & 0xFFFF0000U)};
  } else {
    return {load_floats(from), load_floats(from + kLanes)};
  }
}

// Adds the thresholds of the elements, which begin at `thresholds`.
template <typename Value>
inline Pair plus_thresholds(Pair numbers, const uint16_t* thresholds) {
  if constexpr (kSplitsByPlace<Value>) {
    const Words halves = load<Words>(thresholds);
    return {numbers.first + (halves & 0xFFFFU), numbers.second + (halves >> 16)};
  } else {
    return {numbers.first + load_words(thresholds), numbers.second + load_words(thresholds + kLanes)};
  }
}

// Return the upper or the lower 16 bits of the numbers, in the order of the elements. Precondition of lower_halves(),
// except for BFloat16: the numbers fit 16 bits.
template <typename Value>
inline Halves upper_halves(Pair numbers) {
  if constexpr (kSplitsByPlace<Value>) {
    return alternating(numbers.first >> 16, numbers.second);
  } else {
    return upper_halves_of(numbers.first, numbers.second);
  }
}

template <typename Value>
inline Halves lower_halves(Pair numbers) {
  if constexpr (kSplitsByPlace<Value>) {
    return alternating(numbers.first, numbers.second << 16);
  } else {
    return narrowed(numbers.first, numbers.second);
  }
}

// Returns the levels nearest to values * factor as halves.
template <typename Value>
inline Halves nearest_halves(FloatPair values, float factor) {
  if constexpr (kSplitsByPlace<Value>) {
    // The product, of eight bits and at most fifteen, is exact. A float of this size has no bits below 1, so the sum is
    // rounded to an integer, whose lower half is in the lower half of the float.
    constexpr float kLarge = 0x1.8p23F;
    return lower_halves<Value>({reinterpret_cast<Words>(plus_product(kLarge, values.first, factor)),
                                reinterpret_cast<Words>(plus_product(kLarge, values.second, factor))});
  } else {
    return lower_halves<Value>({rounded(values.first * factor), rounded(values.second * factor)});
  }
}

// Returns values * factor, in which a level is kThresholds, rounded stochastically to levels as halves.
template <typename Value>
inline Halves random_halves(FloatPair values, float factor, const uint16_t* thresholds) {
  const Pair numbers = {rounded(values.first * factor), rounded(values.second * factor)};
  return upper_halves<Value>(plus_thresholds<Value>(numbers, thresholds));
}

// Writes the vector of words whose lanes begin at element i, and returns it. halves_at(i) returns the lanes of kHalves
// elements. kSignBits in kernel_functions.h describes the conversion between lanes and words.
template <int kBits, typename HalvesAt>
inline Words write_lanes(uint8_t* words, size_t i, const HalvesAt& halves_at) {
  uint8_t* const to = words + i * (kBits / 8);
  prefetch_to_write(to + kAhead);
  Words lanes = reinterpret_cast<Words>(halves_at(i));
  if constexpr (kBits == 8) {
    lanes = reinterpret_cast<Words>(narrowed(reinterpret_cast<Halves>(lanes), halves_at(i + kHalves)));
  }
  const Words word = (lanes ^ kSignBits<kBits>)-kSignBits<kBits>;
  store(to, swapped(word));
  return word;
}

// Reads the vector of words whose lanes begin at element i, and returns it. Calls set(i, halves) for each kHalves
// elements.
template <int kBits, typename Set>
inline Words read_lanes(const uint8_t* words, size_t i, const Set& set) {
  const uint8_t* const from = words + i * (kBits / 8);
  prefetch<3>(from + kAhead);
  const Words word = swapped(load<Words>(from));
  const Words lanes = (word + kSignBits<kBits>)^kSignBits<kBits>;
  if constexpr (kBits == 16) {
    set(i, reinterpret_cast<Halves>(lanes));
  } else {
    set(i, lower_of(reinterpret_cast<Bytes>(lanes)));
    set(i + kHalves, upper_of(reinterpret_cast<Bytes>(lanes)));
  }
  return word;
}

// The definition is in lanes.h.
void write_thresholds(const Rounding& rounding, size_t count, uint16_t* thresholds) {
  constexpr size_t kTogether = 32;
  constexpr std::array<uint32_t, 16> kPlaces = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  Words state = load<Words>(kPlaces.data()) * Rounding::kStep + rounding.first_key;
  for (size_t i = 0; i < count; i += 2 * kTogether) {
    for (size_t half = i; half < i + kTogether; half += kHalves) {
      Words bits = (state ^ state >> 15 ^ rounding.second_key) * Rounding::kFactor;
      bits ^= bits >> 16;
      store(thresholds + half, bits);
      store(thresholds + half + kTogether, rotated_by_8(bits));
      state += static_cast<uint32_t>(kLanes * Rounding::kStep);
    }
  }
}

template <int kBits, bool kStochastic, bool kTwoFactors, typename Value>
uint64_t quantize_lanes_to(const Weights& weights, const Value* values, size_t count, const LaneScale& scale,
                           const uint16_t* thresholds, uint8_t* words, const uint8_t* next) {
  const float first = scale.first;
  const float second = scale.second;
  const auto halves_at = [&](size_t i) {
    for (size_t line = 0; line < kHalves * sizeof(Value); line += kCacheLine) {
      prefetch<2>(next + sizeof(Value) * i + line);
      prefetch<3>(reinterpret_cast<const uint8_t*>(values + i) + line + kAhead);
    }
    FloatPair floats = load_pair(values + i);
    if constexpr (kTwoFactors) {
      floats = {floats.first * first, floats.second * first};
    }
    const float factor = kTwoFactors ? second : first;
    if constexpr (kStochastic) {
      return random_halves<Value>(floats, factor, thresholds + i);
    } else {
      return nearest_halves<Value>(floats, factor);
    }
  };
  return weighed<lanes_per_word(kBits)>(
      weights.of.data(), count, [&](size_t i) { return write_lanes<kBits>(words, i, halves_at); },
      [&](size_t i) { return portable::quantize_lanes(weights, values, i, count, kBits, scale, thresholds, words); });
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

// Returns integers as floats, in the order of load_pair(), times kEnlarged<Value>.
template <typename Value>
inline FloatPair floats_of(Halves halves) {
  Pair integers;
  if constexpr (kSplitsByPlace<Value>) {
    const Words words = reinterpret_cast<Words>(halves);
    integers = {words << 16, words & 0xFFFF0000U};
  } else {
    integers = {lower_of(halves), upper_of(halves)};
  }
  return {__builtin_convertvector(reinterpret_cast<Integers>(integers.first), Floats),
          __builtin_convertvector(reinterpret_cast<Integers>(integers.second), Floats)};
}

// Precondition: no NaN.
template <typename Value>
inline void store_pair(Value* to, FloatPair floats) {
  if constexpr (kSplitsByPlace<Value>) {
    store(to, upper_halves<Value>({rounded_to_upper_half(floats.first), rounded_to_upper_half(floats.second)}));
  } else {
    store_numbers(to, floats.first);
    store_numbers(to + kLanes, floats.second);
  }
}

template <int kBits, bool kTwoFactors, typename Value>
uint64_t dequantize_lanes_from(const Weights& weights, const uint8_t* words, size_t count, const LaneUnit& unit,
                               Value* values) {
  const float first = unit.first / kEnlarged<Value>;
  const float second = unit.second;
  const auto set = [&](size_t i, Halves halves) {
    for (size_t line = 0; line < kHalves * sizeof(Value); line += kCacheLine) {
      prefetch_to_write(reinterpret_cast<const uint8_t*>(values + i) + line + kAhead);
    }
    const FloatPair lanes = floats_of<Value>(halves);
    store_pair(values + i,
               {scaled<kTwoFactors>(lanes.first, first, second), scaled<kTwoFactors>(lanes.second, first, second)});
  };
  return weighed<lanes_per_word(kBits)>(
      weights.of.data(), count, [&](size_t i) { return read_lanes<kBits>(words, i, set); },
      [&](size_t i) { return portable::dequantize_lanes(weights, words, i, count, kBits, unit, values); });
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

// Integers that fit 16 bits.
inline Halves load_halves(const int32_t* from) { return narrowed(load<Words>(from), load<Words>(from + kLanes)); }

inline Halves load_halves(const int16_t* from) { return load<Halves>(from); }

inline Halves load_halves(const Boolean* from) { return smaller(load_halves(&from->byte), Halves{} + 1); }

inline void store_halves(int32_t* to, Halves halves) {
  store(to, lower_of(halves));
  store(to + kLanes, upper_of(halves));
}

inline void store_halves(int16_t* to, Halves halves) { store(to, halves); }

inline void store_halves(int8_t* to, Halves halves) { store_halves(reinterpret_cast<uint8_t*>(to), halves); }

inline void store_halves(Boolean* to, Halves halves) { store_halves(&to->byte, (halves == 0) + 1); }

template <int kBits, typename Integer>
uint64_t pack_lanes_to(const Weights& weights, const Integer* values, size_t count, uint8_t* words) {
  const auto halves_at = [&](size_t i) { return load_halves(values + i); };
  return weighed<lanes_per_word(kBits)>(
      weights.of.data(), count, [&](size_t i) { return write_lanes<kBits>(words, i, halves_at); },
      [&](size_t i) { return portable::pack_lanes(weights, values, i, count, kBits, words); });
}

template <typename Integer>
uint64_t pack_integers(const Weights& weights, const Integer* values, size_t count, int lane_bits, uint8_t* words) {
  if (lane_bits == kWordBits) {
    return portable::pack_lanes(weights, values, 0, count, lane_bits, words);
  }
  return with_lane_bits(lane_bits, [&](auto bits) { return pack_lanes_to<bits()>(weights, values, count, words); });
}

template <int kBits, typename Integer>
uint64_t unpack_lanes_from(const Weights& weights, const uint8_t* words, size_t count, Integer* values) {
  const auto set = [&](size_t i, Halves halves) { store_halves(values + i, halves); };
  return weighed<lanes_per_word(kBits)>(
      weights.of.data(), count, [&](size_t i) { return read_lanes<kBits>(words, i, set); },
      [&](size_t i) { return portable::unpack_lanes(weights, words, i, count, kBits, values); });
}

template <typename Integer>
uint64_t unpack_integers(const Weights& weights, const uint8_t* words, size_t count, int lane_bits, Integer* values) {
  if (lane_bits == kWordBits) {
    return portable::unpack_lanes(weights, words, 0, count, lane_bits, values);
  }
  return with_lane_bits(lane_bits, [&](auto bits) { return unpack_lanes_from<bits()>(weights, words, count, values); });
}

template <typename Integer>
bool integers_within(const Integer* values, size_t count, int32_t bound) {
  return portable::all_within(values, count, bound);
}

// Codes.

inline Floats magnitudes_of(Floats values) {
  return reinterpret_cast<Floats>(reinterpret_cast<Words>(values) & 0x7FFFFFFFU);
}

// Does what natural8_number() does for a vector of values, whose thresholds begin at `thresholds`.
inline Words natural8_numbers(Floats values, const uint16_t* thresholds) {
  const Floats magnitudes = magnitudes_of(values);
  const Words bits =
      larger(reinterpret_cast<Words>(magnitudes + 1.0F), reinterpret_cast<Words>(magnitudes + magnitudes));
  return (bits + ((load_words(thresholds) << kThresholdBit) + kNatural8Offset)) >> kFractionBits & kNumberMask;
}

// Does what dynamic8_number() does for a vector of values.
inline Words dynamic8_numbers(Floats values) {
  const Words bits = reinterpret_cast<Words>(magnitudes_of(values));
  const Words first = Words{} + kFirstCellBits;
  const Words places = smaller(larger(bits, first) - first, Words{} + kLastPlace);
  return (looked_up(kDynamic8Cells.data(), places >> kRestBits) + (places & (kRests - 1))) >> kRestBits;
}

// Writes the codes of kHalves values from i on. numbers(j, scaled) returns the numbers of a vector of scaled values.
template <typename Value, typename Numbers>
inline void write_codes(const Value* values, size_t i, const Factors& factors, uint8_t* codes, const Numbers& numbers) {
  const auto codes_at = [&](size_t j) {
    const Floats value = scaled<true>(load_floats(values + j), factors.first, factors.second);
    return (reinterpret_cast<Words>(value) >> 24 & wire::kCodeSign) | numbers(j, value);
  };
  store_halves(codes + i, narrowed(codes_at(i), codes_at(i + kLanes)));
}

template <typename Value>
void write_natural8(const Value* values, size_t count, const Factors& factors, const Rounding& rounding,
                    uint8_t* codes) {
  Thresholds thresholds;
  write_thresholds(rounding, count, thresholds.of.data());
  size_t i = 0;
  for (; i + kHalves <= count; i += kHalves) {
    write_codes(values, i, factors, codes,
                [&](size_t j, Floats value) { return natural8_numbers(value, &thresholds.of[j]); });
  }
  portable::write_natural8(values + i, count - i, factors, &thresholds.of[i], codes + i);
}

template <typename Value>
void write_dynamic8(const Value* values, size_t count, const Factors& factors, uint8_t* codes) {
  size_t i = 0;
  for (; i + kHalves <= count; i += kHalves) {
    write_codes(values, i, factors, codes, [&](size_t /*j*/, Floats value) { return dynamic8_numbers(value); });
  }
  portable::write_dynamic8(values + i, count - i, factors, codes + i);
}

constexpr Functions kFunctions = {
    {largest_magnitude<float>, quantize<float>, dequantize<float>, sum<float>, nullptr, nullptr},
    {largest_magnitude<Float16>, quantize<Float16>, dequantize<Float16>, sum<Float16>, widen<Float16>, narrow<Float16>},
    {largest_magnitude<BFloat16>, quantize<BFloat16>, dequantize<BFloat16>, sum<BFloat16>, widen<BFloat16>,
     narrow<BFloat16>},
    pack,
    unpack,
    weigh,
    copy,
};

constexpr LaneFunctions kLaneFunctions = {
    {quantize_lanes<float>, dequantize_lanes<float>},
    {quantize_lanes<Float16>, dequantize_lanes<Float16>},
    {quantize_lanes<BFloat16>, dequantize_lanes<BFloat16>},
    {pack_integers<Boolean>, unpack_integers<Boolean>, integers_within<Boolean>},
    {pack_integers<int8_t>, unpack_integers<int8_t>, integers_within<int8_t>},
    {pack_integers<uint8_t>, unpack_integers<uint8_t>, integers_within<uint8_t>},
    {pack_integers<int16_t>, unpack_integers<int16_t>, integers_within<int16_t>},
    {pack_integers<int32_t>, unpack_integers<int32_t>, integers_within<int32_t>},
};

constexpr CodeFunctions kCodeFunctions = {
    {write_natural8<float>, write_dynamic8<float>},
    {write_natural8<Float16>, write_dynamic8<Float16>},
    {write_natural8<BFloat16>, write_dynamic8<BFloat16>},
    expand_codes,
};

}  // namespace

}  // namespace switchml::kernels
