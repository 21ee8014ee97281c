// The additions of accumulate.h with NEON, on 64-bit ARM.
#pragma once

#if defined(__aarch64__)

#include <cstddef>
#include <cstdint>

namespace switchml {

void add_neon(uint8_t* sums, const uint8_t* values, size_t count);
void sum_neon(const uint8_t* const* sources, size_t source_count, uint8_t* sums, size_t count, bool streaming);

}  // namespace switchml

#endif
