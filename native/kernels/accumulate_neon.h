// The additions of accumulate.h with NEON, on 64-bit ARM.
#pragma once

#if defined(__aarch64__)

#include <cstddef>
#include <cstdint>

#include "native/kernels/accumulate.h"

namespace switchml::kernels {

void add_neon(uint8_t* sums, const uint8_t* values, size_t count);
void sum_neon(const SumBuffers& buffers, size_t count);

}  // namespace switchml::kernels

#endif
