// Narrow lanes: two or four integers in each 32-bit word of a packet.
//
// With lanes of b bits, a word is the sum of lane_j * 2^(b * j) modulo 2^32 over its k = 32/b lanes, which are signed;
// lane 0 is the lowest. Such words can be added as 32-bit integers: the sum of words holds the sums of the lanes, as
// long as every sum of lanes fits b bits. Element i of a block is lane i mod k of word i / k. Lanes beyond the last
// element are 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "native/kernels/half.h"
#include "native/kernels/weights.h"

namespace switchml::kernels {

constexpr int kWordBits = 32;

// True or false in one byte of memory; every byte that is not 0 is true.
struct Boolean {
  uint8_t byte;
};

// Returns the number of lanes of a word. `lane_bits` is 8, 16 or 32, here and below.
constexpr size_t lanes_per_word(int lane_bits) { return static_cast<size_t>(kWordBits / lane_bits); }

constexpr size_t words_for(size_t elements, int lane_bits) {
  return (elements + lanes_per_word(lane_bits) - 1) / lanes_per_word(lane_bits);
}

// Returns the largest number that a lane holds.
constexpr int64_t largest_lane(int lane_bits) { return (int64_t{1} << (lane_bits - 1)) - 1; }

// Returns the largest magnitude that each of `ranks` ranks may put into a lane: 0 if it cannot hold their sums.
constexpr int32_t levels_for(int lane_bits, uint32_t ranks) {
  return static_cast<int32_t>(largest_lane(lane_bits) / ranks);
}

// Returns the key of a rank's call, from which its blocks get theirs.
uint64_t key_of_call(uint64_t seed, uint64_t call, uint32_t rank);

// How a number y is rounded to an integer: to the nearest one (to the even one of two), or stochastically, which makes
// it
//
//   floor((n + r) / 2^16)   where n is the integer nearest to y * 2^16, and r is a random integer from 0 to 2^16 - 1
//
// so that its expected value differs from y by no more than the rounding to n. The random bits depend on nothing but
// the keys and an element's place in the block. Word k of them is, modulo 2^32,
//
//   s = first_key + k * kStep,   t = (s ^ (s >> 15) ^ second_key) * kFactor,   word = t ^ (t >> 16)
//
// Sixteen words are the r of 64 elements: their lower and upper halves, word after word, of the first 32, and the
// halves of the words rotated to the left by 8 bits of the other 32. So the upper 8 bits of an r belong to no other
// element.
struct Rounding {
  static constexpr uint32_t kStep = 0x9e3779b9U;
  static constexpr uint32_t kFactor = 0x846ca68bU;

  bool stochastic = false;
  uint32_t first_key = 0;
  uint32_t second_key = 0;

  Rounding() = default;
  // Makes stochastic rounding for a block whose first element is this one of the call.
  Rounding(uint64_t call_key, uint64_t element);
};

// lane_i = values[i] * 2^shift * levels in float32, rounded. If |values[i]| * 2^shift < 1, then |lane_i| <= levels.
// Returns the weighed sum of the words. For `next` see quantize() in kernels.h. Here and in
// dequantize_lanes(), `lane_bits` is 8 or 16.
template <typename Value>
uint64_t quantize_lanes(const Weights& weights, const Value* values, size_t count, int lane_bits, int shift,
                        int32_t levels, const Rounding& rounding, uint8_t* words, const Value* next = nullptr);

// values[i] = lane_i / divisor * 2^-shift: the product with the float32 number next to 1/divisor, rounded to float32
// and then to Value. The divisor is positive. Returns the weighed sum of the words.
template <typename Value>
uint64_t dequantize_lanes(const Weights& weights, const uint8_t* words, size_t count, int lane_bits, int shift,
                          int32_t divisor, Value* values);

// Conversions of integers to lanes and back; both returns the weighed sum of the words. Integer is Boolean, int8_t,
// uint8_t, int16_t or int32_t. Precondition of pack_lanes: the values fit their lanes. unpack_lanes stores a lane
// modulo the range of Integer; a Boolean is true if its lane is not 0.
template <typename Integer>
uint64_t pack_lanes(const Weights& weights, const Integer* values, size_t count, int lane_bits, uint8_t* words);
template <typename Integer>
uint64_t unpack_lanes(const Weights& weights, const uint8_t* words, size_t count, int lane_bits, Integer* values);

// Returns whether -bound <= value <= bound for all values. The bound is not negative.
template <typename Integer>
bool all_within(const Integer* values, size_t count, int32_t bound);

}  // namespace switchml::kernels
