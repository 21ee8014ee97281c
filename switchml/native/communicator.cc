#include "switchml/native/communicator.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>

#include "native/runtime/short_slice.h"
#include "native/runtime/stopwatch.h"
#include "switchml/native/codecs/agreed.h"
#include "switchml/native/codecs/mix.h"

namespace switchml::client {

namespace {

std::system_error system_failure(const char* what) { return {errno, std::generic_category(), what}; }

// The time for which a thread that yields the CPU to others spins for results before it sleeps. Going to sleep and
// being woken costs some ten microseconds, about as much as a batch of results.
constexpr std::chrono::microseconds kSpinTime{200};
constexpr uint32_t kResultsWorthTaking = 16;
constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;

// Returns the time until `end`, which may be over.
timespec time_until(std::chrono::steady_clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(end - std::chrono::steady_clock::now());
  const int64_t nanoseconds = std::max<int64_t>(0, left.count());
  return {nanoseconds / kNanosecondsPerSecond, nanoseconds % kNanosecondsPerSecond};
}

// Returns whether there is a CPU for each rank of the job, so that a spinning rank does not take one from another rank.
bool has_own_cpu(const channel::Geometry& geometry) {
  cpu_set_t allowed;
  return geometry.results_apart == channel::Geometry::kInPlace && sched_getaffinity(0, sizeof allowed, &allowed) == 0 &&
         geometry.world_size <= static_cast<uint32_t>(CPU_COUNT(&allowed));
}

// Restricts the calling thread to the CPUs near which the server keeps this rank's values, as far as it may use them.
void stay_near(const channel::Geometry& geometry) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
    return;
  }
  cpu_set_t near;
  CPU_ZERO(&near);
  for (uint32_t cpu = geometry.first_cpu; cpu <= geometry.last_cpu && cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) {
      CPU_SET(cpu, &near);
    }
  }
  if (CPU_COUNT(&near) > 0) {
    sched_setaffinity(0, sizeof near, &near);  // a failure costs only some speed
  }
}

channel::Geometry checked_geometry(const channel::SharedMemory& memory) {
  channel::Geometry geometry{};
  if (memory.bytes() >= sizeof(channel::ChannelControl)) {
    std::memcpy(&geometry, memory.data(), sizeof geometry);
  }
  const bool right =
      geometry.magic == channel::Geometry::kMagic && geometry.slots >= 1 &&
      geometry.slots <= wire::protocol::max_slot_index + 1 && (geometry.slots & (geometry.slots - 1)) == 0 &&
      geometry.values >= 1 && geometry.values <= wire::protocol::max_values && geometry.world_size >= 1 &&
      geometry.world_size <= wire::protocol::max_world && geometry.rank < geometry.world_size &&
      geometry.results_apart <= channel::Geometry::kInPlace &&
      channel::Channel::bytes(geometry.slots, geometry.values, geometry.results_apart != 0) <= memory.bytes();
  if (!right) {
    throw std::invalid_argument("the shared memory is not a channel of this version of the agent");
  }
  return geometry;
}

}  // namespace

