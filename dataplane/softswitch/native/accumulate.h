// The one operation on values: adding a packet to a slot.
#pragma once

#include <cstddef>
#include <cstdint>

namespace switchml {

// sums[i] += values[i] modulo 2^32 for `count` big-endian 32-bit words. `sums` starts at a multiple of 64 bytes,
// `values` anywhere.
void add_big_endian(uint8_t* sums, const uint8_t* values, size_t count);

}  // namespace switchml
