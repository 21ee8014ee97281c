// One rank of a shm port: its rings, and the state that a sender of packets keeps.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/softswitch/native/shared_memory/shm_job.h"
#include "native/channel/channel.h"
#include "native/channel/sender_slots.h"
#include "native/channel/shared_memory.h"
#include "native/runtime/precedence.h"
#include "native/wire/wire.h"

namespace switchml::soft {

// The rank that an agent binds to a connection.
struct RankBinding {
  ShmJobKey job;
  uint16_t rank = 0;    // of the job
  uint8_t worker = 0;   // its number in packets: among the senders at this switch
  uint8_t workers = 1;  // above all such numbers that the agent knows of
  uint32_t ipv4 = 0;    // the agent's
  uint32_t secret = 0;
  bool optional_values = true;  // all pipelines of the job take contributions without values in any phase
  bool owned_results = true;    // they send values that only one rank reads to this rank alone
  uint32_t formats = 0;         // that they take contributions with values in: bit f for wire::Format f
  uint8_t priority = 0;         // of the job, among those of the tenant
  uint64_t tenant = 0;
  bool one_port = false;  // all ranks of the job come to this port
  wire::OwnerNumbers owners = wire::unchanged_owners();
};

class ShmConnection {
 public:
  using Clock = std::chrono::steady_clock;

  // Makes the rank's memory, and takes over the eventfd `doorbell`. `cpus` are those of the rank's worker, `precedence`
  // is that of its tenant. Throws std::system_error.
  ShmConnection(const RankBinding& rank, std::shared_ptr<ShmJob> job, int doorbell, const std::vector<int>& cpus,
                std::shared_ptr<runtime::Precedence> precedence = std::make_shared<runtime::Precedence>());
  ~ShmConnection();
  ShmConnection(const ShmConnection&) = delete;
  ShmConnection& operator=(const ShmConnection&) = delete;

  const RankBinding& rank() const { return rank_; }
  ShmJob& job() const { return *job_; }
  uint8_t* contributions() const { return channel_.contribution(0); }
  channel::SharedMemory& memory() { return memory_; }
  channel::ChannelControl& control() const { return channel_.control(); }
  int doorbell() const { return doorbell_; }

  // Returns whether the submission ring is not empty.
  bool submissions_wait() const;
  // Takes one submitted slot that the window of the job's uplink allows, and sets `header` to the header that its
  // packet would have. Returns false if the window allows nothing, or if an entry of the submission ring is invalid; a
  // process that writes an invalid entry is not served any more.
  bool take(wire::Header* header);
  // Returns whether slots were taken out of the submission ring that the window did not allow at that time.
  bool holds_back() const { return slots_.queued() != 0; }
  // Returns whether the window allows one of these now.
  bool may_send() { return serves() && slots_.may_send(window()); }
  // Returns whether the tenant has a more urgent job here.
  bool yields() const { return place_.yields(); }
  // Holds back less urgent jobs of the tenant as long as the rank has contributions in flight and their results come.
  void update_hold(Clock::time_point now);
  // The time at which update_hold() must be called even if nothing happens; Clock::time_point::max() for never.
  Clock::time_point hold_deadline() const;
  // Returns whether the rank waits for no result. Then every unfinished sum of its job waits for this rank.
  bool has_nothing_in_flight() const { return slots_.in_flight() == 0; }

  // Returns whether fewer submissions of this rank were taken than of another rank of the job.
  bool is_behind(const ShmConnection& other) const { return !channel::has_reached(submitted_, other.submitted_); }

  // Puts a result into the completion ring if it answers a contribution in flight. Its values are `words`, unless the
  // rank's buffer holds them already.
  void complete(const wire::Header& result, const uint8_t* words);
  // Lets the process see the completed slots. Returns whether it must be woken: it sleeps, and either the number of
  // slots that it waits for is complete, or there is `nothing_left` to do and any slot is.
  bool publish(bool nothing_left);

  // The change of epoch, as in SenderSlots. After freeze() no submission is taken either; after fetch(), retransmit()
  // asks for the results that the rank may still take.
  void freeze() { slots_.freeze(); }
  void fetch(const std::vector<uint32_t>& targets);
  std::vector<uint32_t> held() const { return slots_.held(); }

  // The process must ring the doorbell once it has submitted `share` more slots, or all that it can.
  void expect_ring(uint32_t share);
  void expect_no_ring();
  bool expects_ring() const { return expects_ring_; }
  void server_sleeps_on(uint32_t processor);

  // Retransmission: arm() starts the timer, because a contribution may have been lost; once it has expired,
  // retransmit() calls again(header) for each contribution in flight.
  void arm(Clock::time_point now);
  Clock::time_point next_retransmission() const { return next_retransmission_; }
  template <class Again>
  void retransmit(Clock::time_point now, Again&& again) {
    for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
      if (!slots_.may_complete(slot)) continue;
      again(repeated(slot));
    }
    timeouts_ += 1;
    next_retransmission_ = has_nothing_in_flight() ? Clock::time_point::max() : now + retransmission_timeout();
  }
  // Returns whether the contribution of a slot is in flight and its result may be taken.
  bool may_repeat(uint32_t slot) const { return slots_.may_complete(slot); }
  // Counts a retransmission of it and returns its header. Precondition: may_repeat().
  wire::Header repeated(uint32_t slot);

 private:
  // Returns whether contributions of the rank may be begun.
  bool serves() const { return !broken_ && !slots_.frozen(); }
  // Moves one entry of the submission ring to the queue. Returns false if the ring is empty or the entry invalid.
  bool take_submission();
  Clock::duration retransmission_timeout() const;
  // The time from which on the rank is taken to wait for another one.
  Clock::time_point hold_ends() const;
  // Stream positions that may be in flight.
  uint32_t window() const { return place_.window(job_->uplink().window()); }
  void count_sent(const wire::Header& header);
  static void count(std::atomic<uint64_t>& counter) {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  RankBinding rank_;
  std::shared_ptr<ShmJob> job_;
  int doorbell_;
  channel::SharedMemory memory_;
  channel::Channel channel_;
  bool broken_ = false;
  channel::SenderSlots slots_;
  uint32_t submitted_ = 0;  // entries taken from the submission ring
  uint32_t completed_ = 0;  // entries put into the completion ring
  uint32_t published_ = 0;
  bool expects_ring_ = false;
  unsigned timeouts_ = 0;  // consecutive, without a result between them
  Clock::time_point next_retransmission_ = Clock::time_point::max();
  runtime::Precedence::Place place_;
  uint32_t seen_completed_ = 0;  // at the last update_hold()
  // When results, or the first contribution after a pause, were seen last; max() if nothing is in flight.
  Clock::time_point last_progress_ = Clock::time_point::max();
};

}  // namespace switchml::soft
