// Declarations shared by the files that implement one instruction set each, and the table through which kernels.cc
// calls them. The parameters are those of kernels.h.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "native/kernels/half.h"
#include "native/kernels/lanes.h"
#include "native/kernels/parts.h"
#include "native/kernels/weights.h"
#include "native/wire/constants.h"

namespace switchml::kernels {

constexpr size_t kCacheLine = 64;

constexpr int kLargestFactor = 126;  // 2^126 and 2^-126 are normal float32 numbers

// Returns 2^exponent, which must be a normal number. A call of the math library would take about as long as the
// arithmetic on part of a block.
inline float power_of_two(int exponent) { return float_of(static_cast<uint32_t>(exponent + 127) << 23); }

// A factor 2^shift, where |shift| is at most twice kLargestFactor, split into two factors that are normal numbers.
// Multiplying by the first one loses no bit that matters: either it enlarges the value, which is exact, or the result
// rounds to the integer zero anyway.
struct Factors {
  float first;
  float second;
  explicit Factors(int shift) {
    const int part = shift > kLargestFactor ? kLargestFactor : (shift < -kLargestFactor ? -kLargestFactor : shift);
    first = power_of_two(part);
    second = power_of_two(shift - part);
  }
};

// How the sum of a block's values is computed: each value times the factors, rounded; then their sum times 2^-shift,
// divided by the divisor.
struct SumScale {
  Factors factors;
  int shift;
  float divisor;
};

// The functions for values of one type.
template <typename Value>
struct ValueFunctions {
  uint32_t (*largest_magnitude)(const Value* values, size_t count);
  // `next` is never null: prefetching memory that is already in the cache costs nothing.
  uint64_t (*quantize)(const Weights& weights, const Value* values, size_t count, Factors factors, uint8_t* words,
                       const uint8_t* next, bool alone);
  // Preconditions: the shift is at most largest_shift(), the divisor at most kLargestDivisor; the portable function
  // takes any.
  uint64_t (*dequantize)(const Weights& weights, const uint8_t* words, size_t count, int shift, float divisor,
                         Value* values, bool alone);
  // Preconditions as for dequantize().
  void (*sum)(const Parts<Value>& parts, size_t count, const SumScale& scale, Value* sums);
  // Conversions to float32 and back; null for float32 itself.
  void (*widen)(const Value* values, size_t count, float* floats);
  void (*narrow)(const float* floats, size_t count, Value* values);
};

// Returns the largest shift for which the functions for instruction sets round a quotient once, where the divisor is
// below 2^divisor_bits. The product of a word and 2^-shift in float32 is exact (except for overflow) as long as it
// cannot be subnormal; the smallest one is 1 * 2^-shift. For 16-bit types the quotient must not be subnormal either
// before it is rounded.
template <typename Value>
constexpr int largest_shift(int divisor_bits) {
  return sizeof(Value) == sizeof(float) ? kLargestFactor : kLargestFactor - divisor_bits;
}

// The largest divisor for which they round a quotient once. The quotients of float32 are computed in double, where
// those of any number of ranks are exact enough (kernels_portable.cc). For 16-bit types the word is rounded to odd in
// float32, then divided there. That gives the right number if the divisor times a number halfway between two of Value
// is a float32 number whose last bit is 0, so that the rounded word is on the same side of it as the word. Such numbers
// have 12 bits in Float16 and 9 in BFloat16; the product may have 23.
template <typename Value>
inline constexpr float kLargestDivisor = wire::protocol::max_world;
template <>
inline constexpr float kLargestDivisor<Float16> = 1 << 11;
static_assert(wire::protocol::max_world <= 1 << 12, "an average divides by at most 2^12 ranks");

// The number of thresholds of stochastic rounding: it rounds numbers with as many steps between two integers (lanes.h).
constexpr float kThresholds = 0x1p16F;

// The factors that scale a value to levels of a narrow lane: value * first * second. The second one is 1 unless it must
// be apart, because the product of both is not a normal number. For stochastic rounding they contain kThresholds.
struct LaneScale {
  float first;
  float second;
  LaneScale(int shift, int32_t levels, bool stochastic);
};

// The factors that scale a sum of lanes to a value: lane * first * second. The second one is 1 unless it must be apart.
struct LaneUnit {
  float first;
  float second;
  LaneUnit(int shift, int32_t divisor);
};

// The bits of a word in which the signs of its lanes are. Two's complement integers one after the other, `bits`, are
// not yet a word, in which a negative lane borrows from the next one. But bits ^ kSignBits is the word of lanes that
// are all larger by 2^(b - 1), thus not negative, so word = (bits ^ kSignBits) - kSignBits.
template <int kBits>
constexpr uint32_t kSignBits = kBits == 16 ? 0x80008000U : 0x80808080U;

// The random numbers of a block for stochastic rounding, in the order of its elements.
struct Thresholds {
  alignas(64) std::array<uint16_t, wire::protocol::max_values * lanes_per_word(8)> of;
};

// The functions for narrow lanes of one floating-point type and of one integer type.
template <typename Value>
struct FloatLanes {
  // `next` as in ValueFunctions.
  uint64_t (*quantize)(const Weights& weights, const Value* values, size_t count, int lane_bits, const LaneScale& scale,
                       const Rounding& rounding, uint8_t* words, const uint8_t* next);
  uint64_t (*dequantize)(const Weights& weights, const uint8_t* words, size_t count, int lane_bits,
                         const LaneUnit& unit, Value* values);
};

template <typename Integer>
struct IntegerLanes {
  uint64_t (*pack)(const Weights& weights, const Integer* values, size_t count, int lane_bits, uint8_t* words);
  uint64_t (*unpack)(const Weights& weights, const uint8_t* words, size_t count, int lane_bits, Integer* values);
  bool (*all_within)(const Integer* values, size_t count, int32_t bound);
};

struct LaneFunctions {
  FloatLanes<float> float32;
  FloatLanes<Float16> float16;
  FloatLanes<BFloat16> bfloat16;
  IntegerLanes<Boolean> boolean;
  IntegerLanes<int8_t> int8;
  IntegerLanes<uint8_t> uint8;
  IntegerLanes<int16_t> int16;
  IntegerLanes<int32_t> int32;

