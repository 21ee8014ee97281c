#include "host_agent/native/rank.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "dataplane/native/stopwatch.h"

namespace switchml {

namespace {

// Results of so many later contributions, and still none of this one: the packet was lost. Less would take the
// reordering of a burst for a loss; half the window, where that is less, can still happen.
constexpr uint64_t kOvertakenBy = 64;
// A timeout repeats only so many packets: silence is mostly a straggler's, and then all of them are
// duplicates. Each result of a repeated packet lets us repeat two more, so that a lost window is back in a few rounds.
constexpr uint32_t kRepeatedByTimeout = 2;
constexpr uint32_t kRepeatedByResult = 2;
constexpr size_t kSocketBufferBytes = size_t{8} << 20;
constexpr int kReceiveCalls = 4;
constexpr uint32_t kLargestPool = (protocol::max_slot_index + 1);

std::system_error system_failure(const char* what) { return {errno, std::generic_category(), what}; }

// Chunk numbers wrap around; those of one pool are close together.
bool is_before(uint32_t chunk, uint32_t other) { return static_cast<int32_t>(chunk - other) < 0; }
uint32_t earlier(uint32_t chunk, uint32_t other) { return is_before(chunk, other) ? chunk : other; }
uint32_t later(uint32_t chunk, uint32_t other) { return is_before(chunk, other) ? other : chunk; }

Clock::duration ticks(RoundTrip::Duration seconds) { return std::chrono::duration_cast<Clock::duration>(seconds); }

}  // namespace

RankAssignment checked(RankAssignment assignment) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) {
      throw std::invalid_argument(what);
    }
  };
  require(assignment.slots >= 1 && (assignment.slots & (assignment.slots - 1)) == 0, "slots must be a power of two");
  require(assignment.slot_base % assignment.slots == 0, "slot_base must be a multiple of slots");
  require(assignment.slot_base + assignment.slots <= kLargestPool, "the slot range ends beyond the slot field");
  require(assignment.values >= 1 && assignment.values <= protocol::max_values, "values must be 1..2048");
  require(assignment.world_size >= 1 && assignment.world_size <= protocol::max_workers, "world_size must be 1..64");
  require(assignment.rank < assignment.world_size, "rank must be below world_size");
  require(assignment.epoch != 0, "epoch 0 is no epoch");
  return assignment;
}

Rank::Rank(const RankAssignment& assignment)
    : assignment_(checked(assignment)),
      socket_(assignment.address, 0, kSocketBufferBytes),
      switch_endpoint_(ipv4_endpoint(parse_ipv4(assignment.switch_address), assignment.switch_udp_port)),
      slots_(assignment.slots),
      headers_(assignment.slots * kHeaderStride),
      window_(assignment.slots) {
  doorbell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (doorbell_ < 0) {
    throw system_failure("eventfd");
  }
}

Rank::~Rank() {
  if (memory_ != nullptr) {
    munmap(memory_, Channel::bytes(assignment_.slots, assignment_.values, false));
  }
  close(doorbell_);
}

int Rank::open_channel() {
  if (memory_ != nullptr) {
    throw std::logic_error("the rank has a channel already");
  }
  const size_t bytes = Channel::bytes(assignment_.slots, assignment_.values, false);
  const int fd = memfd_create("switchml-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) {
    throw system_failure("memfd_create");
  }
  void* memory = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  }
  if (memory == MAP_FAILED) {
    const std::system_error failure = system_failure("shared memory of the channel");
    close(fd);
    throw failure;
  }
  memory_ = memory;
  channel_ = Channel(memory, assignment_.slots, assignment_.values);
  auto* control = new (memory) ChannelControl{};
  control->geometry = {
      Geometry::kMagic, assignment_.slots, assignment_.values, assignment_.rank, assignment_.world_size, 0, 0, 0, 0};
  return fd;
}

bool Rank::submissions_wait() const {
  return memory_ != nullptr && !broken_ && !frozen() &&
         channel_.control().submitted.load(std::memory_order_acquire) != submitted_;
}

