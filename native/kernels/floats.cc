#include "native/kernels/floats.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace switchml::kernels {

namespace {

// One body serves all instruction sets: the compiler makes vectors of the loops over lanes, for the instructions of the
// function into which it inlines them.
#define SWITCHML_INLINE inline __attribute__((always_inline))

constexpr uint32_t kFractionBits = 23;
constexpr uint32_t kDigitBits = 24;
constexpr uint32_t kDigitMask = (1U << kDigitBits) - 1;
constexpr uint32_t kLargestField = 255;  // of an exponent: NaN or infinity
constexpr uint32_t kPlaceMask = 0xFF;
constexpr uint32_t kPlusInfinity = 0x100;
constexpr uint32_t kMinusInfinity = 0x200;
constexpr uint32_t kNan = 0x400;
constexpr uint32_t kNanBits = 0x7FC00000;
constexpr uint32_t kInfinityBits = 0x7F800000;

constexpr uint32_t kDoubleBias = 1023;  // of the exponent field of a double
constexpr uint32_t kFloatUnit = 149;    // all floats are multiples of 2^-149
constexpr double kDigit = 1U << kDigitBits;

constexpr size_t kPart = 64;  // lanes that are summed at a time: their sums stay in the nearest cache

template <typename To, typename From>
SWITCHML_INLINE To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

SWITCHML_INLINE uint32_t word_at(const uint8_t* words, size_t lane) {
  uint32_t word;
  std::memcpy(&word, words + 4 * lane, sizeof word);
  return __builtin_bswap32(word);
}

// Returns the value where the condition holds, and 0 elsewhere, without a branch.
SWITCHML_INLINE uint32_t where(bool condition, uint32_t value) {
  return (0U - static_cast<uint32_t>(condition)) & value;
}
SWITCHML_INLINE int32_t where(bool condition, int32_t value) {
  return static_cast<int32_t>(where(condition, static_cast<uint32_t>(value)));
}

// Returns the sum with one more number.
SWITCHML_INLINE FloatSum with_number(const FloatSum& sum, uint32_t bits) {
  const uint32_t field = bits >> kFractionBits & kLargestField;
  const uint32_t fraction = bits & ((1U << kFractionBits) - 1);
  const uint32_t negative = bits >> 31;
  const bool finite = field != kLargestField;
  const uint32_t power = where(finite & (field != 0), field - 1);
  const uint32_t integer = where(finite, fraction | where(field != 0, 1U << kFractionBits));

  const uint32_t digit = power * 171 >> 12;  // power / kDigitBits, for all powers
  const uint32_t rest = power - digit * kDigitBits;
  const auto sign = static_cast<int32_t>(0U - negative);
  const int32_t upper = (static_cast<int32_t>(integer >> (kDigitBits - rest)) ^ sign) - sign;
  const int32_t lower = (static_cast<int32_t>((integer << rest) & kDigitMask) ^ sign) - sign;

  const uint32_t before = sum.place & kPlaceMask;
  const uint32_t own = digit + 1;
  const uint32_t now = before > own ? before : own;
  const uint32_t up = now - before;  // how many places the digits of the sum move down
  const uint32_t down = now - own;   // and those of the number
  const uint32_t infinity = kPlusInfinity + negative * (kMinusInfinity - kPlusInfinity);
  const uint32_t kind = where(!finite, where(fraction != 0, kNan) | where(fraction == 0, infinity));
  return {where(up == 0, sum.high) + where(down == 0, upper),
          where(up == 0, sum.middle) + where(up == 1, sum.high) + where(down == 0, lower) + where(down == 1, upper),
          where(up == 0, sum.low) + where(up == 1, sum.middle) + where(up == 2, sum.high) + where(down == 1, lower) +
              where(down == 2, upper),
          (sum.place & ~kPlaceMask) | kind | now};
}

// Returns the place of the highest digit of numbers whose largest exponent field is `field`.
SWITCHML_INLINE uint32_t place_of_field(uint32_t field) {
  const uint32_t power = where(field != 0, field - 1);
  return (power * 171 >> 12) + 1;
}

// Returns 2^(exponent_field - 1023). Precondition: the field is 1 to 2046.
SWITCHML_INLINE double power_of_two(uint32_t exponent_field) {
  return bits_as<double>(static_cast<uint64_t>(exponent_field) << 52);
}

// Returns the bits of the float nearest to (upper * 2^24 + low) * 2^(24 * (place - 2) - 149); both are integers of at
// most 53 bits. Their sum is rounded to odd: its last bit is set if it is not exact. The float nearest to it is then
// the one nearest to the exact sum (Boldo and Melquiond, 2008).
SWITCHML_INLINE uint32_t rounded(double upper, double low, uint32_t place) {
  const double high = upper * kDigit;
  const double nearest = high + low;
  const double of_low = nearest - high;
  const double error = (high - (nearest - of_low)) + (low - of_low);
  const auto near = bits_as<uint64_t>(nearest);
  const auto rest = bits_as<uint64_t>(error);
  const uint64_t inexact = 0 - static_cast<uint64_t>(rest << 1 != 0);
  const uint64_t smaller = (near ^ rest) >> 63;  // 1 if the exact sum has the smaller magnitude
  const uint64_t odd = near + ((1 - 2 * smaller) & inexact & ((near & 1) - 1));
  constexpr uint32_t kUnit = kDoubleBias - kFloatUnit - 2 * kDigitBits;
  return bits_as<uint32_t>(static_cast<float>(bits_as<double>(odd) * power_of_two(kUnit + kDigitBits * place)));
}

SWITCHML_INLINE uint32_t rounded(const FloatSum& sum) {
  const uint32_t number = rounded(sum.high * kDigit + sum.middle, sum.low, sum.place & kPlaceMask);
  const uint32_t plus = sum.place & kPlusInfinity;
  const uint32_t minus = sum.place & kMinusInfinity;
  const bool nan = ((sum.place & kNan) | (plus & minus >> 1)) != 0;
  const uint32_t special = where(nan, kNanBits) | where(!nan, kInfinityBits | minus << 22);
  const bool finite = sum.place <= kPlaceMask;
  return where(finite, number) | where(!finite, special);
}

template <bool kBegins>
SWITCHML_INLINE void add_lanes(const uint8_t* words, size_t count, const FloatSums& sums) {
  int32_t* const high = sums.high();
  int32_t* const middle = sums.middle();
  int32_t* const low = sums.low();
  uint32_t* const place = sums.place();
  for (size_t lane = 0; lane < count; ++lane) {
    const FloatSum before = kBegins ? FloatSum{} : FloatSum{high[lane], middle[lane], low[lane], place[lane]};
    const FloatSum sum = with_number(before, word_at(words, lane));
    high[lane] = sum.high;
    middle[lane] = sum.middle;
    low[lane] = sum.low;
    place[lane] = sum.place;
  }
}

SWITCHML_INLINE void round_lanes(const FloatSums& sums, size_t count, uint8_t* words) {
  const int32_t* const high = sums.high();
  const int32_t* const middle = sums.middle();
  const int32_t* const low = sums.low();
  const uint32_t* const place = sums.place();
  for (size_t lane = 0; lane < count; ++lane) {
    const uint32_t word = __builtin_bswap32(rounded({high[lane], middle[lane], low[lane], place[lane]}));
    std::memcpy(words + 4 * lane, &word, sizeof word);
  }
}

SWITCHML_INLINE FloatSums from_lane(const FloatSums& sums, size_t lane, size_t count,
                                    std::array<uint32_t, 4 * kPart>* copy) {
  const FloatSums part(copy->data(), kPart);
  std::copy_n(sums.high() + lane, count, part.high());
  std::copy_n(sums.middle() + lane, count, part.middle());
  std::copy_n(sums.low() + lane, count, part.low());
  std::copy_n(sums.place() + lane, count, part.place());
  return part;
}

// A part of the lanes of all buffers. Loops over it have the same number of lanes each time, and arrays that cannot
// overlap, so compilers make vectors of them.
struct Part {
  const SumBuffers& buffers;
  size_t first;
  size_t count;

