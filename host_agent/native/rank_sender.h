// The sender of one rank's contributions over UDP or a device: window, retransmission and timers
// (docs/understand/protocol.md).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "host_agent/native/assignment.h"
#include "host_agent/native/rank_channel.h"
#include "host_agent/native/rank_profile.h"
#include "native/channel/sender_slots.h"
#include "native/net/udp_batch.h"
#include "native/runtime/precedence.h"
#include "native/runtime/round_trip.h"
#include "native/runtime/send_window.h"
#include "native/wire/wire.h"

namespace switchml::agent {

using Clock = std::chrono::steady_clock;

// One result from the switch, after checks.
struct TakenResult {
  wire::Header header;
  uint32_t slot;  // in the rank's pool
  size_t bytes;   // of the datagram
};

// A rank has one sender in each data thread for each of the job's switches. Only the thread uses it.
class RankSender {
 public:
  // `part` is one of the parts of `channel`, which must outlive the sender.
  RankSender(const RankAssignment& assignment, unsigned part, RankChannel* channel);
  RankSender(const RankSender&) = delete;
  RankSender& operator=(const RankSender&) = delete;

  uint16_t rank() const { return assignment_.rank; }
  uint8_t worker() const { return assignment_.worker; }
  RankChannel& channel() const { return *channel_; }

  // Takes the slots that were submitted for this sender. Returns whether there were any.
  bool take_submissions();
  // Returns whether take_submissions() would find some.
  bool submissions_wait() const { return channel_->has_slots_for(part_); }
  // Returns whether the rank waits for this result. One without the values that this rank reads is not taken: another
  // rank has named another owner. A retransmission asks for the values.
  bool awaits(const TakenResult& result) const {
    const bool has_values = (result.header.flags & wire::flag::without_values) == 0;
    return slots_.awaits(result.slot, result.header.phase) && (has_values || !reads_values(result.slot));
  }
  // Takes an awaited result, whose values are in the job's memory already.
  void take_result(const TakenResult& result, Clock::time_point now);
  // Counts a packet that is not the result of a slot in flight.
  void ignore_result() { status_.ignored += 1; }
  // Queues the contributions that the window allows to the job, whose place among other jobs is `place`, and due
  // retransmissions. The caller must send `batch` before it calls another function.
  void transmit(net::SendBatch& batch, Clock::time_point now, const runtime::Precedence::Place& place);
  // Returns whether less urgent jobs must wait: this one has something to send or in flight, and its results come.
  // After a timeout it probably waits for another rank, which may wait for one of the other jobs; unless its packets
  // have queued behind those of other jobs: `others_drained` is when the last of these was seen to leave the path.
  bool is_urgent(Clock::time_point now, Clock::time_point others_drained) const {
    return !slots_.frozen() && (slots_.queued() != 0 || slots_.in_flight() != 0) &&
           (timeouts_ == 0 || now - others_drained < round_trip_.timeout(1));
  }
  // Returns the contributions in flight beyond the window of a job that is held back.
  uint32_t backlog() const {
    return slots_.in_flight() - std::min(slots_.in_flight(), runtime::Precedence::kHeldBackWindow);
  }
  // Returns whether transmit() at this time has found that results have not come for several timeouts.
  bool finds_switch_silent(Clock::time_point now) const { return timeouts_ >= kSilent && last_timeout_ == now; }
  // Passes the results since the last call to the process, and wakes it if it waits for this number, or if there is
  // `nothing_left` to do. Publishes the status; `gso_batch_size` is that of the transport.
  void publish(bool nothing_left, uint64_t gso_batch_size);
  // The time at which transmit() must be called even if nothing happens; Clock::time_point::max() for never.
  Clock::time_point next_deadline() const { return next_deadline_; }

  // Nanoseconds: the rank's share of the time in which its thread worked for all ranks of the job.
  void count_sending(uint64_t nanoseconds) { path_.send_ns += nanoseconds; }
  void count_receiving(uint64_t nanoseconds) { path_.receive_ns += nanoseconds; }
  // Adds the counters of this sender to `profile`.
  void add_to(RankProfile* profile) const;

  // The change of epoch, as in SenderSlots. After freeze() no contribution is begun either; after fetch(), transmit()
  // asks for the results that the rank may still take.
  void freeze();
  void fetch(const std::vector<uint32_t>& targets);
  // Returns the phases held of each slot; 0 for slots that belong to other senders.
  std::vector<uint32_t> held() const { return slots_.held(); }