void Rank::set_sleeping(bool sleeping) {
  if (memory_ != nullptr) {
    ChannelControl& control = channel_.control();
    control.server_wakes_at.store(submitted_ + 1, std::memory_order_relaxed);
    control.server_sleeps.store(sleeping ? 1 : 0, std::memory_order_seq_cst);
  }
}

bool Rank::take_submissions() {
  if (!submissions_wait()) {
    return false;
  }
  const uint32_t waiting = channel_.control().submitted.load(std::memory_order_acquire) - submitted_;
  if (waiting > assignment_.slots) {
    broken_ = true;
    return false;
  }
  for (uint32_t i = 0; i < waiting; ++i, ++submitted_) {
    const uint16_t index = channel_.submission_ring()[submitted_ % assignment_.slots];
    if (index >= assignment_.slots || slots_[index].state != SlotState::with_process) {
      broken_ = true;
      return false;
    }
    const Header header = header_of(index);
    if (header.chunk % assignment_.slots != index) {
      broken_ = true;
      return false;
    }
    wire::store_header(&headers_[index * kHeaderStride], header);
    Slot& slot = slots_[index];
    slot.state = SlotState::queued;
    slot.chunk = header.chunk;
    slot.flags = header.flags;
    slot.transmissions = 0;
    slot.timed_out = false;
    send_from_ = earlier(send_from_, slot.chunk);
    window_begin_ = earlier(window_begin_, slot.chunk);
    submitted_end_ = later(submitted_end_, slot.chunk + 1);
  }
  return waiting > 0;
}

Header Rank::header_of(uint16_t slot) const {
  const Ticket ticket = channel_.contribution_tickets()[slot];  // one read: the process can change it at any time
  Header header;
  header.kind = static_cast<uint8_t>(Kind::contribution);
  header.job = assignment_.job;
  header.worker = assignment_.rank;
  header.format = static_cast<uint8_t>(ticket.format);
  header.exponent = ticket.exponent;
  header.slot = static_cast<uint16_t>((assignment_.slot_base + slot) << 1 | (slots_[slot].phase & 1));
  header.count = ticket.count;
  header.epoch = assignment_.epoch;
  header.flags = static_cast<uint16_t>(ticket.flags & ~flag::retransmission);
  header.phase = slots_[slot].phase;
  header.chunk = ticket.chunk;
  header.check = ticket.check;
  return header;
}

void Rank::send(uint16_t index, SendBatch& batch, Clock::time_point now) {
  Slot& slot = slots_[index];
  uint8_t* header = &headers_[index * kHeaderStride];
  if (slot.transmissions == 1) {
    Header again = wire::load_header(header);
    again.flags |= flag::retransmission;
    wire::store_header(header, again);
  }
  slot.transmissions = static_cast<uint8_t>(std::min(slot.transmissions + 1, UINT8_MAX));
  slot.sent = now;
  slot.order = ++next_order_;
  in_order_.push_back({slot.order, index});
  if (next_deadline_ == Clock::time_point::max()) {
    next_deadline_ = now + ticks(round_trip_.timeout(timeouts_));
  }
  const bool empty = (slot.flags & flag::exponent_only) != 0;
  batch.add(header, protocol::header_bytes, channel_.contribution(index),
            empty ? 0 : assignment_.values * sizeof(uint32_t));
  status_.sent += 1;
  status_.sent_bytes += protocol::header_bytes + (empty ? 0 : assignment_.values * sizeof(uint32_t));
}

void Rank::transmit(SendBatch& batch, Clock::time_point now) {
  if (memory_ == nullptr) {
    return;
  }
  const Stopwatch sending;
  if (frozen()) {
    retransmit_frozen(batch, now);
  } else {
    retransmit_overtaken(batch, now);
    retransmit_after_timeout(batch, now);
    send_window(batch, now);
  }
  if (!batch.empty()) {
    batch.flush(socket_, switch_endpoint_);
    status_.sending += sending.nanoseconds();
  }
}

