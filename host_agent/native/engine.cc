#include "host_agent/native/engine.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

namespace switchml {

namespace {

std::system_error system_failure(const char* what) { return {errno, std::generic_category(), what}; }

}  // namespace

// Holds the engine still for a control call.
class Engine::ControlCall {
 public:
  explicit ControlCall(Engine& engine) : engine_(engine) {
    {
      const std::lock_guard<std::mutex> count(engine_.calls_mutex_);
      engine_.waiting_calls_ += 1;
    }
    ring(engine_.wake_);
    lock_ = std::unique_lock<std::mutex>(engine_.mutex_);
  }
  ~ControlCall() {
    lock_.unlock();
    {
      const std::lock_guard<std::mutex> count(engine_.calls_mutex_);
      engine_.waiting_calls_ -= 1;
    }
    engine_.no_calls_.notify_one();
  }
  ControlCall(const ControlCall&) = delete;
  ControlCall& operator=(const ControlCall&) = delete;

 private:
  Engine& engine_;
  std::unique_lock<std::mutex> lock_;
};

Engine::Engine() : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (epoll_ < 0 || wake_ < 0) {
    throw system_failure("epoll");
  }
  watch(wake_, true);
}

Engine::~Engine() {
  stop();
  ranks_.clear();
  close(wake_);
  close(epoll_);
}

void Engine::start() {
  if (thread_.joinable()) {
    return;
  }
  stopping_ = false;
  // Signals belong to the interpreter's main thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread(&Engine::run, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "switchml-agent");
}

void Engine::stop() {
  if (!thread_.joinable()) {
    return;
  }
  {
    const ControlCall call(*this);
    stopping_ = true;
  }
  thread_.join();
}

void Engine::watch(int fd, bool is_eventfd) const {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = static_cast<uint64_t>(fd) << 1 | (is_eventfd ? 1 : 0);
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) < 0) {
    throw system_failure("epoll_ctl");
  }
}

Rank& Engine::rank(uint64_t handle) const {
  const auto found = ranks_.find(handle);
  if (found == ranks_.end()) {
    throw std::out_of_range("no open rank has handle " + std::to_string(handle));
  }
  return *found->second;
}

uint64_t Engine::open_rank(const RankAssignment& assignment) {
  auto rank = std::make_unique<Rank>(assignment);
  const ControlCall call(*this);
  watch(rank->socket().fd(), false);
  watch(rank->doorbell(), true);
  const uint64_t handle = next_handle_++;
  ranks_.emplace(handle, std::move(rank));
  return handle;
}

uint64_t Engine::open_shm_rank(const std::string& path, const RankAssignment& assignment) {
  auto rank = std::make_unique<ShmRank>(path, assignment);
  const ControlCall call(*this);
  const uint64_t handle = next_handle_++;
  shm_ranks_.emplace(handle, std::move(rank));
  return handle;
}

uint16_t Engine::udp_port(uint64_t handle) {
  const ControlCall call(*this);
  if (const auto found = shm_ranks_.find(handle); found != shm_ranks_.end()) {
    return found->second->connection();
  }
  return rank(handle).socket().port();
}

Engine::Descriptors Engine::open_channel(uint64_t handle) {
  const ControlCall call(*this);
  if (const auto found = shm_ranks_.find(handle); found != shm_ranks_.end()) {
    const auto descriptors = found->second->take_descriptors();
    return {descriptors[0], descriptors[1], descriptors[2]};
  }
  Rank& opened = rank(handle);
  const int memory = opened.open_channel();
  const int doorbell = fcntl(opened.doorbell(), F_DUPFD_CLOEXEC, 0);
  if (doorbell < 0) {
    const std::system_error failure = system_failure("dup of the doorbell");
    close(memory);
    throw failure;
  }
  return {memory, doorbell};
}

void Engine::close_rank(uint64_t handle) {
  const ControlCall call(*this);
  if (shm_ranks_.erase(handle) != 0) {
    return;
  }
  const Rank& closing = rank(handle);
  epoll_ctl(epoll_, EPOLL_CTL_DEL, closing.socket().fd(), nullptr);
  epoll_ctl(epoll_, EPOLL_CTL_DEL, closing.doorbell(), nullptr);
  ranks_.erase(handle);
}

RankStatus Engine::status(uint64_t handle) {
  const ControlCall call(*this);
  if (const auto found = shm_ranks_.find(handle); found != shm_ranks_.end()) {
    return found->second->status();
  }
  return rank(handle).status();
}

std::vector<uint32_t> Engine::freeze(uint64_t handle) {
  const ControlCall call(*this);
  if (const auto found = shm_ranks_.find(handle); found != shm_ranks_.end()) {
    return found->second->freeze();
  }
  return rank(handle).freeze();
}

std::vector<uint32_t> Engine::fetch(uint64_t handle, const std::vector<uint32_t>& targets) {
  const ControlCall call(*this);
  if (const auto found = shm_ranks_.find(handle); found != shm_ranks_.end()) {
    return found->second->fetch(targets);
  }
  return rank(handle).fetch(targets);
}

RankProfile Engine::profile(uint64_t handle, uint64_t calls) {
  const ControlCall call(*this);
  if (const auto found = shm_ranks_.find(handle); found != shm_ranks_.end()) {
    return found->second->profile(calls);
  }
  return rank(handle).profile(calls);
}

bool Engine::serve(Clock::time_point now) {
  bool busy = false;
  for (auto& [handle, rank] : ranks_) {
    const bool received = rank->receive(receive_batch_, now);
    const bool submitted = rank->take_submissions();
    // Results first: the process can work on them while the packets below leave.
    rank->publish();
    rank->transmit(send_batch_, now);
    busy = busy || received || submitted;
  }
  return busy;
}

int Engine::wait_milliseconds(Clock::time_point now) const {
  auto deadline = Clock::time_point::max();
  for (const auto& [handle, rank] : ranks_) {
    deadline = std::min(deadline, rank->next_deadline());
  }
  if (deadline == Clock::time_point::max()) {
    return -1;
  }
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<int>(std::clamp<int64_t>(wait, 0, 1000));
}

void Engine::sleep(std::unique_lock<std::mutex>& lock) {
  for (auto& [handle, rank] : ranks_) {
    rank->set_sleeping(true);
  }
  // A process that submitted before it could see the flag did not ring.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool submissions = false;
  for (auto& [handle, rank] : ranks_) {
    submissions = submissions || rank->submissions_wait();
  }
  const int timeout = submissions ? 0 : wait_milliseconds(Clock::now());
  std::array<epoll_event, 64> events;
  lock.unlock();
  const int ready = epoll_wait(epoll_, events.data(), events.size(), timeout);
  {
    std::unique_lock<std::mutex> calls(calls_mutex_);
    no_calls_.wait(calls, [this] { return waiting_calls_ == 0; });
  }
  lock.lock();
  for (int i = 0; i < ready; ++i) {
    const uint64_t tag = events[static_cast<size_t>(i)].data.u64;
    uint64_t count;
    if ((tag & 1) != 0 && read(static_cast<int>(tag >> 1), &count, sizeof count) < 0) {
      continue;  // emptied already, or its rank was closed meanwhile
    }
  }
  for (auto& [handle, rank] : ranks_) {
    rank->set_sleeping(false);
  }
}

void Engine::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    if (!serve(Clock::now())) {
      sleep(lock);
      continue;
    }
    bool called;
    {
      const std::lock_guard<std::mutex> calls(calls_mutex_);
      called = waiting_calls_ > 0;
    }
    if (called) {
      sleep(lock);
    }
  }
}

}  // namespace switchml
