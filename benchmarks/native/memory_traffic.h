// How many bytes all processors together move to and from memory.
#pragma once

#include <cstddef>

namespace switchml::benchmarks {

// Bytes read and written in a second by `threads` threads that each copy `bytes`, far more than the caches hold, in
// turns past the caches and through them: the fastest of the rounds that begin within `seconds`. What a processor reads
// of a line only to overwrite it is not counted.
double memory_traffic(unsigned threads, size_t bytes, double seconds);

}  // namespace switchml::benchmarks