Rank::Slot* Rank::slot_of(uint32_t chunk) {
  Slot& slot = slots_[chunk % assignment_.slots];
  return slot.state != SlotState::with_process && slot.chunk == chunk ? &slot : nullptr;
}

void Rank::send_window(SendBatch& batch, Clock::time_point now) {
  while (window_begin_ != submitted_end_ && slot_of(window_begin_) == nullptr) {
    window_begin_ += 1;
  }
  send_from_ = later(send_from_, window_begin_);
  const uint32_t end = earlier(submitted_end_, window_begin_ + window_.size());
  for (; is_before(send_from_, end); ++send_from_) {
    Slot* slot = slot_of(send_from_);
    if (slot != nullptr && slot->state == SlotState::queued) {
      slot->state = SlotState::in_flight;
      in_flight_ += 1;
      status_.position += 1;
      send(static_cast<uint16_t>(slot - slots_.data()), batch, now);
    }
  }
}

const Rank::Transmission* Rank::oldest_unfinished() {
  while (!in_order_.empty()) {
    const Transmission& oldest = in_order_.front();
    const Slot& slot = slots_[oldest.slot];
    if (slot.state == SlotState::in_flight && slot.order == oldest.order) {
      return &oldest;
    }
    in_order_.pop_front();
  }
  return nullptr;
}

void Rank::retransmit_overtaken(SendBatch& batch, Clock::time_point now) {
  const uint64_t behind = std::min<uint64_t>(kOvertakenBy, window_.size() / 2 + 1);
  for (const Transmission* oldest = oldest_unfinished();
       oldest != nullptr && oldest->order + behind <= newest_finished_; oldest = oldest_unfinished()) {
    send(oldest->slot, batch, now);
    status_.early_retransmissions += 1;
  }
}

void Rank::retransmit_after_timeout(SendBatch& batch, Clock::time_point now) {
  if (now >= next_deadline_) {
    if (in_flight_ == 0) {
      next_deadline_ = Clock::time_point::max();
      return;
    }
    timeouts_ += 1;
    timed_out_ = now;
    may_repeat_ = kRepeatedByTimeout;
    repeat_from_ = window_begin_;
    next_deadline_ = now + ticks(round_trip_.timeout(timeouts_));
  }
  // The lowest chunks first: they are what the other ranks' windows wait for.
  for (repeat_from_ = later(repeat_from_, window_begin_); may_repeat_ > 0 && is_before(repeat_from_, send_from_);
       ++repeat_from_) {
    Slot* slot = slot_of(repeat_from_);
    if (slot != nullptr && slot->state == SlotState::in_flight && slot->sent < timed_out_) {
      slot->timed_out = true;
      send(static_cast<uint16_t>(slot - slots_.data()), batch, now);
      status_.retransmissions += 1;
      may_repeat_ -= 1;
    }
  }
}

bool Rank::receive(ReceiveBatch& batch, Clock::time_point now) {
  bool any = false;
  const Stopwatch receiving;
  for (int call = 0; call < kReceiveCalls && batch.receive(socket_); ++call) {
    any = true;
    Datagram datagram;
    while (batch.next(&datagram)) {
      take_result(datagram, now);
    }
    if (!batch.full()) {
      break;
    }
  }
  if (any) {
    status_.receiving += receiving.nanoseconds();
  }
  return any;
}

