// Codes of one byte for the values of a block (native/wire/codes.h). As in the other kernels, the same input gives the
// same bits with all instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "native/kernels/lanes.h"
#include "native/kernels/weights.h"
#include "native/wire/constants.h"

namespace switchml::kernels {

// words[i] = the integer that codes[i] stands for, big-endian. The arrays do not overlap.
void expand_codes(const uint8_t* codes, size_t count, wire::Format format, uint8_t* words);

// Returns the sum of weight_i * (the integer that codes[i] stands for) modulo 2^32.
uint64_t weigh_codes(const Weights& weights, const uint8_t* codes, size_t count, wire::Format format);

// codes[i] = the code in natural8 of one of the two powers of two around values[i] * 2^shift, stochastically, so that
// the expected power is that number but for a rounding to 16 bits. Below 1 these two are 0 and 1. Value is float,
// Float16 or BFloat16. Preconditions: `rounding` is stochastic, and the product is below 2^30.
template <typename Value>
void write_natural8(const Value* values, size_t count, int shift, const Rounding& rounding, uint8_t* codes);

// codes[i] = the code in dynamic8 of the integer nearest to values[i] * 2^shift. Precondition: the product is finite.
template <typename Value>
void write_dynamic8(const Value* values, size_t count, int shift, uint8_t* codes);

}  // namespace switchml::kernels