Communicator::Communicator(int memory_fd, int doorbell_fd, int shared_fd, const SipKey& check_key, bool direct)
    : memory_(channel::SharedMemory::map(memory_fd, channel::SharedMemory::Others::may_write)),
      geometry_{checked_geometry(memory_)},
      check_(check_key, geometry_.rank, geometry_.world_size),
      spins_(has_own_cpu(geometry_)) {
  const bool results_come_apart = geometry_.results_apart == 1;
  if (results_come_apart && shared_fd < 0) {
    throw std::invalid_argument("the memory of the job's results is missing");
  }
  if (results_come_apart) {
    results_ = channel::SharedMemory::map(shared_fd, channel::SharedMemory::Others::may_read);
    if (results_.bytes() < channel::Channel::result_bytes(geometry_.slots, geometry_.values)) {
      throw std::invalid_argument("the memory of the job's results is too small");
    }
  }
  void* const results = geometry_.results_apart == channel::Geometry::kInPlace
                            ? channel::Channel::contributions(memory_.data(), geometry_.slots)
                            : results_.data();
  channel_ = channel::Channel(memory_.data(), geometry_.slots, geometry_.values, results);
  doorbell_ = fcntl(doorbell_fd, F_DUPFD_CLOEXEC, 0);
  attention_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  try {
    if (doorbell_ < 0 || attention_ < 0) {
      throw system_failure("eventfd");
    }
    geometry_.weights = &check_.weights();
    stream_ = std::make_unique<Stream>(channel_, geometry_, doorbell_, check_);
    if (!results_come_apart && shared_fd >= 0) {
      direct_ = std::make_unique<DirectCalls>(shared_fd, geometry_, &channel_.control(), &stream_->time());
      if (!direct) direct_->leave();
    }
    // Blocks signals, which are for the interpreter's main thread.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread(&Communicator::run, this);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(thread_.native_handle(), "switchml");
  } catch (...) {
    close(doorbell_);
    close(attention_);
    throw;
  }
}

Communicator::~Communicator() {
  abandon();
  thread_.join();
  close(doorbell_);
  close(attention_);
}

uint64_t Communicator::submit(CallDescription description, bool awaited) {
  const auto& [kind, arrays, lanes, form, contributes, call_hash] = description;
  require_memory(arrays.input, arrays.elements, kind);
  require_memory(arrays.output, arrays.elements, kind);
  auto call = std::make_shared<Call>();
  call->times.kind = static_cast<uint64_t>(kind) + static_cast<uint64_t>(arrays.division) * channel::kKindsOfCalls;
  call->times.bytes = arrays.elements * element_bytes(kind);
  call->times.submitted = runtime::monotonic_nanoseconds();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (abandoning_) {
      throw std::logic_error("the communicator was abandoned");
    }
    call->sequence = description.lanes.sequence = next_sequence_;
    call->codec =
        make_codec(kind, arrays, contributes, geometry_, lanes, form == Form::sparse ? Form::sparse : Form::dense);
    if (form == Form::automatic && call->times.bytes >= SparseHistory::kLeastBytes && !AgreedBlocks::suit(geometry_)) {
      auto sparse = make_codec(kind, arrays, contributes, geometry_, lanes, Form::automatic);
      if (sparse->is_sparse()) {
        call->sparse_codec = std::move(sparse);
      }
    }
    if (form == Form::sparse && !call->codec->is_sparse() && call->codec->words() > 0) {
      channel_.control().process.sparse_calls_dense.fetch_add(1, std::memory_order_relaxed);
    }
    ++next_sequence_;
    call->fingerprint = mix(call_hash ^ mix(static_cast<uint32_t>(call->sequence)));
    calls_.emplace(call->sequence, call);
    inbox_.push_back(call);
    has_inbox_ = true;
    ++unfinished_;
    if (!attended_ && !(awaited && is_short(*call))) {
      unattended_.notify_one();
    }
  }
  wake();
  return call->sequence;
}

void Communicator::wake() const {
  channel::wake_process(channel_.control());
  if (direct_ != nullptr) direct_->wake();
}

std::shared_ptr<Call>& Communicator::find(uint64_t sequence) {
  const auto found = calls_.find(sequence);
  if (found == calls_.end()) {
    throw std::out_of_range("no call has ticket " + std::to_string(sequence) + ", or it was released");
  }
  return found->second;
}

bool Communicator::wait(uint64_t sequence, double seconds) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::unique_lock<std::mutex> lock(mutex_);
  const std::shared_ptr<Call> call = find(sequence);
  if (call->status == CallStatus::pending && !attended_ && !abandoning_ && is_short(*call)) {
    drive(lock, call.get(), end);
  }
  return ended_.wait_until(lock, end, [&] { return call->status != CallStatus::pending; });
}

CallStatus Communicator::status(uint64_t sequence) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return find(sequence)->status;
}

