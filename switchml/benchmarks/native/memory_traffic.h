// The number of bytes that all CPUs together move to and from memory.
#pragma once

#include <cstddef>

namespace switchml::benchmarks {

// Returns the bytes that `threads` threads read and write per second. Each copies `bytes`, far more than the caches
// hold, alternately with stores that bypass the caches and with ordinary ones. The result is that of the fastest round
// that begins within `seconds`. Reads of a line that is only going to be overwritten are not counted.
double memory_traffic(unsigned threads, size_t bytes, double seconds);

}  // namespace switchml::benchmarks
