// How long a cache line takes from one processor to another one and back.
#pragma once

#include <utility>
#include <vector>

namespace switchml::benchmarks {

// The first and the last processor that this process may run on; {-1, -1} where there is only one.
std::pair<int, int> two_processors();

// Seconds of a round trip between two processors, the median of each of `batches` batches, fastest first. Whoever else
// runs there makes a batch slower, so the first of them is the machine's own. Ends after `limit` seconds with the
// batches that it has; without any when the processors cannot be had.
std::vector<double> cache_line_round_trips(int first, int second, int batches, double limit);

}  // namespace switchml::benchmarks
