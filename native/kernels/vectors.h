// Each file for one instruction set includes this first: all headers, because the code behind them is compiled for that
// set, and the vectors.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "native/kernels/code_numbers.h"
#include "native/kernels/kernel_functions.h"

namespace switchml::kernels {

// A vector of the compiler, which has the operators of its numbers.
template <typename Number, size_t kCount>
struct VectorOf {
  using Type __attribute__((vector_size(kCount * sizeof(Number)))) = Number;
};
template <typename Number, size_t kCount>
using Vector = typename VectorOf<Number, kCount>::Type;

// Prefetch distance in bytes. The CPU prefetches sequential reads by itself, but not across a page boundary, and it
// does not request ownership of a line in another core's cache that will be written.
constexpr size_t kAhead = 2048;
constexpr size_t distance_for(bool alone) { return alone ? 0 : kAhead; }

}  // namespace switchml::kernels
