// The weights of the check of a packet's words (docs/understand/protocol.md, "The check").
#pragma once

#include <array>
#include <cstdint>

#include "native/wire/constants.h"

namespace switchml::kernels {

// The weighed sum of a block is the sum of weight_i * word_i modulo 2^64, where both factors are signed 32-bit
// integers.
struct Weights {
  alignas(64) std::array<int32_t, wire::protocol::max_values> of{};
};

// For words whose weighed sum is not used.
inline constexpr Weights kNoWeights;

// Returns one term of a weighed sum.
constexpr uint64_t weighed_word(int32_t weight, uint32_t word) {
  return static_cast<uint64_t>(int64_t{weight} * static_cast<int32_t>(word));
}

}  // namespace switchml::kernels
