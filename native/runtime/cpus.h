// The CPUs that this process may use, and shares of them.
#pragma once

#include <cstddef>
#include <vector>

namespace switchml::runtime {

// In ascending order; empty where the system does not say.
std::vector<int> cpus();

// The `share`-th of `shares` about equal, contiguous parts of them; at least one CPU unless there are none.
std::vector<int> cpus_of(size_t share, size_t shares);

// Keeps the calling thread on these. No effect where the system does not allow it.
void stay_on(const std::vector<int>& cpus);

}  // namespace switchml::runtime
