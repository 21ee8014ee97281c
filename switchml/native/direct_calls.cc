#include "switchml/native/direct_calls.h"

#include <sched.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "native/kernels/kernels.h"

namespace switchml::client {

namespace {

// The sums of a larger call would push out of the caches what the ranks add up.
constexpr uint64_t kStreamedBytes = 8 << 20U;

// The other ranks need a few microseconds for a step if they have a CPU; if not, they get this one when it is yielded.
constexpr int kPauses = 100;
constexpr int kYields = 200;

// With less to add up, another step would take longer.
constexpr uint64_t kSmallBytes = 32 << 10U;

uint64_t chunk_bytes(const Codec& codec) { return uint64_t{codec.elements_of_chunk()} * codec.direct_bytes(); }

bool is_streamed(const Call& call) { return call.times.bytes >= kStreamedBytes; }

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

channel::SharedMemory mapped(int fd, uint32_t ranks) {
  channel::SharedMemory memory = channel::SharedMemory::map(fd, channel::SharedMemory::Others::may_write);
  const channel::DirectMemory direct(memory.data(), ranks);
  if (memory.bytes() < channel::DirectMemory::bytes(ranks) ||
      direct.control().magic != channel::DirectControl::kMagic || direct.control().ranks != ranks) {
    throw std::invalid_argument("the memory for direct calls is not that of the job");
  }
  return memory;
}

}  // namespace

DirectCalls::DirectCalls(int fd, const Geometry& geometry, channel::ChannelControl* control, ThreadTime* time)
    : mapped_(mapped(fd, geometry.world_size)),
      memory_(mapped_.data(), geometry.world_size),
      rank_(geometry.rank),
      ranks_(geometry.world_size),
      control_(control),
      time_(time) {}

bool DirectCalls::takes(const Call& call) const {
  return call.codec->direct_bytes() != 0 &&
         call.sequence < memory_.control().first_over_switch.load(std::memory_order_acquire);
}

// If another rank makes this call or a later one the other way, the ranks differ in their calls: it could have passed
// this call only together with this rank.
void DirectCalls::begin(Call* call) {
  channel::DirectControl& control = memory_.control();
  control.rank[rank_].begun_here.store(call->sequence + 1, std::memory_order_seq_cst);
  for (uint32_t other = 0; other < ranks_; ++other) {
    if (control.rank[other].begun_over_switch.load(std::memory_order_seq_cst) > call->sequence) {
      memory_.leave_from(call->sequence);
    }
  }
  time_->begun(call);
}

void DirectCalls::begins_over_switch(const Call& call) const {
  channel::DirectControl& control = memory_.control();
  control.rank[rank_].begun_over_switch.store(call.sequence + 1, std::memory_order_seq_cst);
  for (uint32_t other = 0; other < ranks_; ++other) {
    if (control.rank[other].begun_here.load(std::memory_order_seq_cst) > call.sequence) {
      memory_.leave_from(call.sequence);
    }
  }
}

bool DirectCalls::advance(std::vector<std::shared_ptr<Call>>* ended) {
  bool any = false;
  for (bool more = true; more;) {
    // First what other ranks wait for.
    more = put();
    more = sum(ended) || more;
    more = take(ended) || more;
    any = any || more;
  }
  if (!ended->empty()) {
    time_->ended(*ended);
  }
  return any;
}

std::vector<std::shared_ptr<Call>> DirectCalls::leaving() {
  std::vector<std::shared_ptr<Call>> calls;
  if (must_leave()) {
    calls.assign(waiting_.begin(), waiting_.end());
    waiting_.clear();
  }
  return calls;
}

bool DirectCalls::must_leave() const {
  return !waiting_.empty() &&
         memory_.control().first_over_switch.load(std::memory_order_acquire) <= waiting_.front()->sequence;
}

bool DirectCalls::spin() const {
  time_->enter(ThreadTime::State::wait);
  for (int i = 0; i < kPauses; ++i) {
    if (has_work()) return true;
    pause();
  }
  for (int i = 0; i < kYields; ++i) {
    if (has_work()) return true;
    sched_yield();
  }
  return false;
}

bool DirectCalls::may_put() const {
  return put_calls_ < waiting_.size() && !frozen_ && put_ - taken_ < channel::DirectControl::kRows &&
         row(put_).taken.has_reached(round_of(put_) * ranks_);
}

bool DirectCalls::may_sum() const {
  if (summed_ == put_ || !row(summed_).put.has_reached((round_of(summed_) + 1) * ranks_)) return false;
  // A piece that is not shared is taken at once, so the earlier pieces come first.
  return takes(*at(summed_).call) && (at(summed_).shared ? !frozen_ : taken_ == summed_);
}

bool DirectCalls::may_take() const {
  return taken_ != summed_ && row(taken_).summed.has_reached(shared_rounds_[row_of(taken_)] * ranks_);
}

// A small piece is added up whole by each rank. So is one without sums, of which each rank takes all. The parts of a
// scatter are shares by themselves.
DirectCalls::Piece DirectCalls::next_piece() const {
  const std::shared_ptr<Call>& call = waiting_[put_calls_];
  const Codec& codec = *call->codec;
  Piece piece;
  piece.call = call;
  piece.first_chunk = next_chunk_;
  piece.chunks =
      std::min(channel::DirectMemory::piece_bytes(ranks_) / chunk_bytes(codec), codec.chunks() - next_chunk_);
  const uint64_t bytes = std::min(piece.chunks * chunk_bytes(codec), codec.arrays().elements * codec.direct_bytes());
  piece.shared = codec.adds_up() && (codec.arrays().division == Division::scatter || bytes * ranks_ > kSmallBytes);
  piece.last = next_chunk_ + piece.chunks == codec.chunks();
  return piece;
}

uint64_t DirectCalls::copy_elements(const Piece& piece) const {
  const Codec& codec = *piece.call->codec;
  const Arrays& arrays = codec.arrays();
  if (arrays.elements == 0 || !codec.contributes()) return 0;
  uint8_t* to = memory_.part(row_of(put_), rank_);
  uint64_t bytes = 0;
  for (uint64_t chunk = 0; chunk < piece.chunks; ++chunk, to += chunk_bytes(codec)) {
    const Place place = codec.layout().place_of(piece.first_chunk + chunk);
    const bool gathered = arrays.division == Division::gather;
    if (gathered && !place.own) continue;
    const uint64_t from = (gathered ? place.in_part : place.first) * codec.direct_bytes();
    kernels::copy(to, arrays.input + from, uint64_t{place.count} * codec.direct_bytes(), false);
    bytes += uint64_t{place.count} * codec.direct_bytes();
  }
  return bytes;
}

bool DirectCalls::put() {
  if (!may_put()) return false;
  time_->enter(ThreadTime::State::quantize);
  Piece piece = next_piece();
  Call& call = *piece.call;
  if (piece.first_chunk == 0) begin(&call);
  channel::DirectControl::Row& row = this->row(put_);
  call.wire_bytes += copy_elements(piece);
  row.parts[rank_] = {call.sequence, piece.chunks, call.fingerprint, call.codec->contributes() ? 1U : 0U, 0};
  const uint64_t count = row.put.count();
  frozen_ = count == 0;
  if (frozen_) return false;
  if (count == (round_of(put_) + 1) * ranks_) wake_others();
  control_->process.direct_put.fetch_add(piece.chunks, std::memory_order_relaxed);
  shared_rounds_[row_of(put_)] += piece.shared ? 1 : 0;
  next_chunk_ = piece.last ? 0 : next_chunk_ + piece.chunks;
  put_calls_ += piece.last ? 1 : 0;
  in_flight_[row_of(put_)] = std::move(piece);
  put_ += 1;
  return true;
}

bool DirectCalls::agree(uint64_t piece) const {
  const auto& parts = row(piece).parts;
  const channel::DirectControl::Part& own = parts[rank_];
  return std::all_of(parts.begin(), parts.begin() + ranks_, [&](const channel::DirectControl::Part& part) {
    return part.sequence == own.sequence && part.chunks == own.chunks && part.fingerprint == own.fingerprint;
  });
}

DirectCalls::Parts DirectCalls::parts_of(uint64_t number, uint64_t chunk) const {
  const Codec& codec = *at(number).call->codec;
  const bool gathered = codec.arrays().division == Division::gather;
  const uint32_t owner = gathered ? codec.layout().owner_of(at(number).first_chunk + chunk) : 0;
  Parts parts(ranks_);
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    const bool has = gathered ? rank == owner : row(number).parts[rank].contributes != 0;
    if (has) parts[rank] = memory_.part(row_of(number), rank) + chunk * chunk_bytes(codec);
  }
  return parts;
}

