// The window: the number of contributions of one rank that may be in flight. It is at most the pool, and smaller if the
// path loses packets, or if they would wait in its queues.
#pragma once

#include <algorithm>
#include <cstdint>

namespace switchml::runtime {

// The window is adapted once per round, a window's worth of results. Only losses of this rank's own packets count: the
// slots that it completed, or whose result it got again, by a retransmission. Waiting for a straggler is not a loss.
// The window does not react to losses of a few percent, which a fixed pool tolerates (the paper has figures up to 1 %);
// a queue that overflows loses far more.
class Window {
 public:
  // More than one loss in `tolerated` results shrinks the window.
  static constexpr uint32_t kTolerated = 16;

  explicit Window(uint32_t pool, uint32_t tolerated = kTolerated)
      : pool_(pool), tolerated_(tolerated), size_(std::min(pool, kInitial)) {}

  uint32_t size() const { return std::min(size_, bound_); }
  // Bounds the window from now on; the bound is that of DelayBound.
  void bound(uint32_t contributions) { bound_ = contributions; }

  // Called for each result; `lost` is true if one of this rank's packets for it was lost.
  void result(bool lost) {
    results_ += 1;
    losses_ += lost ? 1 : 0;
    if (results_ < size() || (!slow_start_ && results_ < kFewest)) {
      return;
    }
    if (losses_ * tolerated_ > results_ && losses_ >= kFewestLosses) {
      size_ = std::max(size() / 2, std::min(pool_, kSmallest));
      slow_start_ = false;
    } else {
      size_ = std::min(pool_, slow_start_ ? size_ * 2 : size_ + std::max(size_ / 8, 1U));
    }
    results_ = 0;
    losses_ = 0;
  }

 private:
  static constexpr uint32_t kInitial = 64;
  static constexpr uint32_t kSmallest = 4;
  static constexpr uint32_t kFewest = 128;  // results of a round; with fewer, the share of losses would be too random
  static constexpr uint32_t kFewestLosses = 4;

  uint32_t pool_;
  uint32_t tolerated_;
  uint32_t size_;
  uint32_t bound_ = UINT32_MAX;
  uint32_t results_ = 0;
  uint32_t losses_ = 0;
  bool slow_start_ = true;
};

}  // namespace switchml::runtime
