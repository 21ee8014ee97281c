// The window of one sender: as large as the pool, the losses of the path and its delay allow.
#pragma once

#include <algorithm>
#include <cstdint>

#include "native/runtime/delay_bound.h"
#include "native/runtime/window.h"

namespace switchml::runtime {

// The sender of a rank and a switch that sends sums to its parent have one each. The caller gives the time.
class SendWindow {
 public:
  using TimePoint = DelayBound::TimePoint;

  struct Result {
    uint64_t bytes = 0;                 // of the packet or of its contribution, whichever is larger
    DelayBound::Departure departure;    // of the contribution's last transmission
    bool sent_once = false;             // the contribution was not retransmitted
    bool completed_here = false;        // the slot was complete with it, not with the packet of another sender
    bool after_retransmission = false;  // of this sender or of another one
  };

  // Packets with values have `packet_bytes`. The sender's packets have `position_bytes` for each position of the
  // window, on average: less if other senders share the stream's positions with it. `tolerated` is that of Window.
  SendWindow(uint32_t pool, double packet_bytes, double position_bytes, uint32_t tolerated = Window::kTolerated)
      : pool_(pool), position_bytes_(position_bytes), window_(pool, tolerated), delay_bound_(packet_bytes) {}

  // Stream positions, from the lowest unfinished one, whose contributions may be in flight.
  uint32_t size() const { return window_.size(); }

  // Bytes of all packets that have their results.
  uint64_t delivered() const { return delay_bound_.delivered(); }

  // Called for each transmission; `alone` if no other packet is in flight. The caller keeps what it returns.
  DelayBound::Departure departure(TimePoint now, bool alone) { return delay_bound_.departure(now, alone); }
  // Called for each result.
  void take(const Result& result, TimePoint now) {
    delay_bound_.result(result.bytes);
    if (result.sent_once) delay_bound_.sample(result.departure);
    if (result.sent_once && result.completed_here) delay_bound_.round_trip(result.departure.time, now);
    window_.result(result.completed_here && result.after_retransmission);
  }
  // Called after results that were received together, before more is sent. A sender that `yields` leaves the queues of
  // the path to others.
  void end_batch(TimePoint now, bool yields = false) {
    delay_bound_.end_batch(window_.size() * position_bytes_, now);
    const double bytes = yields ? delay_bound_.bytes_of_yielding() : delay_bound_.bytes();
    window_.bound(static_cast<uint32_t>(std::min<double>(bytes / position_bytes_, pool_)));
  }

 private:
  uint32_t pool_;
  double position_bytes_;
  Window window_;
  DelayBound delay_bound_;
};

}  // namespace switchml::runtime