 private:
  using SlotState = channel::SenderSlots::State;
  // The transmissions of the contribution in a slot.
  struct Flight {
    uint8_t transmissions = 0;
    bool timed_out = false;                    // retransmitted after a timeout
    bool fast_retransmitted = false;           // retransmitted because later results had come
    uint64_t number = 0;                       // of its last transmission, among all those of this sender
    runtime::DelayBound::Departure departure;  // of its last transmission
  };
  struct Transmission {
    uint64_t number;
    uint16_t slot;
  };
  static constexpr unsigned kSilent = 3;  // timeouts: fewer are mostly a lost packet or a straggler
  static constexpr size_t kHeaderStride = wire::protocol::header_bytes;

  // Returns whether the values of a slot's RESULT are for some ranks only, and this one is among them.
  bool reads_values(uint32_t slot) const {
    const uint8_t owner = slots_.ticket(slot).owner;
    return owner != wire::owner::everyone && wire::reads(owner, assignment_.rank);
  }
  bool has_values(uint32_t slot) const { return (slots_.ticket(slot).flags & wire::flag::without_values) == 0; }
  // Bytes of the packet that is sent from a slot.
  size_t bytes_of(uint32_t slot) const {
    return wire::protocol::header_bytes +
           (has_values(slot) ? assignment_.values * wire::value_bytes(slots_.ticket(slot).format) : 0);
  }
  void send(uint16_t slot, net::SendBatch& batch, Clock::time_point now);
  // Sends the contributions that send_window() has put off.
  void send_without_values(net::SendBatch& batch, Clock::time_point now);
  // Sends a contribution for the first time.
  void send_first(uint16_t slot, net::SendBatch& batch, Clock::time_point now) {
    status_.position += 1;
    send(slot, batch, now);
  }
  uint16_t slot_of(uint32_t position) const { return static_cast<uint16_t>(position % assignment_.slots); }
  // Sends packets with values before those without: packets of one size in a row share a system call.
  void send_window(net::SendBatch& batch, Clock::time_point now, uint32_t window);
  // The oldest transmission that has no result yet, or null.
  const Transmission* oldest_unfinished();
  void fast_retransmit(net::SendBatch& batch, Clock::time_point now);
  void retransmit_after_timeout(net::SendBatch& batch, Clock::time_point now);
  void retransmit_frozen(net::SendBatch& batch, Clock::time_point now);
  void adapt_reordering_threshold(const Flight& flight, bool answers_retransmission);

  RankAssignment assignment_;
  unsigned part_;
  RankChannel* channel_;

  channel::SenderSlots slots_;
  std::vector<Flight> flights_;           // of each slot
  std::vector<uint8_t> headers_;          // of the packet in flight of each slot; the process cannot reach them
  std::deque<Transmission> sent_;         // in order; finished and retransmitted ones leave from the front
  std::vector<uint16_t> submitted_;       // being taken
  std::vector<uint16_t> without_values_;  // to be sent behind the others
  std::vector<uint16_t> finished_;        // with results, not yet published
  uint16_t last_sent_ = 0;                // slot
  uint64_t last_number_ = 0;              // of a transmission
  uint64_t highest_answered_ = 0;         // number, of contributions sent once

  uint32_t reordering_threshold_;        // results of later transmissions that indicate a loss
  uint64_t threshold_raised_at_ = 0;     // last number at that time: older transmissions do not raise it again
  uint32_t results_since_spurious_ = 0;  // fast retransmission

  Clock::time_point next_deadline_ = Clock::time_point::max();
  unsigned timeouts_ = 0;           // consecutive, without a result between them
  Clock::time_point last_timeout_;  // contributions sent before it may be lost
  uint32_t retransmit_credit_ = 0;  // contributions sent before it that may be retransmitted now
  uint32_t retransmit_from_ = 0;    // the lowest position of those
  runtime::SendWindow window_;
  runtime::RoundTrip round_trip_;
  uint64_t published_round_trips_ns_ = 0;
  uint64_t round_trips_bytes_ = 0;  // not published yet
  RankStatus status_;
  counters::Path path_;  // except for round trips, which are in round_trip_
};

}  // namespace switchml::agent
