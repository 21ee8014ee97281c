// The memory that calls in flight read and write.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace switchml::client {

// Memory from `begin` up to `end`, which is not part of it.
struct MemoryRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;

  bool empty() const { return begin == end; }
};

// The ranges that calls in flight write do not overlap, and no other call reads them. Callers must hold a lock.
class MemoryInFlight {
 public:
  // `has_ended` returns whether a call, given by its number, has ended: its memory is then free even if it was not
  // released.
  explicit MemoryInFlight(std::function<bool(uint64_t)> has_ended) : has_ended_(std::move(has_ended)) {}

  // Lets memory belong to a call, which writes one range and reads another; either may be empty. Throws
  // std::invalid_argument if that range is in use by a call that has not ended.
  void claim(MemoryRange written, MemoryRange read, uint64_t call);
  // Undoes a claim.
  void release(MemoryRange written, uint64_t call);

 private:
  struct Claim {
    MemoryRange range;
    uint64_t call;
  };

  bool is_written(MemoryRange range);
  bool is_read(MemoryRange range) const;

  std::function<bool(uint64_t)> has_ended_;
  std::map<uintptr_t, Claim> written_;  // by the beginning of the range
  std::vector<Claim> read_;
};

}  // namespace switchml::client