Communicator::Outcome Communicator::release(uint64_t sequence) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::shared_ptr<Call> call = find(sequence);
  if (call->status == CallStatus::pending) {
    throw std::invalid_argument("the call with ticket " + std::to_string(sequence) + " has not ended");
  }
  calls_.erase(sequence);
  const Codec& codec = *call->codec;
  return {call->status, codec.non_finite(), call->wire_bytes, codec.blocks(), codec.is_sparse()};
}

void Communicator::abandon() {
  // Then no other rank completes a call that this one gives up.
  if (direct_ != nullptr) direct_->freeze();
  std::unique_lock<std::mutex> lock(mutex_);
  abandoning_ = true;
  wake();
  unattended_.notify_one();
  ended_.wait(lock, [this] { return abandoned_; });
}

void Communicator::settle() {
  settling_ = true;
  abandon();
}

void Communicator::fail_from(uint64_t sequence) {
  const std::lock_guard<std::mutex> lock(mutex_);
  first_to_fail_ = std::min(first_to_fail_, sequence);
  abandon_late_calls();
}

void Communicator::abandon_late_calls() {
  const auto is_pending = [](const auto& entry) { return entry.second->status == CallStatus::pending; };
  const auto late = calls_.lower_bound(first_to_fail_);
  if (std::any_of(late, calls_.end(), is_pending) && std::none_of(calls_.begin(), late, is_pending)) {
    abandoning_ = true;
    wake();
    unattended_.notify_one();
  }
}

bool Communicator::has_results_to_settle() const {
  return settling_ && !stream_->check_failed() &&
         (stream_->results_that_wait() != 0 || (direct_ != nullptr && direct_->has_results()));
}

std::optional<std::pair<uint64_t, uint64_t>> Communicator::check_failure() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return check_failure_;
}

void Communicator::take_inbox() {
  if (!has_inbox_.exchange(false)) {
    return;
  }
  std::vector<std::shared_ptr<Call>> arrived;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    arrived.swap(inbox_);
  }
  queue_.insert(queue_.end(), arrived.begin(), arrived.end());
}

void Communicator::begin_calls() {
  while (!queue_.empty()) {
    std::shared_ptr<Call>& next = queue_.front();
    const bool directly = direct_ != nullptr && direct_->takes(*next);
    if (directly ? !stream_->idle() : waits_for_ranks()) return;
    if (directly) {
      direct_->add(std::move(next));
    } else {
      if (direct_ != nullptr) direct_->begins_over_switch(*next);
      stream_->add(std::move(next));
    }
    queue_.pop_front();
  }
}

bool Communicator::advance(std::vector<std::shared_ptr<Call>>* ended) {
  take_inbox();
  begin_calls();
  if (waits_for_ranks()) {
    const bool advanced = direct_->advance(ended);
    const auto leaving = direct_->leaving();
    queue_.insert(queue_.begin(), leaving.begin(), leaving.end());
    return advanced || !leaving.empty();
  }
  return !stream_->check_failed() && stream_->advance(ended);
}

bool Communicator::spin() {
  if (waits_for_ranks()) return direct_->spin();
  if (!spins_ || stream_->check_failed() || !stream_->waits_for_results()) {
    return false;
  }
  stream_->time().enter(ThreadTime::State::wait);
  const uint32_t wanted = std::min(stream_->results_wanted(), kResultsWorthTaking);
  const std::atomic<uint32_t>& switch_on = channel_.control().server_cpu;
  const auto end = Clock::now() + kSpinTime;
  do {
    if (stream_->results_that_wait() >= wanted) {
      return true;
    }
    if (static_cast<uint32_t>(sched_getcpu()) == switch_on.load(std::memory_order_relaxed)) {
      return false;  // the switch shares this CPU, and could only run when the scheduler preempts this thread
    }
    sched_yield();  // the switch may be waiting for this CPU
  } while (!has_inbox_ && !abandoning_ && Clock::now() < end);
  return false;
}

