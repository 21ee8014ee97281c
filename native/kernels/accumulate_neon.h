// The additions of accumulate.h with NEON, on 64-bit ARM.
#pragma once

#if defined(__aarch64__)

#include <cstddef>
#include <cstdint>

namespace switchml::kernels {

void add_neon(uint8_t* sums, const uint8_t* values, size_t count);
void sum_neon(uint8_t* const* buffers, size_t buffer_count, size_t count, bool streaming);

}  // namespace switchml::kernels

#endif
