#include "host_agent/native/data_thread.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <system_error>

namespace switchml::agent {

namespace {

std::system_error failure(const char* what) { return {errno, std::generic_category(), what}; }

}  // namespace

DataThread::DataThread(const Peers* peers, FrameLink* link)
    : peers_(peers),
      link_(link),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      worker_("switchml-agent"),
      handed_over_(&worker_.wake_event()) {
  if (epoll_ < 0) {
    throw failure("epoll");
  }
  watch(worker_.wake_event().fd(), true);
  if (link_ != nullptr) {
    watch(link_->fd(), false);
  }
}

DataThread::~DataThread() {
  stop();
  jobs_.clear();
  close(epoll_);
}

void DataThread::start() {
  worker_.start([this] { run(); });
}

void DataThread::stop() { worker_.stop(); }

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
  worker_.control_and_wake([&] {
    for (unsigned source = 0; source < job->transport().sources(); ++source) {
      watch(job->transport().fd(source), false);
    }
    jobs_.emplace(key, std::move(job));
  });
}

void DataThread::add_rank(JobKey key, const RankAssignment& assignment, RankChannel* channel, int doorbell) {
  worker_.control_and_wake([&] {
    if (doorbell >= 0) {
      watch(doorbell, true);
    }
    jobs_.at(key)->add(assignment, channel);
  });
}

void DataThread::remove_rank(JobKey key, uint16_t rank, int doorbell) {
  worker_.control_and_wake([&] {
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
  });
}

std::vector<uint32_t> DataThread::freeze(JobKey key, uint16_t rank) {
  return worker_.control_and_wake([&] {
    JobRanks& job = *jobs_.at(key);
    job.freeze(rank);
    return job.held(rank);
  });
}

std::vector<uint32_t> DataThread::fetch(JobKey key, uint16_t rank, const std::vector<uint32_t>& targets) {
  return worker_.control_and_wake([&] {
    JobRanks& job = *jobs_.at(key);
    job.fetch(rank, targets);
    return job.held(rank);
  });
}

void DataThread::pause(JobKey key, bool paused) {
  worker_.control_and_wake([&] { jobs_.at(key)->pause(paused); });
}

void DataThread::add_to(JobKey key, uint16_t rank, RankProfile* profile) {
  worker_.control([&] { jobs_.at(key)->add_to(rank, profile); });
}

void DataThread::nudge_peers(uint64_t peers) const {
  for (; peers != 0; peers &= peers - 1) {
    (*peers_)[static_cast<unsigned>(__builtin_ctzll(peers))]->nudge();
  }
}

void DataThread::take_handed_over(Clock::time_point now) {
  for (const auto& [key, stray] : handed_over_.take()) {
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

int DataThread::prepare_sleep() {
  worker_.wake_event().prepare_sleep();
  for (auto& [key, job] : jobs_) {
    job->publish(true);
    job->set_sleeping(true);
  }
  // A process or thread that did not see this announcement did not ring for its submissions or packets.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool any = !handed_over_.empty() || std::any_of(jobs_.begin(), jobs_.end(), [](const auto& each) {
    return each.second->submissions_wait() || !each.second->transport().prepare_sleep();
  });
  const bool look_now = any || (link_ != nullptr && !link_->prepare_sleep());
  return look_now ? 0 : wait_milliseconds(Clock::now());
}

void DataThread::sleep(int timeout) {
  std::array<epoll_event, 64> events;
  const int ready = epoll_wait(epoll_, events.data(), events.size(), timeout);
  const auto turn = worker_.turn();
  for (int i = 0; i < ready; ++i) {
    const uint64_t tag = events[static_cast<size_t>(i)].data.u64;
    uint64_t count;
    if ((tag & 1) != 0 && read(static_cast<int>(tag >> 1), &count, sizeof count) < 0) {
      continue;  // emptied already, or its rank was closed during the wait
    }
  }
  worker_.wake_event().end_sleep(false);
  if (link_ != nullptr) {
    link_->end_sleep();
  }
  for (auto& [key, job] : jobs_) {
    job->set_sleeping(false);
  }
}

void DataThread::run() {
  if (link_ != nullptr) {
    const auto turn = worker_.turn();
    link_->enter_thread();
  }
  while (!worker_.stopping()) {
    int timeout = 0;
    {
      const auto turn = worker_.turn();
      const auto now = Clock::now();
      if (look_again(serve(now), now)) {
        continue;
      }
      timeout = prepare_sleep();
    }
    sleep(timeout);
  }
  if (link_ != nullptr) {
    const auto turn = worker_.turn();
    link_->leave_thread();
  }
}

}  // namespace switchml::agent
