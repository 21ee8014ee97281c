// A histogram of durations: bucket i counts those below 2^i * 1.024 microseconds, the last bucket all others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace switchml::runtime {

constexpr size_t kDurationBuckets = 26;  // up to 17 s, and above
using DurationCounts = std::array<uint64_t, kDurationBuckets>;

inline size_t duration_bucket(uint64_t nanoseconds) {
  constexpr unsigned kFirstBits = 10;  // 1024 ns
  const uint64_t units = nanoseconds >> kFirstBits;
  if (units == 0) return 0;
  const auto bucket = static_cast<size_t>(64 - __builtin_clzll(units));
  return bucket < kDurationBuckets ? bucket : kDurationBuckets - 1;
}

inline void add_counts(DurationCounts* sum, const DurationCounts& other) {
  for (size_t bucket = 0; bucket < kDurationBuckets; ++bucket) (*sum)[bucket] += other[bucket];
}

}  // namespace switchml::runtime
