// Between a tensor and the words of a packet: block exponents, quantization and the linear check.
//
// Words are big-endian, as they travel. A block is the values of one packet: `count` of them, at most
// protocol::max_values. The functions use the best instructions that the processor has.
#pragma once

#include <cstddef>
#include <cstdint>

#include "native/kernels/half.h"
#include "native/kernels/instructions.h"
#include "native/kernels/streaming.h"

namespace switchml::kernels {

// What the processor has, what is used, and what is used instead from now on (for tests and benchmarks; nothing else
// may be running). Throws std::invalid_argument for what the processor lacks.
Instructions best_instructions();
Instructions instructions_in_use();
void use_instructions(Instructions instructions);

// Value is float, Float16 or BFloat16. What is said of values is said of them as float32 numbers, which they all are.

// The largest IEEE 754 exponent field, 0..255, of the values; 255 when one is NaN or infinite.
template <typename Value>
uint16_t block_exponent(const Value* values, size_t count);

// words[i] = values[i] * 2^shift, rounded to nearest even. Returns the sum of weight_i * words[i] modulo 2^32.
// The product must fit 32 bits; where it does not, the word is undefined.
// With `streaming`, words (then at a multiple of 64 bytes) bypass the caches where that can be done: others see them
// after a release store only if fence_streaming_stores() comes before it.
// `next`, unless it is null, is as much memory that will be read soon: it is fetched meanwhile, because one block is
// too short for the processor to see where reading goes on.
template <typename Value>
uint32_t quantize(const Value* values, size_t count, int shift, uint8_t* words, bool streaming = false,
                  const Value* next = nullptr);

// values[i] = words[i] * 2^-shift / divisor: the exact quotient, rounded once. The divisor is a whole number, at most
// protocol::max_workers. Returns the sum of weight_i * words[i].
template <typename Value>
uint32_t dequantize(const uint8_t* words, size_t count, int shift, float divisor, Value* values);

// To float32, exactly, and from there, rounded to nearest even (half.h says what becomes of NaN).
template <typename Half>
void widen(const Half* values, size_t count, float* floats);
template <typename Half>
void narrow(const float* floats, size_t count, Half* values);

// Native 32-bit integers at any address to words, like quantize(), and back. Both return the sum of weight_i *
// words[i].
uint32_t pack(const uint8_t* values, size_t count, uint8_t* words, bool streaming = false);
uint32_t unpack(const uint8_t* words, size_t count, uint8_t* values);

// The sum of weight_(first + i) * words[i]: for what lies behind the end of a tensor.
uint32_t weigh(const uint8_t* words, size_t first, size_t count);

}  // namespace switchml::kernels
