// One data thread of the agent: moves packets between the shared memory of local ranks and the switch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "host_agent/native/frame_link.h"
#include "host_agent/native/job_ranks.h"
#include "native/runtime/mailbox.h"
#include "native/runtime/worker.h"

namespace switchml::agent {

class DataThread {
 public:
  using Peers = std::vector<std::unique_ptr<DataThread>>;
  using JobKey = uint64_t;  // jobs are served in the order of their keys

  // The thread is one of `peers`. Its jobs use `link`, unless that is null. Both must outlive the thread. Throws
  // std::system_error.
  DataThread(const Peers* peers, FrameLink* link);
  ~DataThread();
  DataThread(const DataThread&) = delete;
  DataThread& operator=(const DataThread&) = delete;

  void start();
  void stop();

  // The functions below are called from any other thread and take effect between two rounds of this one.
  // Throws std::system_error.
  void add_job(JobKey key, std::unique_ptr<JobRanks> job);
  // `doorbell` is that of a rank whose home is this thread, otherwise -1. Throws std::system_error.
  void add_rank(JobKey key, const RankAssignment& assignment, RankChannel* channel, int doorbell);
  // Removes the job, too, if it was the last.
  void remove_rank(JobKey key, uint16_t rank, int doorbell);
  // The change of epoch, as in JobRanks. Both return the phases held of this thread's slots, and 0 for other slots.
  std::vector<uint32_t> freeze(JobKey key, uint16_t rank);
  std::vector<uint32_t> fetch(JobKey key, uint16_t rank, const std::vector<uint32_t>& targets);
  // Forwards to JobRanks::pause. Throws std::out_of_range if no job has this key.
  void pause(JobKey key, bool paused);
  // Adds this thread's counters of the rank.
  void add_to(JobKey key, uint16_t rank, RankProfile* profile);
  // Runs `operation` between two rounds of this thread.
  template <class Operation>
  auto paused(Operation&& operation) {
    return worker_.control(operation);
  }

  // Called by a peer that has work for this thread.
  void nudge() { worker_.wake_event().nudge(); }
  void hand_over(JobKey key, StrayDatagram stray) { handed_over_.put({key, std::move(stray)}); }

 private:
  void run();
  bool serve(Clock::time_point now);
  // Wakes each of the peers, given as bits.
  void nudge_peers(uint64_t peers) const;
  void take_handed_over(Clock::time_point now);
  int wait_milliseconds(Clock::time_point now) const;
  // Announces that the thread is about to sleep. Returns the milliseconds to sleep, -1 for no limit.
  int prepare_sleep();
  void sleep(int timeout);
  // No effect if there is no descriptor (-1).
  void watch(int fd, bool is_eventfd) const;
  bool look_again(bool found, Clock::time_point now) const {
    return link_ == nullptr ? found : link_->look_again(found, now);
  }

  const Peers* peers_;
  FrameLink* link_;
  int epoll_ = -1;
  runtime::Worker worker_;
  runtime::Mailbox<std::pair<JobKey, StrayDatagram>> handed_over_;
  // Members below are used in turns.
  std::map<JobKey, std::unique_ptr<JobRanks>> jobs_;
  net::ReceiveBatch receive_batch_;
  net::SendBatch send_batch_;
  std::vector<StrayDatagram> strays_;
};

}  // namespace switchml::agent
