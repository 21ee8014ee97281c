#include "host_agent/native/data_thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "native/runtime/short_slice.h"

namespace switchml::agent {

namespace {

constexpr size_t kMostHandedOver = 4096;

std::system_error failure(const char* what) { return {errno, std::generic_category(), what}; }

}  // namespace

DataThread::Pause::Pause(DataThread& thread) : thread_(thread) {
  {
    const std::lock_guard<std::mutex> count(thread_.pauses_mutex_);
    thread_.waiting_pauses_ += 1;
  }
  channel::ring(thread_.wake_);
  lock_ = std::unique_lock<std::mutex>(thread_.mutex_);
}

DataThread::Pause::~Pause() {
  lock_.unlock();
  {
    const std::lock_guard<std::mutex> count(thread_.pauses_mutex_);
    thread_.waiting_pauses_ -= 1;
  }
  thread_.no_pauses_.notify_one();
}

DataThread::DataThread(const Peers* peers, FrameLink* link)
    : peers_(peers), link_(link), epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (epoll_ < 0 || wake_ < 0) {
    throw failure("epoll");
  }
  watch(wake_, true);
  if (link_ != nullptr) {
    watch(link_->fd(), false);
  }
}

DataThread::~DataThread() {
  stop();
  jobs_.clear();
  close(wake_);
  close(epoll_);
}

void DataThread::start() {
  if (thread_.joinable()) {
    return;
  }
  stopping_ = false;
  // Signals belong to the interpreter's main thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread(&DataThread::run, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "switchml-agent");
}

void DataThread::stop() {
  if (!thread_.joinable()) {
    return;
  }
  {
    const Pause pause(*this);
    stopping_ = true;
  }
  thread_.join();
}

void DataThread::watch(int fd, bool is_eventfd) const {
  if (fd < 0) {
    return;
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = static_cast<uint64_t>(fd) << 1 | (is_eventfd ? 1 : 0);
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) < 0) {
    throw failure("epoll_ctl");
  }
}

void DataThread::add_job(JobKey key, std::unique_ptr<JobRanks> job) {
  const Pause pause(*this);
  for (unsigned source = 0; source < job->transport().sources(); ++source) {
    watch(job->transport().fd(source), false);
  }
  jobs_.emplace(key, std::move(job));
}

void DataThread::add_rank(JobKey key, const RankAssignment& assignment, RankChannel* channel, int doorbell) {
  const Pause pause(*this);
  if (doorbell >= 0) {
    watch(doorbell, true);
  }
  jobs_.at(key)->add(assignment, channel);
}

void DataThread::remove_rank(JobKey key, uint8_t rank, int doorbell) {
  const Pause pause(*this);
  if (doorbell >= 0) {
    epoll_ctl(epoll_, EPOLL_CTL_DEL, doorbell, nullptr);
  }
  const auto found = jobs_.find(key);
  if (found == jobs_.end()) {
    return;  // its opening failed before it came here
  }
  JobRanks& job = *found->second;
  job.remove(rank);
  if (job.empty()) {
    for (unsigned source = 0; source < job.transport().sources(); ++source) {
      epoll_ctl(epoll_, EPOLL_CTL_DEL, job.transport().fd(source), nullptr);
    }
    jobs_.erase(found);
  }
}

std::vector<uint32_t> DataThread::freeze(JobKey key, uint8_t rank) {
  const Pause pause(*this);
  JobRanks& job = *jobs_.at(key);
  job.freeze(rank);
  return job.held(rank);
}

std::vector<uint32_t> DataThread::fetch(JobKey key, uint8_t rank, const std::vector<uint32_t>& targets) {
  const Pause pause(*this);
  JobRanks& job = *jobs_.at(key);
  job.fetch(rank, targets);
  return job.held(rank);
}

void DataThread::add_to(JobKey key, uint8_t rank, RankProfile* profile) {
  const Pause pause(*this);
  jobs_.at(key)->add_to(rank, profile);
}

void DataThread::nudge() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_relaxed)) {
    channel::ring(wake_);
  }
}

void DataThread::nudge_peers(uint64_t peers) const {
  for (; peers != 0; peers &= peers - 1) {
    (*peers_)[static_cast<unsigned>(__builtin_ctzll(peers))]->nudge();
  }
}

