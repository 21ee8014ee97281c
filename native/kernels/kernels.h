// Conversions between a tensor and the words of a packet: block exponents, quantization and the linear check.
//
// Words are big-endian, as in a packet. A block is the `count` values of one packet, at most protocol::max_values. The
// functions use the fastest instructions that the CPU has.
#pragma once

#include <cstddef>
#include <cstdint>

#include "native/kernels/half.h"
#include "native/kernels/instructions.h"
#include "native/kernels/lanes.h"
#include "native/kernels/parts.h"
#include "native/kernels/weights.h"

namespace switchml::kernels {

// best_instructions() returns the fastest that the CPU has; the other two return and set those in use. Setting is for
// tests and benchmarks: no other thread may be using these functions. Throws std::invalid_argument if the CPU does not
// have the instructions.
Instructions best_instructions();
Instructions instructions_in_use();
void use_instructions(Instructions instructions);

// Value is float, Float16 or BFloat16. The comments below treat every value as the float32 number that it equals.

// Returns the largest of the values' bits after their signs have moved from the highest place to the lowest: 0 if all
// values are +0.0, and 1 if all are zero and one is -0.0.
template <typename Value>
uint32_t largest_magnitude(const Value* values, size_t count);

// Returns the IEEE 754 exponent field (0..255) of a result of largest_magnitude(); 255 if one is NaN or infinite.
template <typename Value>
uint16_t exponent_of(uint32_t magnitude);
template <>
uint16_t exponent_of<float>(uint32_t magnitude);
template <>
uint16_t exponent_of<Float16>(uint32_t magnitude);
template <>
uint16_t exponent_of<BFloat16>(uint32_t magnitude);

// Returns the largest exponent field of the values.
template <typename Value>
uint16_t block_exponent(const Value* values, size_t count) {
  return exponent_of<Value>(largest_magnitude(values, count));
}

// words[i] = values[i] * 2^shift, rounded to nearest even. Returns the weighed sum of the words.
// The product must fit 32 bits; otherwise the word is undefined.
// `next`, unless it is null, points to a block of the same size that will be read soon. The function prefetches it,
// because one block is too short for the CPU to predict the next one. `alone` tells that the memory behind the block
// will not be read soon; otherwise its beginning is prefetched, too.
template <typename Value>
uint64_t quantize(const Weights& weights, const Value* values, size_t count, int shift, uint8_t* words,
                  const Value* next = nullptr, bool alone = false);

// values[i] = words[i] * 2^-shift / divisor: the exact quotient, rounded once. The divisor is a whole number from 1 to
// protocol::max_world. Returns the weighed sum of the words. `alone` tells that the memory behind the values will not
// be written soon; otherwise its beginning is prefetched.
template <typename Value>
uint64_t dequantize(const Weights& weights, const uint8_t* words, size_t count, int shift, float divisor, Value* values,
                    bool alone = false);

// sums[i] is the sum of the i-th values of all parts: what quantize() by `shift`, a sum of the words modulo 2^32 and
// dequantize() by `shift` and `divisor` would give.
template <typename Value>
void sum_parts(const Parts<Value>& parts, size_t count, int shift, float divisor, Value* sums);

// Conversions to float32, which is exact, and from float32, which rounds to nearest even (half.h describes NaN).
template <typename Half>
void widen(const Half* values, size_t count, float* floats);
template <typename Half>
void narrow(const float* floats, size_t count, Half* values);

// Conversions from native 32-bit integers at any address to words, like quantize(), and back. Both return the weighed
// sum of the words.
uint64_t pack(const Weights& weights, const uint8_t* values, size_t count, uint8_t* words);
uint64_t unpack(const Weights& weights, const uint8_t* words, size_t count, uint8_t* values);

// Copies bytes, past the caches if they are `streamed`, because they will not be read soon.
// Unlike memcpy(), which may use `rep movsb`, it is not several times slower where the two places are nearly the same
// in their pages (glibc bug 30994).
void copy(uint8_t* to, const uint8_t* from, size_t bytes, bool streamed);

// Returns the weighed sum of words that begin at `first` in the block: for the words of a packet that lie beyond the
// end of a tensor.
uint64_t weigh(const Weights& weights, const uint8_t* words, size_t first, size_t count);

}  // namespace switchml::kernels
