// The contributions of a switch to its parent for the ranks of one job that share memory with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

#include "native/runtime/round_trip.h"
#include "native/runtime/send_window.h"

namespace switchml::soft {

// The agent of a rank that sends packets also retransmits them, and then the switch repeats its own contribution. Ranks
// that share memory with the switch have no packets that could be lost, so the switch itself must notice that its
// contribution, or the RESULT that answers it, is lost. For the same reason it must not send more than the path to the
// parent can take. The caller gives the time. Slots are numbered from 0 within the job's pool.
//
// The window limits what the ranks contribute, not what the switch sends: each rank contributes to the stream positions
// in its own window (SenderSlots::send_next), and a sum leaves as soon as it is complete. So all leaves send the sums
// that ranks of other leaves wait for in the order of the stream, and no sum is held back that a repeated contribution
// could release.
class Uplink {
 public:
  using Clock = std::chrono::steady_clock;

  struct Answer {
    bool completed_here = false;  // the phase was complete with this switch's contribution, not with another one
    bool retransmission = false;  // the contribution that it answers was one, of this switch or of another one
    uint64_t bytes = 0;           // of the RESULT
  };

  // `packet_bytes` is the size of a packet with values.
  Uplink(uint32_t slots, uint64_t packet_bytes);

  // Called when the contribution of a slot has been sent for the first time in a phase.
  void sent(uint32_t slot, Clock::time_point now);
  // Called for the parent's RESULT for an awaited slot.
  void answered(uint32_t slot, const Answer& answer, Clock::time_point now);
  // Returns whether the slot is in flight.
  bool awaits(uint32_t slot) const { return flights_[slot].number != 0; }
  // Returns the slots whose contributions the caller must send again now. The reference is valid until the next call.
  const std::vector<uint32_t>& due(Clock::time_point now);
  bool is_idle() const { return count_ == 0; }
  // Returns whether a timeout has passed since the last answer.
  bool has_timed_out() const { return timeouts_ > 0; }
  // The time at which due() must be called even if nothing happens; Clock::time_point::max() for never.
  Clock::time_point next_deadline() const { return next_deadline_; }
  // Called after answers that came together, before ranks contribute more. A job that `yields` leaves the queues of the
  // path to others.
  void end_batch(Clock::time_point now, bool yields = false) { window_.end_batch(now, yields); }
  // The size of each rank's window. A switch without a parent sends no sums, and does not limit its ranks.
  uint32_t window() const { return last_number_ == 0 ? static_cast<uint32_t>(flights_.size()) : window_.size(); }
  // Forgets all slots in flight, at the end of the epoch.
  void stop();

 private:
  struct Flight {
    uint64_t number = 0;                       // of its last transmission, from 1; 0 if it is not in flight
    runtime::DelayBound::Departure departure;  // of its last transmission
    bool timed_out = false;                    // sent again after a timeout
    bool fast_retransmitted = false;           // sent again because later contributions were answered
  };
  struct Transmission {
    uint64_t number;
    uint32_t slot;
  };

  Clock::time_point deadline_after(Clock::time_point now) const;
  bool in_flight(const Transmission& transmission) const {
    return flights_[transmission.slot].number == transmission.number;
  }
  void transmit(uint32_t slot, Clock::time_point now);
  void send_again(uint32_t slot, Clock::time_point now);
  void find_overtaken(Clock::time_point now);
  void find_timed_out(Clock::time_point now);
  void adapt_threshold(const Flight& flight, const Answer& answer);

  std::vector<Flight> flights_;     // of each slot
  std::deque<Transmission> order_;  // in order; those that were answered or repeated leave from the front
  std::vector<uint32_t> due_;
  uint32_t count_ = 0;  // slots in flight
  uint64_t last_number_ = 0;
  uint64_t highest_answered_ = 0;  // number, of contributions sent once

  uint64_t threshold_;  // answers to later contributions that indicate a loss, while the window is the pool
  uint64_t lowest_threshold_;
  uint64_t threshold_raised_at_ = 0;  // last number at that time: older transmissions do not raise it again

  runtime::SendWindow window_;
  runtime::RoundTrip round_trip_;
  unsigned timeouts_ = 0;           // consecutive, without an answer between them
  Clock::time_point last_timeout_;  // contributions sent before it may be lost
  uint32_t credit_ = 0;             // contributions sent before it that may be sent again now
  Clock::time_point next_deadline_ = Clock::time_point::max();
};

}  // namespace switchml::soft
