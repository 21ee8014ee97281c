// Round-trip time and retransmission timeout of one sender: RFC 6298 with bounds for a data-centre network. The timeout
// is longer than the smoothed round trip by at least a margin. Without it, a path whose round trips hardly vary, as
// through the queue of a slow link, would time out at the least delay of any rank.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

#include "native/runtime/durations.h"

namespace switchml::runtime {

class RoundTrip {
 public:
  using Duration = std::chrono::duration<double>;  // seconds

  static constexpr Duration kLowestMargin{1e-3};
  static constexpr Duration kHighestMargin{4e-3};
  static constexpr Duration kMaximumTimeout{200e-3};
  static constexpr Duration kInitialTimeout{20e-3};

  // A sample must come from a packet that was sent once (Karn's algorithm).
  void sample(Duration measured) {
    const auto nanoseconds = static_cast<uint64_t>(measured.count() * 1e9);
    histogram_[duration_bucket(nanoseconds)] += 1;
    nanoseconds_ += nanoseconds;
    if (smoothed_.count() == 0) {
      smoothed_ = measured;
      variation_ = measured / 2;
    } else {
      variation_ += (Duration(std::abs((smoothed_ - measured).count())) - variation_) / 4;
      smoothed_ += (measured - smoothed_) / 8;
    }
  }

  // Called for the result of a packet that was retransmitted after a timeout. The timeout was spurious (RFC 3522) if
  // only another rank's packet was missing: that rank was a straggler. If hosts have more processes than cores, every
  // rank is sometimes a straggler, so the margin adapts.
  void adapt_margin(bool spurious) {
    margin_ = spurious ? std::min(margin_ * 2, kHighestMargin) : std::max(margin_ / 2, kLowestMargin);
  }

  Duration smoothed() const { return smoothed_; }  // 0 before the first sample

  const DurationCounts& histogram() const { return histogram_; }
  uint64_t nanoseconds() const { return nanoseconds_; }  // of all samples together

  // Returns the retransmission timeout after a number of consecutive timeouts, each of which doubles it.
  Duration timeout(unsigned timeouts) const {
    const Duration first = smoothed_ + std::max(4 * variation_, margin_);
    return std::min(first * static_cast<double>(1U << std::min(timeouts, 8U)), kMaximumTimeout);
  }

 private:
  Duration smoothed_{0};
  Duration variation_ = kInitialTimeout / 4;
  Duration margin_ = kLowestMargin;
  DurationCounts histogram_{};
  uint64_t nanoseconds_ = 0;
};

}  // namespace switchml::runtime
