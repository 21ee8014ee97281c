// The time that a cache line takes from one CPU to another and back.
#pragma once

#include <utility>
#include <vector>

namespace switchml::benchmarks {

// Returns the first and the last CPU that this process may run on; {-1, -1} if there is only one.
std::pair<int, int> two_cpus();

// Returns the seconds of a round trip between two CPUs: the median of each of `batches` batches, fastest first. Other
// processes on these CPUs make a batch slower, so the first one is closest to the time of the machine alone. Ends after
// `limit` seconds with the batches measured so far; returns none if the threads cannot be pinned to the CPUs.
std::vector<double> cache_line_round_trips(int first, int second, int batches, double limit);

}  // namespace switchml::benchmarks
