// Addition, the only operation on values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "native/kernels/instructions.h"
#include "native/kernels/streaming.h"

namespace switchml::kernels {

// sums[i] += values[i] modulo 2^32 for `count` big-endian 32-bit words. `sums` starts at a multiple of 64 bytes,
// `values` anywhere.
void add_big_endian(uint8_t* sums, const uint8_t* values, size_t count);

// Adds up the i-th words of `buffer_count` buffers (at least one) and of `kept` (may be null) modulo 2^32, and writes
// the sum over each of those words, in one pass. All buffers start at a multiple of 64 bytes. With `streaming` the sums
// bypass the caches where the CPU can do that: other threads then see them after a release store only if
// fence_streaming_stores() was called before it.
void sum_in_place(uint8_t* const* buffers, size_t buffer_count, uint8_t* kept, size_t count, bool streaming);

// Returns, and sets, the instructions in use. Setting is for tests and benchmarks: no other thread may be adding.
// Throws std::invalid_argument if the CPU does not have the instructions.
Instructions instructions_to_add();
void use_instructions_to_add(Instructions instructions);

}  // namespace switchml::kernels