void DataThread::hand_over(JobKey key, StrayDatagram stray) {
  {
    const std::lock_guard<std::mutex> lock(handed_over_mutex_);
    if (handed_over_.size() >= kMostHandedOver) return;  // lost, as it would be in a socket whose buffer is full
    handed_over_.emplace_back(key, std::move(stray));
  }
  nudge();
}

bool DataThread::handed_over() {
  const std::lock_guard<std::mutex> lock(handed_over_mutex_);
  return !handed_over_.empty();
}

void DataThread::take_handed_over(Clock::time_point now) {
  std::vector<std::pair<JobKey, StrayDatagram>> taken;
  {
    const std::lock_guard<std::mutex> lock(handed_over_mutex_);
    taken.swap(handed_over_);
  }
  for (const auto& [key, stray] : taken) {
    const auto job = jobs_.find(key);
    if (job != jobs_.end()) {
      job->second->take({stray.bytes.data(), stray.bytes.size(), stray.source}, now, &strays_);
    }
  }
}

bool DataThread::serve(Clock::time_point now) {
  bool busy = false;
  if (link_ != nullptr) {
    const bool received = link_->receive(now);
    const uint64_t handed_to = link_->take_handed_to();
    nudge_peers(handed_to);
    busy = received || handed_to != 0;
  }
  uint64_t others = 0;
  const bool has_peers = peers_->size() > 1;
  if (has_peers) {
    take_handed_over(now);
  }
  for (auto& [key, job] : jobs_) {
    const bool received = job->receive(receive_batch_, now, &strays_);
    for (StrayDatagram& stray : strays_) {
      DataThread& owner = *(*peers_)[stray.thread];
      owner.hand_over(key, std::move(stray));
    }
    strays_.clear();
    const bool submitted = job->take_submissions(&others);
    // Results first: the processes can work on them while the packets below leave.
    job->publish(false);
    job->transmit(send_batch_, now);
    busy = busy || received || submitted;
  }
  nudge_peers(others);
  return busy;
}

int DataThread::wait_milliseconds(Clock::time_point now) const {
  auto deadline = Clock::time_point::max();
  for (const auto& [key, job] : jobs_) {
    deadline = std::min(deadline, job->next_deadline());
  }
  if (deadline == Clock::time_point::max()) {
    return -1;
  }
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<int>(std::clamp<int64_t>(wait, 0, 1000));
}

void DataThread::sleep(std::unique_lock<std::mutex>& lock) {
  sleeping_.store(true, std::memory_order_relaxed);
  for (auto& [key, job] : jobs_) {
    job->publish(true);
    job->set_sleeping(true);
  }
  // Who submitted or handed over something before it could see that did not ring.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool any = handed_over() || std::any_of(jobs_.begin(), jobs_.end(),
                                                [](const auto& each) { return each.second->submissions_wait(); });
  const bool look_now = any || (link_ != nullptr && !link_->prepare_sleep());
  const int timeout = look_now ? 0 : wait_milliseconds(Clock::now());
  std::array<epoll_event, 64> events;
  lock.unlock();
  const int ready = epoll_wait(epoll_, events.data(), events.size(), timeout);
  {
    std::unique_lock<std::mutex> pauses(pauses_mutex_);
    no_pauses_.wait(pauses, [this] { return waiting_pauses_ == 0; });
  }
  lock.lock();
  for (int i = 0; i < ready; ++i) {
    const uint64_t tag = events[static_cast<size_t>(i)].data.u64;
    uint64_t count;
    if ((tag & 1) != 0 && read(static_cast<int>(tag >> 1), &count, sizeof count) < 0) {
      continue;  // emptied already, or its rank was closed meanwhile
    }
  }
  sleeping_.store(false, std::memory_order_relaxed);
  if (link_ != nullptr) {
    link_->end_sleep();
  }
  for (auto& [key, job] : jobs_) {
    job->set_sleeping(false);
  }
}

void DataThread::run() {
  runtime::ask_for_short_slices();
  std::unique_lock<std::mutex> lock(mutex_);
  if (link_ != nullptr) {
    link_->enter_thread();
  }
  while (!stopping_) {
    const auto now = Clock::now();
    if (!look_again(serve(now), now)) {
      sleep(lock);
      continue;
    }
    bool paused;
    {
      const std::lock_guard<std::mutex> pauses(pauses_mutex_);
      paused = waiting_pauses_ > 0;
    }
    if (paused) {
      sleep(lock);
    }
  }
  if (link_ != nullptr) {
    link_->leave_thread();
  }
}

}  // namespace switchml::agent