void Communicator::sleep_among_ranks(Clock::time_point end) {
  const uint32_t event = direct_->announce_sleep();
  if (direct_->has_work() || has_inbox_ || abandoning_) return;
  stream_->time().enter(ThreadTime::State::wait);
  channel_.control().process.sleeps.fetch_add(1, std::memory_order_relaxed);
  const timespec timeout = time_until(end);
  direct_->sleep(event, &timeout);
}

void Communicator::sleep(Clock::time_point end) {
  if (waits_for_ranks()) return sleep_among_ranks(end);
  channel::ChannelControl& control = channel_.control();
  control.process_saw.store(stream_->taken(), std::memory_order_relaxed);
  control.process_wakes_at.store(stream_->taken() + stream_->results_wanted(), std::memory_order_relaxed);
  const uint32_t event = channel::announce_sleep(control);
  const bool results = !stream_->check_failed() && stream_->results_that_wait() != 0;
  if (!results && !has_inbox_ && !abandoning_) {
    if (stream_->waits_for_results()) {  // otherwise it waits for a call
      stream_->time().enter(ThreadTime::State::wait);
      control.process.sleeps.fetch_add(1, std::memory_order_relaxed);
    } else {
      stream_->time().enter(ThreadTime::State::idle);
    }
    const timespec timeout = time_until(end);
    channel::futex_wait(control.process_event, event, &timeout);
  }
  control.process_sleeps.store(0, std::memory_order_relaxed);
}

bool Communicator::end(const std::vector<std::shared_ptr<Call>>& ended, const Call* call) {
  bool all = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& each : ended) {
      each->status = each->codec->non_finite().count > 0 ? CallStatus::non_finite : CallStatus::done;
    }
    unfinished_ -= ended.size();
    abandon_late_calls();
    all = call == nullptr ? unfinished_ == 0 : call->status != CallStatus::pending;
  }
  ended_.notify_all();
  return all;
}

void Communicator::drive(std::unique_lock<std::mutex>& lock, const Call* call, Clock::time_point end) {
  attended_ = true;
  lock.unlock();
  move_values(call, end);
  lock.lock();
  attended_ = false;
  if (unfinished_ > 0 || abandoning_) {
    unattended_.notify_one();
  }
}

void Communicator::move_values(const Call* call, Clock::time_point end) {
  std::vector<std::shared_ptr<Call>> ended;
  bool over = false;
  while (!over && (!abandoning_ || has_results_to_settle())) {
    const bool advanced = advance(&ended);
    position_.store(stream_->position() + (direct_ == nullptr ? 0 : direct_->position()),
                    std::memory_order_relaxed);  // before any other thread learns that a call has ended
    if (!ended.empty()) {
      over = this->end(ended, call);
      ended.clear();
    }
    if (advanced && stream_->check_failed()) {
      const std::lock_guard<std::mutex> lock(mutex_);
      check_failure_.emplace(stream_->failed_position(), stream_->failed_sequence());
      channel::ring(attention_);
    }
    if (!advanced && !spin()) {
      sleep(end);
    }
    over = over || Clock::now() >= end;
  }
  stream_->time().enter(ThreadTime::State::idle);
}

void Communicator::run() {
  // A thread that spins keeps its long time slices, so that the switch, whose slices are short, preempts it when woken.
  if (!spins_) {
    runtime::ask_for_short_slices();
  }
  stay_near(geometry_);
  std::unique_lock<std::mutex> lock(mutex_);
  do {
    unattended_.wait(lock, [this] { return !attended_ && (unfinished_ > 0 || abandoning_); });
    drive(lock, nullptr, Clock::time_point::max());
  } while (!abandoning_);
  for (auto& [sequence, call] : calls_) {
    if (call->status == CallStatus::pending) {
      call->status = CallStatus::failed;
    }
  }
  inbox_.clear();
  abandoned_ = true;
  lock.unlock();
  ended_.notify_all();
}

}  // namespace switchml::client
