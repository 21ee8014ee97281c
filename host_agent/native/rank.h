// The packet side of one rank (docs/protocol.md): its slots, window, timers and socket. One thread uses it.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "dataplane/native/channel.h"
#include "dataplane/native/udp_batch.h"
#include "dataplane/native/wire.h"
#include "host_agent/native/rank_profile.h"
#include "host_agent/native/round_trip.h"
#include "host_agent/native/window.h"

namespace switchml {

using Clock = std::chrono::steady_clock;

// What the controller assigned.
struct RankAssignment {
  std::string address;         // IPv4 address of the host's data interface
  std::string switch_address;  // where contributions go
  uint16_t switch_udp_port;
  uint16_t job;
  uint8_t rank;
  uint16_t epoch;
  uint32_t world_size;
  uint16_t slot_base;  // first pool index
  uint32_t slots;      // a power of two
  uint32_t values;     // per packet
};

// `assignment` again. Throws std::invalid_argument for what cannot be.
RankAssignment checked(RankAssignment assignment);

struct RankStatus {
  uint64_t position = 0;  // contributions sent for the first time: the rank that lags is the one with the fewest
  uint64_t sent = 0;      // packets
  uint64_t received = 0;  // results taken
  uint64_t retransmissions = 0;
  uint64_t early_retransmissions = 0;
  uint64_t ignored = 0;  // packets that were no result of a slot in flight
  uint64_t sending = 0;  // nanoseconds of the data thread, those for looking for something to send included
  uint64_t receiving = 0;
  uint64_t sent_bytes = 0;  // of UDP payload
  uint64_t received_bytes = 0;
  double round_trip_seconds = 0;
};

class Rank {
 public:
  // Binds an ephemeral UDP port. Throws std::invalid_argument and std::system_error.
  explicit Rank(const RankAssignment& assignment);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  const UdpSocket& socket() const { return socket_; }
  int doorbell() const { return doorbell_; }  // eventfd that the process rings when the agent sleeps

  // Makes the shared memory and returns a new descriptor of it, for the process; the caller closes it.
  // Throws std::logic_error when there was a channel already and std::system_error.
  int open_channel();
  // Takes slots out of the submission ring. Returns whether there were any.
  bool take_submissions();
  // Takes up to a few batches of results from the socket. Returns whether there were any packets.
  bool receive(ReceiveBatch& batch, Clock::time_point now);
  // Sends what the window allows, and again what is overdue.
  void transmit(SendBatch& batch, Clock::time_point now);
  // Wakes the process if results were put into the completion ring since the last call.
  void publish();
  // When transmit() must be called even if nothing happens; Clock::time_point::max() when never.
  Clock::time_point next_deadline() const { return next_deadline_; }
  // Tells the process whether it must ring the doorbell.
  void set_sleeping(bool sleeping);
  bool submissions_wait() const;

  RankStatus status() const;
  // With up to `calls` of the latest calls.
  RankProfile profile(uint64_t calls) const;

  // A change of epoch (docs/protocol.md). From freeze() on nothing is begun and no RESULT is taken; fetch() lets those
  // of each slot be taken, and asked for, until so many of its phases are held. Both return how many are, for each
  // slot. fetch() throws std::invalid_argument where the rank is not frozen or `targets` is not one for each slot.
  std::vector<uint32_t> freeze();
  std::vector<uint32_t> fetch(const std::vector<uint32_t>& targets);

 private:
  enum class SlotState : uint8_t { with_process, queued, in_flight };
  struct Slot {
    uint32_t phase = 0;
    uint32_t chunk = 0;  // position in the stream, as the process said
    SlotState state = SlotState::with_process;
    uint8_t transmissions = 0;
    bool timed_out = false;  // sent again because of a timeout
    uint16_t flags = 0;
    uint64_t order = 0;  // of its last transmission, among all of this rank
    Clock::time_point sent;
  };
  struct Transmission {
    uint64_t order;
    uint16_t slot;
  };
  static constexpr size_t kHeaderStride = 32;

  void take_result(const Datagram& datagram, Clock::time_point now);
  void send(uint16_t slot, SendBatch& batch, Clock::time_point now);
  // The slot of a chunk, or null when it is not the agent's.
  Slot* slot_of(uint32_t chunk);
  void send_window(SendBatch& batch, Clock::time_point now);
  // The oldest transmission that has no result yet, or null.
  const Transmission* oldest_unfinished();
  void retransmit_overtaken(SendBatch& batch, Clock::time_point now);
  void retransmit_after_timeout(SendBatch& batch, Clock::time_point now);
  void retransmit_frozen(SendBatch& batch, Clock::time_point now);
  bool frozen() const { return !limits_.empty(); }
  std::vector<uint32_t> held() const;
  Header header_of(uint16_t slot) const;

  RankAssignment assignment_;
  UdpSocket socket_;
  sockaddr_in switch_endpoint_;
  int doorbell_ = -1;
  void* memory_ = nullptr;
  Channel channel_;
  bool broken_ = false;           // the process wrote what no process of ours writes: it is served no more
  std::vector<uint32_t> limits_;  // once frozen: of each slot, the first phase whose RESULT is not taken

  std::vector<Slot> slots_;
  std::vector<uint8_t> headers_;       // of the packet in flight of each slot; the process cannot reach them
  std::deque<Transmission> in_order_;  // what was sent; finished and repeated ones leave from the front
  // The window is a stretch of the stream: it begins with the lowest chunk that is the agent's. Counting packets
  // instead would not do: a slot's second phase comes behind later chunks, in another order at each rank, and two ranks
  // whose windows are full of chunks that the other one has not sent yet would wait for each other for ever.
  uint32_t window_begin_ = 0;
  uint32_t submitted_end_ = 0;  // one past the highest chunk submitted
  uint32_t send_from_ = 0;      // no chunk below is queued
  uint32_t in_flight_ = 0;
  uint32_t submitted_ = 0;  // entries taken from the submission ring
  uint32_t completed_ = 0;  // entries put into the completion ring
  uint32_t published_ = 0;
  uint64_t next_order_ = 0;
  uint64_t newest_finished_ = 0;  // highest order with a result, of packets sent once
  Clock::time_point next_deadline_ = Clock::time_point::max();
  unsigned timeouts_ = 0;        // in a row, without a result between them
  Clock::time_point timed_out_;  // when the last of them was: what was sent before it may be lost
  uint32_t may_repeat_ = 0;      // packets from before it that recent results let us repeat
  uint32_t repeat_from_ = 0;     // the lowest chunk that this may be
  Window window_;
  RoundTrip round_trip_;
  RankStatus status_;
};

}  // namespace switchml
