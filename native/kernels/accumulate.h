// The one operation on values: adding them up.
#pragma once

#include <cstddef>
#include <cstdint>

#include "native/kernels/instructions.h"
#include "native/kernels/streaming.h"

namespace switchml::kernels {

// sums[i] += values[i] modulo 2^32 for `count` big-endian 32-bit words. `sums` starts at a multiple of 64 bytes,
// `values` anywhere.
void add_big_endian(uint8_t* sums, const uint8_t* values, size_t count);

// Replaces the i-th word of each of `buffer_count` buffers, of which there is at least one, and of `kept`, where that
// is not null, by their sum modulo 2^32, in one pass. All start at a multiple of 64 bytes. With `streaming` the sums
// bypass the caches, where that can be done: they are seen by others after a release store only if
// fence_streaming_stores() comes before it.
void sum_in_place(uint8_t* const* buffers, size_t buffer_count, uint8_t* kept, size_t count, bool streaming);

// What is used, and what is used from now on (for tests and benchmarks; nothing else may be running). Throws
// std::invalid_argument for what the processor lacks.
Instructions instructions_to_add();
void use_instructions_to_add(Instructions instructions);

}  // namespace switchml::kernels