bool DirectCalls::sum_chunks(uint64_t number, uint64_t first, uint64_t end) const {
  const Piece& piece = at(number);
  const Codec& codec = *piece.call->codec;
  const Arrays& arrays = codec.arrays();
  const bool scattered = arrays.division == Division::scatter;
  bool finite = true;
  for (uint64_t chunk = first; arrays.elements != 0 && chunk < end; ++chunk) {
    const Place place = codec.layout().place_of(piece.first_chunk + chunk);
    if (scattered && !place.own) continue;
    uint8_t* const sums = piece.shared && !scattered
                              ? memory_.sums(row_of(number)) + chunk * chunk_bytes(codec)
                              : arrays.output + (scattered ? place.in_part : place.first) * codec.direct_bytes();
    const Parts parts = parts_of(number, chunk);
    if (codec.adds_up()) {
      finite = codec.sum(piece.first_chunk + chunk, parts, sums) && finite;
    } else if (const auto giver = std::find_if(parts.begin(), parts.end(), [](auto* part) { return part != nullptr; });
               giver != parts.end()) {
      kernels::copy(sums, *giver, uint64_t{place.count} * codec.direct_bytes(), is_streamed(*piece.call));
    }
  }
  return finite;
}

bool DirectCalls::sum(std::vector<std::shared_ptr<Call>>* ended) {
  if (!may_sum()) return false;
  const Piece& piece = at(summed_);
  if (!agree(summed_)) {
    memory_.leave_from(piece.call->sequence);
    return false;
  }
  time_->enter(ThreadTime::State::dequantize);
  if (!piece.shared) {
    const bool finite = sum_chunks(summed_, 0, piece.chunks);
    finish(summed_++, finite, ended);
    return true;
  }
  channel::DirectControl::Row& row = this->row(summed_);
  const bool whole = piece.call->codec->arrays().division == Division::whole;
  const bool finite = whole ? sum_chunks(summed_, piece.chunks * rank_ / ranks_, piece.chunks * (rank_ + 1) / ranks_)
                            : sum_chunks(summed_, 0, piece.chunks);
  row.parts[rank_].non_finite = finite ? 0 : 1;
  const uint64_t count = row.summed.count();
  frozen_ = count == 0;
  if (frozen_) return false;
  if (count == shared_rounds_[row_of(summed_)] * ranks_) wake_others();
  summed_ += 1;
  return true;
}