  SWITCHML_INLINE const uint8_t* words(size_t buffer) const { return buffers.first[buffer] + 4 * first; }
  SWITCHML_INLINE void load(size_t buffer, std::array<uint32_t, kPart>* words) const {
    if (count == kPart) {
      std::memcpy(words->data(), this->words(buffer), sizeof *words);  // of a constant length: not a call
    } else {
      std::memcpy(words->data(), this->words(buffer), 4 * count);
    }
    for (uint32_t& word : *words) word = __builtin_bswap32(word);
  }
};

// The largest exponent field that a lane has in any source, and the smallest of its numbers but zeros.
struct Fields {
  alignas(64) std::array<uint32_t, kPart> largest{};
  alignas(64) std::array<uint32_t, kPart> smallest;

  SWITCHML_INLINE Fields() { smallest.fill(kLargestField); }
  SWITCHML_INLINE void take(const std::array<uint32_t, kPart>& words) {
    for (size_t lane = 0; lane < kPart; ++lane) {
      const uint32_t field = words[lane] >> kFractionBits & kLargestField;
      const uint32_t unless_zero = field | where(words[lane] << 1 == 0, kLargestField);
      largest[lane] = largest[lane] > field ? largest[lane] : field;
      smallest[lane] = smallest[lane] < unless_zero ? smallest[lane] : unless_zero;
    }
  }
  SWITCHML_INLINE bool all_finite() const {
    uint32_t most = 0;
    for (const uint32_t field : largest) most = most > field ? most : field;
    return most != kLargestField;
  }
  SWITCHML_INLINE bool all_within(int32_t distance) const {
    int32_t most = 0;
    for (size_t lane = 0; lane < kPart; ++lane) {
      const auto own = static_cast<int32_t>(largest[lane] - smallest[lane]);
      most = most > own ? most : own;
    }
    return most <= distance;
  }
};

// Returns the number of binary places by which the numbers of a lane may differ such that the sum of `count` of them in
// a double is exact, in any order, and none has a bit below the three digits.
SWITCHML_INLINE int32_t exact_distance(size_t count) {
  constexpr int32_t kDoubleBits = 53;
  constexpr int32_t kNumberBits = kFractionBits + 1;
  int32_t carries = 0;
  while (size_t{1} << carries < count) ++carries;
  return std::min(static_cast<int32_t>(kDigitBits), kDoubleBits - kNumberBits - carries);
}

// Writes the rounded sums of a part if plain sums of doubles are exact, which they are for nearly all numbers that
// ranks have in the same lane. Otherwise returns false, without effect, and the fields.
SWITCHML_INLINE bool sum_near(const Part& part, Fields* fields, uint8_t* result) {
  alignas(64) std::array<double, kPart> sums{};
  alignas(64) std::array<uint32_t, kPart> words{};
  for (size_t buffer = 0; buffer < part.buffers.sources; ++buffer) {
    part.load(buffer, &words);
    fields->take(words);
    for (size_t lane = 0; lane < kPart; ++lane) sums[lane] += static_cast<double>(bits_as<float>(words[lane]));
  }
  if (!fields->all_finite() || !fields->all_within(exact_distance(part.buffers.sources))) return false;
  for (size_t lane = 0; lane < kPart; ++lane) {
    words[lane] = __builtin_bswap32(bits_as<uint32_t>(static_cast<float>(sums[lane])));
  }
  std::memcpy(result, words.data(), 4 * part.count);
  return true;
}

// Writes the rounded sums of a part, if all numbers are finite. Because all numbers are there, the places of the digits
// are known before they are added up, and two doubles hold what three digits do. The sources are read a second time:
// what a process changes in between makes the sum another one, but all buffers get the same.
SWITCHML_INLINE void sum_far(const Part& part, const Fields& fields, uint8_t* result) {
  alignas(64) std::array<uint32_t, kPart> places = fields.largest;
  alignas(64) std::array<double, kPart> factors;
  alignas(64) std::array<double, kPart> upper{};  // of the two higher digits
  alignas(64) std::array<double, kPart> lower{};
  alignas(64) std::array<uint32_t, kPart> words{};
  for (size_t lane = 0; lane < kPart; ++lane) {
    places[lane] = place_of_field(places[lane]);
    factors[lane] = power_of_two(kDoubleBias + kFloatUnit + kDigitBits - kDigitBits * places[lane]);
  }
  for (size_t buffer = 0; buffer < part.buffers.sources; ++buffer) {
    part.load(buffer, &words);
    for (size_t lane = 0; lane < kPart; ++lane) {
      const double number = static_cast<double>(bits_as<float>(words[lane])) * factors[lane];
      const double whole = __builtin_trunc(number);
      upper[lane] += whole;
      lower[lane] += __builtin_trunc((number - whole) * kDigit);
    }
  }
  for (size_t lane = 0; lane < kPart; ++lane) {
    words[lane] = __builtin_bswap32(rounded(upper[lane], lower[lane], places[lane]));
  }
  std::memcpy(result, words.data(), 4 * part.count);
}

SWITCHML_INLINE void sum_any(const Part& part, const FloatSums* sums, uint8_t* result) {
  alignas(64) std::array<uint32_t, FloatSums::kArrays * kPart> memory{};
  const FloatSums of_part =
      sums == nullptr ? FloatSums(memory.data(), kPart) : from_lane(*sums, part.first, part.count, &memory);
  for (size_t buffer = 0; buffer < part.buffers.sources; ++buffer) {
    add_lanes<false>(part.words(buffer), part.count, of_part);
  }
  round_lanes(of_part, part.count, result);
}

SWITCHML_INLINE void sum_part(const Part& part, const FloatSums* sums, uint8_t* result) {
  Fields fields;
  if (sums == nullptr && sum_near(part, &fields, result)) return;
  if (sums == nullptr && fields.all_finite()) return sum_far(part, fields, result);
  sum_any(part, sums, result);
}

// Prefetches the lines that a later part will read, and mostly write. They are in other cores' caches.
SWITCHML_INLINE void prefetch_after(const Part& part) {
  constexpr size_t kAhead = 1024;  // bytes
  constexpr size_t kLine = 64;
  for (size_t buffer = 0; buffer < part.buffers.count; ++buffer) {
    const uint8_t* const ahead = part.words(buffer) + kAhead;
    for (size_t line = 0; line < 4 * kPart; line += kLine) __builtin_prefetch(ahead + line, 1);
  }
}

SWITCHML_INLINE void sum_lanes(const SumBuffers& buffers, size_t count, const FloatSums* sums) {
  for (size_t first = 0; first < count; first += kPart) {
    const Part part{buffers, first, std::min(kPart, count - first)};
    prefetch_after(part);
    alignas(64) std::array<uint8_t, 4 * kPart> result;
    sum_part(part, sums, result.data());
    for (size_t buffer = buffers.first_written; buffer < buffers.count; ++buffer) {
      std::memcpy(buffers.first[buffer] + 4 * first, result.data(), 4 * part.count);
    }
  }
}

struct Functions {
  void (*begin)(const uint8_t* words, size_t count, const FloatSums& sums);
  void (*add)(const uint8_t* words, size_t count, const FloatSums& sums);
  void (*round)(const FloatSums& sums, size_t count, uint8_t* words);
  void (*sum)(const SumBuffers& buffers, size_t count, const FloatSums* sums);
};

// A set of functions NAME with the instructions of TARGET.
// NOLINTBEGIN(bugprone-macro-parentheses): an attribute has none.
#define SWITCHML_FLOAT_FUNCTIONS(NAME, TARGET)                                                                       \
  TARGET void begin_##NAME(const uint8_t* words, size_t count, const FloatSums& sums) {                              \
    add_lanes<true>(words, count, sums);                                                                             \
  }                                                                                                                  \
  TARGET void add_##NAME(const uint8_t* words, size_t count, const FloatSums& sums) {                                \
    add_lanes<false>(words, count, sums);                                                                            \
  }                                                                                                                  \
  TARGET void round_##NAME(const FloatSums& sums, size_t count, uint8_t* words) { round_lanes(sums, count, words); } \
  TARGET void sum_##NAME(const SumBuffers& buffers, size_t count, const FloatSums* sums) {                           \
    sum_lanes(buffers, count, sums);                                                                                 \
  }                                                                                                                  \
  constexpr Functions k_##NAME = {begin_##NAME, add_##NAME, round_##NAME, sum_##NAME};

