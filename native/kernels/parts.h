// The values of a block at each rank.
#pragma once

#include <cstddef>

namespace switchml::kernels {

template <typename Value>
struct Parts {
  const Value* const* first;  // an array for each rank
  size_t count;               // ranks
};

}  // namespace switchml::kernels
