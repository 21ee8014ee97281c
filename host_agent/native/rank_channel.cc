#include "host_agent/native/rank_channel.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "native/wire/slot_blocks.h"

namespace switchml::agent {

namespace {

// A process wakes a sleeping agent after it has submitted 1 / kShareOfPool of the pool, or all that it can submit.
constexpr uint32_t kShareOfPool = 8;

std::system_error failure(const char* what) { return {errno, std::generic_category(), what}; }

}  // namespace

RankChannel::RankChannel(const RankAssignment& assignment, uint8_t* results, unsigned threads)
    : assignment_(assignment),
      threads_(threads),
      results_(results),
      doorbell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      slots_of_part_(parts()),
      status_of_part_(parts()) {
  if (doorbell_ < 0) {
    throw failure("eventfd");
  }
}

RankChannel::~RankChannel() { close(doorbell_); }

int RankChannel::open() {
  if (is_open()) {
    throw std::logic_error("the rank has a channel already");
  }
  memory_ = std::make_shared<channel::SharedMemory>(
      "switchml-channel", channel::Channel::bytes(assignment_.slots, assignment_.values, true),
      channel::SharedMemory::Others::may_write);
  channel_ = channel::Channel(memory_->data(), assignment_.slots, assignment_.values, results_);
  auto* control = new (memory_->data()) channel::ChannelControl{};
  control->geometry.magic = channel::Geometry::kMagic;
  control->geometry.slots = assignment_.slots;
  control->geometry.values = assignment_.values;
  control->geometry.rank = assignment_.rank;
  control->geometry.world_size = assignment_.world_size;
  control->geometry.results_apart = 1;
  control->geometry.optional_values = assignment_.optional_values ? 1 : 0;
  control->geometry.owned_results = assignment_.owned_results ? 1 : 0;
  control->geometry.formats = assignment_.formats;
  control->geometry.first_cpu = 1;  // any
  control->server_sleeps.store(
      1, std::memory_order_relaxed);  // the home may have gone to sleep before this memory existed
  const int descriptor = fcntl(memory_->fd(), F_DUPFD_CLOEXEC, 0);
  if (descriptor < 0) {
    throw failure("cannot duplicate the descriptor of shared memory");
  }
  memory_->close_descriptor();
  open_.store(true, std::memory_order_release);
  return descriptor;
}

bool RankChannel::submissions_wait() const {
  return is_open() && !broken_ && channel_.control().submitted.load(std::memory_order_acquire) != submitted_;
}

uint64_t RankChannel::take_submissions() {
  if (!submissions_wait()) {
    return 0;
  }
  const uint32_t end = channel_.control().submitted.load(std::memory_order_acquire);
  if (end - submitted_ > assignment_.slots) {
    fail();
    return 0;
  }
  uint64_t threads = 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (; submitted_ != end; ++submitted_) {
    const uint16_t slot = channel_.submission(submitted_);
    if (slot >= assignment_.slots) {
      fail();
      return 0;
    }
    const unsigned thread = wire::part_of_slot(assignment_.slot_base + slot, threads_);
    slots_of_part_[part_of(thread, wire::switch_of_slot(slot, assignment_.switches()))].push_back(slot);
    threads |= uint64_t{1} << thread;
  }
  return threads;
}

void RankChannel::set_sleeping(bool sleeping) {
  if (is_open()) {
    channel::ChannelControl& control = channel_.control();
    const uint32_t share = std::max(1U, assignment_.slots / kShareOfPool);
    control.server_wakes_at.store(submitted_ + share, std::memory_order_relaxed);
    control.server_sleeps.store(sleeping ? 1 : 0, std::memory_order_seq_cst);
  }
}

bool RankChannel::take(unsigned part, std::vector<uint16_t>* slots) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<uint16_t>& mine = slots_of_part_[part];
  const bool any = !mine.empty();
  slots->insert(slots->end(), mine.begin(), mine.end());
  mine.clear();
  return any;
}

bool RankChannel::has_slots_for(unsigned part) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !slots_of_part_[part].empty();
}

void RankChannel::count_round_trips(uint64_t nanoseconds, uint64_t bytes) {
  if (nanoseconds != 0 && is_open()) {
    channel::ServerCounters& counters = channel_.control().server;
    counters.round_trips_ns.fetch_add(nanoseconds, std::memory_order_relaxed);
    counters.round_trips_bytes.fetch_add(bytes * parts(), std::memory_order_relaxed);
  }
}

void RankChannel::complete(unsigned part, const RankStatus& status, std::vector<uint16_t>* slots, bool nothing_left) {
  if (!is_open()) {
    return;
  }
  channel::ChannelControl& control = channel_.control();
  const std::lock_guard<std::mutex> lock(mutex_);
  status_of_part_[part] = status;
  if (!slots->empty()) {
    for (const uint16_t slot : *slots) {
      channel_.completion_ring()[completed_++ % assignment_.slots] = slot;
    }
    slots->clear();
    control.completed.store(completed_, std::memory_order_release);
  }
  if (channel::sleeps_until(control, completed_, nothing_left)) {
    channel::wake_process(control);
  }
}

RankStatus RankChannel::status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  RankStatus sum;
  for (const RankStatus& part : status_of_part_) {
    sum.counters::Rank::add(part);
    sum.position += part.position;
    sum.uses = std::max(sum.uses, part.uses);
    sum.gso_batch_size = std::max(sum.gso_batch_size, part.gso_batch_size);
    sum.window = std::max(sum.window, part.window);
    sum.round_trip_seconds = std::max(sum.round_trip_seconds, part.round_trip_seconds);
  }
  return sum;
}

}  // namespace switchml::agent
