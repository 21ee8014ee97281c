// Addition, the only operation on values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "native/kernels/instructions.h"

namespace switchml::kernels {

// sums[i] += values[i] modulo 2^32 for `count` big-endian 32-bit words. `sums` starts at a multiple of 64 bytes,
// `values` anywhere.
void add_big_endian(uint8_t* sums, const uint8_t* values, size_t count);

// Buffers that each start at a multiple of 64 bytes. The first `sources` are added up. Those from `first_written` on
// get the sum.
struct SumBuffers {
  uint8_t* const* first;
  size_t count;
  size_t sources;            // from 1 to `count`
  size_t first_written = 0;  // at most `sources`
};

// Adds up the i-th words of the sources modulo 2^32 and writes the sum over the i-th words of the buffers that get it,
// for i below `count`, in one pass; the words of a single source stay where they are. All buffers get the same words
// even if a process changes the sources at the same time.
void sum_buffers(const SumBuffers& buffers, size_t count);

// Returns, and sets, the instructions in use. Setting is for tests and benchmarks: no other thread may be adding.
// Throws std::invalid_argument if the CPU does not have the instructions.
Instructions instructions_to_add();
void use_instructions_to_add(Instructions instructions);

}  // namespace switchml::kernels
