// The CPUs that this process may use, and how they are divided.
#pragma once

#include <cstddef>
#include <vector>

namespace switchml::runtime {

// Returns their numbers in ascending order; empty if the system does not report them.
std::vector<int> cpus();

// Returns part `share` (from 0) of `shares` contiguous parts of about equal size; at least one CPU unless cpus() is
// empty.
std::vector<int> cpus_of(size_t share, size_t shares);

// Restricts the calling thread to these CPUs. No effect if the system does not allow it.
void stay_on(const std::vector<int>& cpus);

}  // namespace switchml::runtime