  const FloatLanes<float>& of(const float* /*type*/) const { return float32; }
  const FloatLanes<Float16>& of(const Float16* /*type*/) const { return float16; }
  const FloatLanes<BFloat16>& of(const BFloat16* /*type*/) const { return bfloat16; }
  const IntegerLanes<Boolean>& of(const Boolean* /*type*/) const { return boolean; }
  const IntegerLanes<int8_t>& of(const int8_t* /*type*/) const { return int8; }
  const IntegerLanes<uint8_t>& of(const uint8_t* /*type*/) const { return uint8; }
  const IntegerLanes<int16_t>& of(const int16_t* /*type*/) const { return int16; }
  const IntegerLanes<int32_t>& of(const int32_t* /*type*/) const { return int32; }
};

extern const LaneFunctions kPortableLanes;
#if defined(__x86_64__)
extern const LaneFunctions kAvx2Lanes;
extern const LaneFunctions kAvx512Lanes;
#elif defined(__aarch64__)
extern const LaneFunctions kNeonLanes;
#endif

struct Functions {
  ValueFunctions<float> float32;
  ValueFunctions<Float16> float16;
  ValueFunctions<BFloat16> bfloat16;
  uint64_t (*pack)(const Weights& weights, const uint8_t* values, size_t count, uint8_t* words);
  uint64_t (*unpack)(const Weights& weights, const uint8_t* words, size_t count, uint8_t* values);
  uint64_t (*weigh)(const Weights& weights, const uint8_t* words, size_t first, size_t count);
  void (*copy)(uint8_t* to, const uint8_t* from, size_t bytes, bool streamed);

  const ValueFunctions<float>& of(const float* /*type*/) const { return float32; }
  const ValueFunctions<Float16>& of(const Float16* /*type*/) const { return float16; }
  const ValueFunctions<BFloat16>& of(const BFloat16* /*type*/) const { return bfloat16; }
};

extern const Functions kPortable;
#if defined(__x86_64__)
extern const Functions kAvx2;
extern const Functions kAvx512;
#elif defined(__aarch64__)
extern const Functions kNeon;
#endif

// The functions for codes of values of one type, and for those of all types.
template <typename Value>
struct CodeWriters {
  void (*natural8)(const Value* values, size_t count, const Factors& factors, const Rounding& rounding, uint8_t* codes);
  void (*dynamic8)(const Value* values, size_t count, const Factors& factors, uint8_t* codes);
};

struct CodeFunctions {
  CodeWriters<float> float32;
  CodeWriters<Float16> float16;
  CodeWriters<BFloat16> bfloat16;
  void (*expand)(const uint8_t* codes, size_t count, wire::Format format, uint8_t* words);

