// Sums of float32 numbers that do not depend on the order in which the numbers come (docs/guides/floats.md).
//
// A number is +-m * 2^(p - 149) with an integer m of 24 bits. Cut at fixed places, every 24 bits from 2^-149 up, it has
// two digits. A sum has the three highest digits that any of its numbers can have; what is below them is dropped, which
// depends on the largest number alone. So the sum of N numbers is exact but for less than N * 2^-47 of the largest
// magnitude, and is rounded once, to nearest even, at its end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "native/kernels/accumulate.h"

namespace switchml::kernels {

// The state of a sum in one lane.
struct FloatSum {
  int32_t high = 0;  // the digits, with a sign: they hold those of 128 numbers
  int32_t middle = 0;
  int32_t low = 0;
  uint32_t place =
      0;  // in the lowest byte that of the highest digit, 0 without numbers; above it the flags of kinds seen
};

// The sums of one packet's lanes, as arrays of `stride` members each.
class FloatSums {
 public:
  static constexpr size_t kArrays = 4;

  // `memory` has kArrays * stride words and starts at a multiple of 64 bytes, as does each array.
  FloatSums(uint32_t* memory, size_t stride) : memory_(memory), stride_(stride) {}

  int32_t* high() const { return reinterpret_cast<int32_t*>(memory_); }
  int32_t* middle() const { return reinterpret_cast<int32_t*>(memory_ + stride_); }
  int32_t* low() const { return reinterpret_cast<int32_t*>(memory_ + 2 * stride_); }
  uint32_t* place() const { return memory_ + 3 * stride_; }
  FloatSum at(size_t lane) const { return {high()[lane], middle()[lane], low()[lane], place()[lane]}; }

 private:
  uint32_t* memory_;
  size_t stride_;
};

// Adds a number, or returns the sum, by the bits of a float32. A sum without numbers, or of zeros, is +0.0. With a NaN,
// or with infinities of both signs, it is the NaN 0x7FC00000.
void add_float(uint32_t bits, FloatSum* sum);
uint32_t rounded_float(const FloatSum& sum);

// Do the same to `count` big-endian words. begin_floats() makes the sums those of these words alone.
void begin_floats(const uint8_t* words, size_t count, const FloatSums& sums);
void add_floats(const uint8_t* words, size_t count, const FloatSums& sums);
void round_floats(const FloatSums& sums, size_t count, uint8_t* words);

// Adds up the i-th words of the sources, and `sums` unless it is null, and writes the rounded sum over the i-th words
// of the buffers that get it, for i below `count`. All buffers get the same words even if a process changes the sources
// at the same time. The instructions are those that add integers (accumulate.h).
void sum_float_buffers(const SumBuffers& buffers, size_t count, const FloatSums* sums);

}  // namespace switchml::kernels