void Rank::take_result(const Datagram& datagram, Clock::time_point now) {
  const auto ignore = [this] { status_.ignored += 1; };
  if (memory_ == nullptr || datagram.length < protocol::header_bytes ||
      datagram.source.sin_addr.s_addr != switch_endpoint_.sin_addr.s_addr ||
      datagram.source.sin_port != switch_endpoint_.sin_port) {
    return ignore();
  }
  const Header header = wire::load_header(datagram.data);
  const uint32_t index = (header.slot >> 1) - static_cast<uint32_t>(assignment_.slot_base);
  if (header.version != protocol::version || header.kind != static_cast<uint8_t>(Kind::result) ||
      header.job != assignment_.job || header.epoch != assignment_.epoch || index >= assignment_.slots) {
    return ignore();
  }
  Slot& slot = slots_[index];
  const bool empty = (header.flags & flag::exponent_only) != 0;
  const size_t payload = empty ? 0 : assignment_.values * sizeof(uint32_t);
  if (slot.state != SlotState::in_flight || header.phase != slot.phase || (header.slot & 1) != (slot.phase & 1) ||
      datagram.length != protocol::header_bytes + payload || (frozen() && slot.phase >= limits_[index])) {
    return ignore();
  }
  if (header.worker == assignment_.rank && slot.transmissions == 1) {
    round_trip_.sample(now - slot.sent);
  }
  window_.result(header.worker == assignment_.rank && slot.transmissions > 1);
  if (slot.transmissions == 1) {
    newest_finished_ = std::max(newest_finished_, slot.order);
  } else {  // nobody knows which transmission it answers
    may_repeat_ += kRepeatedByResult;
  }
  if (slot.timed_out) {
    round_trip_.judge_timeout(header.worker == assignment_.rank);
  }
  timeouts_ = 0;
  next_deadline_ = now + ticks(round_trip_.timeout(timeouts_));
  slot.state = SlotState::with_process;
  slot.phase += 1;
  in_flight_ -= 1;
  status_.received += 1;
  status_.received_bytes += datagram.length;
  std::memcpy(channel_.result(index), datagram.data + protocol::header_bytes, payload);
  channel_.result_tickets()[index] = {header.chunk,
                                      header.check,
                                      header.exponent,
                                      header.count,
                                      static_cast<uint16_t>(header.flags & ~flag::retransmission),
                                      header.format};
  channel_.completion_ring()[completed_++ % assignment_.slots] = static_cast<uint16_t>(index);
}

void Rank::publish() {
  if (published_ == completed_) {
    return;
  }
  published_ = completed_;
  ChannelControl& control = channel_.control();
  control.completed.store(completed_, std::memory_order_release);
  wake_process(control);
}

std::vector<uint32_t> Rank::held() const {
  std::vector<uint32_t> phases;
  phases.reserve(slots_.size());
  for (const Slot& slot : slots_) {
    phases.push_back(slot.phase);
  }
  return phases;
}

std::vector<uint32_t> Rank::freeze() {
  limits_ = held();
  next_deadline_ = Clock::time_point::max();
  return limits_;
}

std::vector<uint32_t> Rank::fetch(const std::vector<uint32_t>& targets) {
  if (!frozen() || targets.size() != slots_.size()) {
    throw std::invalid_argument("the rank is not frozen, or the targets are not one for each of its slots");
  }
  if (limits_ != targets) {
    limits_ = targets;
    next_deadline_ = Clock::now();
  }
  return held();
}

// What another survivor holds is full in the switch, which sends it again to who asks.
void Rank::retransmit_frozen(SendBatch& batch, Clock::time_point now) {
  if (now < next_deadline_) {
    return;
  }
  next_deadline_ = Clock::time_point::max();
  for (size_t index = 0; index < slots_.size(); ++index) {
    if (slots_[index].state == SlotState::in_flight && slots_[index].phase < limits_[index]) {
      send(static_cast<uint16_t>(index), batch, now);
      status_.retransmissions += 1;
    }
  }
}

RankStatus Rank::status() const {
  RankStatus status = status_;
  status.round_trip_seconds = round_trip_.smoothed().count();
  return status;
}

RankProfile Rank::profile(uint64_t calls) const {
  RankProfile profile = memory_ == nullptr ? RankProfile{} : profile_of(channel_.control(), calls);
  profile.summing = 0;  // nobody but the process writes there
  profile.sending = status_.sending;
  profile.receiving = status_.receiving;
  profile.sent_bytes = status_.sent_bytes;
  profile.received_bytes = status_.received_bytes;
  profile.round_trips = round_trip_.histogram();
  profile.round_trip_time = round_trip_.nanoseconds();
  return profile;
}

}  // namespace switchml