  const CodeWriters<float>& of(const float* /*type*/) const { return float32; }
  const CodeWriters<Float16>& of(const Float16* /*type*/) const { return float16; }
  const CodeWriters<BFloat16>& of(const BFloat16* /*type*/) const { return bfloat16; }
};

extern const CodeFunctions kPortableCodes;
#if defined(__x86_64__)
extern const CodeFunctions kAvx2Codes;
extern const CodeFunctions kAvx512Codes;
#elif defined(__aarch64__)
extern const CodeFunctions kNeonCodes;
#endif

// The reference implementation of each function, from value `first` of the block on. The other files use it also for
// the values at the end of a block that do not fill a vector. The templates exist for float, Float16 and BFloat16.
namespace portable {

// The number that an integer or truth value of a tensor stands for.
template <typename Integer>
struct NumberOf {
  using Type = Integer;
  static Type of(Integer value) { return value; }
};
template <>
struct NumberOf<Boolean> {
  using Type = uint8_t;
  static Type of(Boolean value) { return value.byte != 0 ? 1 : 0; }
};

template <typename Value>
uint32_t largest_magnitude(const Value* values, size_t first, size_t count);
template <typename Value>
uint64_t quantize(const Weights& weights, const Value* values, size_t first, size_t count, Factors factors,
                  uint8_t* words);
template <typename Value>
uint64_t dequantize(const Weights& weights, const uint8_t* words, size_t first, size_t count, int shift, float divisor,
                    Value* values);
template <typename Value>
void sum(const Parts<Value>& parts, size_t first, size_t count, const SumScale& scale, Value* sums);
template <typename Half>
void widen(const Half* values, size_t first, size_t count, float* floats);
template <typename Half>
void narrow(const float* floats, size_t first, size_t count, Half* values);
uint64_t pack(const Weights& weights, const uint8_t* values, size_t first, size_t count, uint8_t* words);
uint64_t unpack(const Weights& weights, const uint8_t* words, size_t first, size_t count, uint8_t* values);
// Returns the weighed sum of words that begin at `first` in the block for i in [begin, end).
uint64_t weigh(const Weights& weights, const uint8_t* words, size_t first, size_t begin, size_t end);

// Writes the random numbers of the first `count` elements of a block, and those up to a multiple of 64.
void write_thresholds(const Rounding& rounding, size_t count, uint16_t* thresholds);

// For narrow lanes, `first` is an element that starts a word. Without thresholds, quantize_lanes() rounds to nearest.
template <typename Value>
uint64_t quantize_lanes(const Weights& weights, const Value* values, size_t first, size_t count, int lane_bits,
                        const LaneScale& scale, const uint16_t* thresholds, uint8_t* words);
template <typename Value>
uint64_t dequantize_lanes(const Weights& weights, const uint8_t* words, size_t first, size_t count, int lane_bits,
                          const LaneUnit& unit, Value* values);
template <typename Integer>
uint64_t pack_lanes(const Weights& weights, const Integer* values, size_t first, size_t count, int lane_bits,
                    uint8_t* words);
template <typename Integer>
uint64_t unpack_lanes(const Weights& weights, const uint8_t* words, size_t first, size_t count, int lane_bits,
                      Integer* values);

// Codes do not depend on the place of a value, so these have no `first`: for natural8, `thresholds` are those of the
// values.
template <typename Value>
void write_natural8(const Value* values, size_t count, const Factors& factors, const uint16_t* thresholds,
                    uint8_t* codes);
template <typename Value>
void write_dynamic8(const Value* values, size_t count, const Factors& factors, uint8_t* codes);
void expand_codes(const uint8_t* codes, size_t count, wire::Format format, uint8_t* words);

// Inlined into functions for each instruction set, so that the compiler makes vectors of that set.
template <typename Integer>
[[gnu::always_inline]] inline bool all_within(const Integer* values, size_t count, int32_t bound) {
  constexpr size_t kPart = 4096;  // after which a value beyond the bound is noticed
  using Number = typename NumberOf<Integer>::Type;
  const auto high = static_cast<Number>(std::min<int64_t>(bound, std::numeric_limits<Number>::max()));
  const auto low = static_cast<Number>(std::max<int64_t>(-int64_t{bound}, std::numeric_limits<Number>::min()));
  for (size_t begin = 0; begin < count; begin += kPart) {
    Number beyond = 0;
    for (size_t i = begin; i < std::min(begin + kPart, count); ++i) {
      const Number value = NumberOf<Integer>::of(values[i]);
      beyond = static_cast<Number>(beyond | (value > high ? 1 : 0) | (value < low ? 1 : 0));
    }
    if (beyond != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace portable

}  // namespace switchml::kernels
