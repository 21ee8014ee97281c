#include "dataplane/softswitch/native/shared_memory/shm_connection.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

namespace switchml::soft {
namespace {

// Within one machine a result takes microseconds once the last rank has contributed. So a retransmission after this
// time mostly means that another rank is late; the time doubles as long as no result comes.
constexpr std::chrono::milliseconds kFirstTimeout{2};
constexpr unsigned kMostDoublings = 6;
// For the same reason a rank without results for this time waits for another rank, which may wait for another job.
constexpr std::chrono::milliseconds kLongestHold{2};

}  // namespace

ShmConnection::ShmConnection(const RankBinding& rank, std::shared_ptr<ShmJob> job, int doorbell,
                             const std::vector<int>& cpus, std::shared_ptr<runtime::Precedence> precedence)
    : rank_(rank),
      job_(std::move(job)),
      doorbell_(doorbell),
      memory_("switchml-rank", channel::Channel::bytes(rank.job.slots, rank.job.values, true),
              channel::SharedMemory::Others::may_write),
      channel_(memory_.data(), rank.job.slots, rank.job.values,
               channel::Channel::contributions(memory_.data(), rank.job.slots)),
      slots_({rank.job.job, rank.worker, rank.job.epoch, rank.secret, rank.job.slot_base, rank.job.slots,
              wire::kSlotUses, rank.owners}),
      place_(std::move(precedence), rank.priority) {
  auto* control = new (memory_.data()) channel::ChannelControl{};
  control->geometry = {channel::Geometry::kMagic,
                       rank.job.slots,
                       rank.job.values,
                       rank.rank,
                       rank.job.world_size,
                       channel::Geometry::kInPlace,
                       rank.optional_values ? 1U : 0U,
                       rank.owned_results ? 1U : 0U,
                       rank.formats,
                       static_cast<uint32_t>(cpus.empty() ? 1 : cpus.front()),
                       static_cast<uint32_t>(cpus.empty() ? 0 : cpus.back())};
}

ShmConnection::~ShmConnection() { close(doorbell_); }

bool ShmConnection::submissions_wait() const {
  return serves() && control().submitted.load(std::memory_order_acquire) != submitted_;
}

bool ShmConnection::take_submission() {
  if (!submissions_wait()) return false;
  const uint32_t waiting = control().submitted.load(std::memory_order_acquire) - submitted_;
  const uint16_t slot = channel_.submission(submitted_);
  if (waiting > slots_.size() || slot >= slots_.size() || !slots_.submit(slot, channel_.contribution_ticket(slot))) {
    broken_ = true;
    return false;
  }
  submitted_ += 1;
  return true;
}

ShmConnection::Clock::time_point ShmConnection::hold_ends() const {
  return last_progress_ == Clock::time_point::max() ? last_progress_ : last_progress_ + kLongestHold;
}

bool ShmConnection::take(wire::Header* header) {
  if (!serves()) return false;
  const uint32_t window = this->window();
  std::optional<uint32_t> slot = slots_.send_next(window);
  while (!slot && take_submission()) slot = slots_.send_next(window);
  if (!slot) return false;
  count(control().server.position);
  *header = slots_.header(*slot);
  count_sent(*header);
  return true;
}

void ShmConnection::update_hold(Clock::time_point now) {
  const bool idle = has_nothing_in_flight() || slots_.frozen();
  if (idle || last_progress_ == Clock::time_point::max() || seen_completed_ != completed_) {
    last_progress_ = idle ? Clock::time_point::max() : now;
  }
  seen_completed_ = completed_;
  const bool waits = job_->uplink().is_idle() ? now >= hold_ends() : job_->uplink().has_timed_out();
  place_.hold(!idle && !waits);
}

ShmConnection::Clock::time_point ShmConnection::hold_deadline() const {
  return place_.holds() && job_->uplink().is_idle() ? hold_ends() : Clock::time_point::max();
}

void ShmConnection::count_sent(const wire::Header& header) {
  count(control().server.sent);
  if ((header.flags & wire::flag::without_values) != 0) {
    count(control().server.sent_without_values);
  }
}

wire::Header ShmConnection::repeated(uint32_t slot) {
  wire::Header header = slots_.header(slot);
  header.flags |= wire::flag::retransmission;
  count(control().server.retransmissions);
  count_sent(header);
  return header;
}

void ShmConnection::complete(const wire::Header& result, const uint8_t* words) {
  const uint32_t slot = (result.slot >> 1U) - uint32_t{rank_.job.slot_base};
  if (result.job != rank_.job.job || result.epoch != rank_.job.epoch || slot >= slots_.size() ||
      !slots_.awaits(slot, result.phase)) {
    count(control().server.ignored);
    return;
  }
  const bool has_values = (result.flags & wire::flag::without_values) == 0;
  if (has_values && !job_->has_result(rank_.worker, result)) {
    std::memcpy(channel_.contribution(slot), words, rank_.job.values * sizeof(uint32_t));
  }
  if (job_->uplink().awaits(slot)) {
    const bool retransmission = (result.flags & wire::flag::retransmission) != 0;
    const uint64_t bytes =
        wire::protocol::header_bytes + (has_values ? uint64_t{rank_.job.values} * sizeof(uint32_t) : 0);
    job_->uplink().answered(slot, {result.worker != wire::tree::no_rank, retransmission, bytes}, Clock::now());
  }
  channel_.result_tickets()[slot] = slots_.complete(slot, result);
  channel_.completion_ring()[completed_++ % slots_.size()] = static_cast<uint16_t>(slot);
  if (has_nothing_in_flight()) place_.hold(false);
}

bool ShmConnection::publish(bool nothing_left) {
  channel::ChannelControl& shared = control();
  if (published_ != completed_) {
    shared.server.received.store(shared.server.received.load(std::memory_order_relaxed) + (completed_ - published_),
                                 std::memory_order_relaxed);
    published_ = completed_;
    shared.server.uses.store(slots_.uses(), std::memory_order_relaxed);
    shared.server.sum_ns.store(job_->summing() / rank_.job.world_size, std::memory_order_relaxed);
    timeouts_ = 0;
    if (next_retransmission_ != Clock::time_point::max()) {
      next_retransmission_ =
          has_nothing_in_flight() ? Clock::time_point::max() : Clock::now() + retransmission_timeout();
    }
    shared.completed.store(completed_, std::memory_order_release);
  } else if (!nothing_left) {
    return false;
  }
  return channel::sleeps_until(shared, completed_, nothing_left);
}

void ShmConnection::fetch(const std::vector<uint32_t>& targets) {
  if (slots_.fetch(targets)) next_retransmission_ = Clock::now();
}

void ShmConnection::expect_ring(uint32_t share) {
  control().server_wakes_at.store(submitted_ + share, std::memory_order_relaxed);
  control().server_sleeps.store(1, std::memory_order_seq_cst);
  expects_ring_ = true;
}

void ShmConnection::server_sleeps_on(uint32_t processor) {
  std::atomic<uint32_t>& shared = control().server_cpu;
  if (shared.load(std::memory_order_relaxed) != processor) shared.store(processor, std::memory_order_relaxed);
}

void ShmConnection::expect_no_ring() {
  if (!expects_ring_) return;
  expects_ring_ = false;
  control().server_sleeps.store(0, std::memory_order_relaxed);
}

void ShmConnection::arm(Clock::time_point now) {
  if (next_retransmission_ == Clock::time_point::max()) next_retransmission_ = now + retransmission_timeout();
}

ShmConnection::Clock::duration ShmConnection::retransmission_timeout() const {
  return kFirstTimeout * (1U << std::min(timeouts_, kMostDoublings));
}

}  // namespace switchml::soft