SWITCHML_FLOAT_FUNCTIONS(portable, )
#if defined(__x86_64__)
SWITCHML_FLOAT_FUNCTIONS(avx2, __attribute__((target("avx2"))))
SWITCHML_FLOAT_FUNCTIONS(avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))))
#endif

// NOLINTEND(bugprone-macro-parentheses)

const Functions& in_use() {
#if defined(__x86_64__)
  switch (instructions_to_add()) {
    case Instructions::avx512:
      return k_avx512;
    case Instructions::avx2:
      return k_avx2;
    default:
      break;
  }
#endif
  return k_portable;
}

}  // namespace

void add_float(uint32_t bits, FloatSum* sum) { *sum = with_number(*sum, bits); }

uint32_t rounded_float(const FloatSum& sum) { return rounded(sum); }

void begin_floats(const uint8_t* words, size_t count, const FloatSums& sums) { in_use().begin(words, count, sums); }

void add_floats(const uint8_t* words, size_t count, const FloatSums& sums) { in_use().add(words, count, sums); }

void round_floats(const FloatSums& sums, size_t count, uint8_t* words) { in_use().round(sums, count, words); }

void sum_float_buffers(const SumBuffers& buffers, size_t count, const FloatSums* sums) {
  in_use().sum(buffers, count, sums);
}

}  // namespace switchml::kernels
