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

// Returns the largest magnitude that each of `ranks` ranks may put into a lane.
constexpr int32_t levels_for(int lane_bits, uint32_t ranks) {
  return static_cast<int32_t>(largest_lane(lane_bits) / ranks);
}

// Makes numbers that look random from a counter, so that they depend on nothing but the key and the element. Bijective
// in `counter` (the constants are those of "lowbias32" by C. Wellons).
inline uint32_t scrambled(uint32_t counter, uint32_t first_key, uint32_t second_key) {
  uint32_t bits = counter + first_key;
  bits = (bits ^ (bits >> 16)) * 0x7feb352dU;
  bits = ((bits ^ (bits >> 15)) + second_key) * 0x846ca68bU;
  return bits ^ (bits >> 16);
}

// How a number between two integers is rounded: to the nearest one (to the even one of two), or stochastically: upwards
// with a probability equal to its distance from the lower one, so that the expected value is the number itself.
struct Rounding {
  bool stochastic = false;
  // The key and the counter of the block's first element; the counter of a later element is larger by its place.
  uint32_t first_key = 0;
  uint32_t second_key = 0;
  uint32_t counter = 0;

  Rounding() = default;
  // Makes stochastic rounding for `element` of a rank's call.
  Rounding(uint64_t seed, uint64_t call, uint32_t rank, uint64_t element);
};

// lane_i = values[i] * 2^shift * levels in float32, rounded. If |values[i]| * 2^shift < 1, then |lane_i| <= levels.
// Returns the sum of weight_j * words[j] modulo 2^32. For `streaming` see quantize() in kernels.h.
template <typename Value>
uint32_t quantize_lanes(const Value* values, size_t count, int lane_bits, int shift, int32_t levels,
                        const Rounding& rounding, uint8_t* words, bool streaming = false);

// values[i] = lane_i / divisor * 2^-shift: the product with the float32 number next to 1/divisor, rounded to float32
// and then to Value. The divisor is positive. Returns the sum of weight_j * words[j].
template <typename Value>
uint32_t dequantize_lanes(const uint8_t* words, size_t count, int lane_bits, int shift, int32_t divisor, Value* values);

// Conversions of integers to lanes and back; both return the sum of weight_j * words[j]. Integer is Boolean, int8_t,
// uint8_t, int16_t or int32_t. Precondition of pack_lanes: the values fit their lanes. unpack_lanes stores a lane
// modulo the range of Integer; a Boolean is true if its lane is not 0.
template <typename Integer>
uint32_t pack_lanes(const Integer* values, size_t count, int lane_bits, uint8_t* words, bool streaming = false);
template <typename Integer>
uint32_t unpack_lanes(const uint8_t* words, size_t count, int lane_bits, Integer* values);

// Returns whether -bound <= value <= bound for all values. The bound is not negative.
template <typename Integer>
bool all_within(const Integer* values, size_t count, int32_t bound);

}  // namespace switchml::kernels
