#include "switchml/native/membership/memory_in_flight.h"

#include <algorithm>
#include <stdexcept>

namespace switchml::client {

void MemoryInFlight::claim(MemoryRange written, MemoryRange read, uint64_t call) {
  if (is_written(read) || is_written(written) || is_read(written)) {
    throw std::invalid_argument(
        "the array shares memory with that of a call that has not ended, so both results would be wrong; wait for that "
        "call first, or pass a copy. The call was not made");
  }
  if (!written.empty()) written_.insert_or_assign(written.begin, Claim{written, call});
  if (!read.empty()) read_.push_back({read, call});
}

void MemoryInFlight::release(MemoryRange written, uint64_t call) {
  const auto found = written_.find(written.begin);
  if (found != written_.end() && found->second.call == call) written_.erase(found);
  const auto of_call = [call](const Claim& claim) { return claim.call == call; };
  read_.erase(std::remove_if(read_.begin(), read_.end(), of_call), read_.end());
}

// Ranges do not overlap, so that the ones before the last that ends at or before `range` cannot reach it.
bool MemoryInFlight::is_written(MemoryRange range) {
  if (range.empty()) return false;
  auto next = written_.lower_bound(range.end);
  while (next != written_.begin()) {
    const auto at = std::prev(next);
    if (at->second.range.end <= range.begin) return false;
    if (!has_ended_(at->second.call)) return true;
    next = written_.erase(at);
  }
  return false;
}

bool MemoryInFlight::is_read(MemoryRange range) const {
  return !range.empty() && std::any_of(read_.begin(), read_.end(), [&](const Claim& claim) {
    return claim.range.begin < range.end && range.begin < claim.range.end && !has_ended_(claim.call);
  });
}

}  // namespace switchml::client