bool DirectCalls::take(std::vector<std::shared_ptr<Call>>* ended) {
  if (!may_take()) return false;
  time_->enter(ThreadTime::State::dequantize);
  const Piece& piece = at(taken_);
  const Codec& codec = *piece.call->codec;
  const Arrays& arrays = codec.arrays();
  if (arrays.division == Division::whole) {
    const uint64_t offset = piece.first_chunk * chunk_bytes(codec);
    const uint64_t bytes = std::min(piece.chunks * chunk_bytes(codec), arrays.elements * codec.direct_bytes() - offset);
    kernels::copy(arrays.output + offset, memory_.sums(row_of(taken_)), bytes, is_streamed(*piece.call));
  }
  const auto& parts = row(taken_).parts;
  const bool finite = std::all_of(parts.begin(), parts.begin() + ranks_,
                                  [](const channel::DirectControl::Part& part) { return part.non_finite == 0; });
  finish(taken_, finite, ended);
  return true;
}

void DirectCalls::finish(uint64_t number, bool finite, std::vector<std::shared_ptr<Call>>* ended) {
  const Piece piece = at(number);
  for (uint64_t chunk = 0; !finite && chunk < piece.chunks; ++chunk) {
    piece.call->codec->note_non_finite(piece.first_chunk + chunk, parts_of(number, chunk));
  }
  in_flight_[row_of(number)] = {};
  taken_ += 1;
  position_ += piece.chunks;
  control_->process.direct_taken.store(position_, std::memory_order_relaxed);
  if (row(number).taken.count() == (round_of(number) + 1) * ranks_) wake_others();
  if (piece.last) {
    time_->answered(piece.call.get());
    ended->push_back(piece.call);
    waiting_.pop_front();
    put_calls_ -= 1;
  }
}

}  // namespace switchml::client
