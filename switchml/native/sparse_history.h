// The choice between the dense and the sparse form of all-reduces whose callers leave it to the library.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "switchml/native/codecs/codec.h"

namespace switchml::client {

// One of these calls. `blocks` is valid once it has ended.
struct Trial {
  bool sparse = false;
  bool ended = false;
  Blocks blocks;
};

// Calls that are alike, in training those of one tensor in each step, are sparse until most blocks have had values
// twice in a row. The next kDenseCalls are dense, then one is sparse, to look again.
//
// All ranks choose alike, because a choice depends only on the order of the calls and on results, which are the same at
// all ranks. It uses the results of a call for calls from the kCallsApart-th after it on, whether or not the calls
// between them have ended already at this rank.
class SparseHistory {
 public:
  static constexpr uint64_t kLeastBytes = uint64_t{1} << 20;  // of a tensor; smaller ones have little to gain
  static constexpr size_t kCallsApart = 4;  // so that the stream never waits for a choice: they fill several pools
  static constexpr uint32_t kDenseCalls = 64;
  static constexpr size_t kMostSeries = 1024;  // kept; a program whose sizes never return must not fill the memory

  struct Size {
    uint64_t kind = 0;
    uint64_t bytes = 0;
    auto parts() const { return std::pair(kind, bytes); }
    bool operator<(const Size& other) const { return parts() < other.parts(); }
  };

  // Returns whether the results that the choice for the next call needs are known.
  bool may_choose(const Size& next) const;
  // Chooses the form of the next call. The caller notes its end. Precondition: may_choose(next).
  std::shared_ptr<Trial> choose(const Size& next);

 private:
  // Calls of the same size, after calls of one size: those in one place of a step.
  using Alike = std::pair<Size, Size>;
  struct Series {
    std::deque<std::shared_ptr<Trial>> latest;  // at most kCallsApart
    uint32_t full_in_a_row = 0;                 // sparse calls in which most blocks had values
    uint32_t dense_left = 0;                    // calls to make before the next sparse one
  };

  static void learn(const Trial& trial, Series* series);

  Size previous_;
  std::map<Alike, Series> series_;
};

}  // namespace switchml::client
