// A thread of a shm port. It serves a part of the ranks, and makes such sums as wait at the port when it gets the
// processor. Each worker stays on some of the CPUs and asks the threads of its ranks to stay there, too: so
// where ranks wait, a worker can work, and no core is left with all the sums.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "dataplane/softswitch/native/pipeline/pipeline.h"
#include "dataplane/softswitch/native/shared_memory/shared_slot_store.h"
#include "dataplane/softswitch/native/shared_memory/shm_connection.h"
#include "dataplane/softswitch/native/shared_memory/sum_queue.h"
#include "native/channel/channel.h"
#include "native/runtime/turns.h"
#include "native/runtime/worker.h"

namespace switchml::soft {

class ShmPort;

// The switch, as its workers see it.
class PipelineHost {
 public:
  virtual ~PipelineHost() = default;
  virtual runtime::Turns& turns() = 0;
  // The pipeline and its slots, which may be others in another turn.
  virtual Pipeline& pipeline() = 0;
  virtual SharedSlotStore& slots() = 0;
  // Lets the ranks of all ports but `port` see their results, and appends those that must be woken to `sleepers`.
  virtual void publish_except(const ShmPort* port, std::vector<channel::ChannelControl*>* sleepers) = 0;
};

class ShmWorker {
 public:
  using Clock = std::chrono::steady_clock;

  // Both outlive it. Throws std::system_error.
  ShmWorker(ShmPort* port, PipelineHost* host, std::vector<int> cpus);
  ~ShmWorker();
  ShmWorker(const ShmWorker&) = delete;
  ShmWorker& operator=(const ShmWorker&) = delete;

  void start();
  void stop();
  const std::vector<int>& cpus() const { return cpus_; }

  // In a control operation. Throws std::system_error.
  void attach(uint16_t number, ShmConnection* connection);
  void detach(uint16_t number);
  // There is something new to look at.
  void wake() { worker_.wake_event().wake(); }

  // In a data thread's turn: whether it sleeps and nobody has woken it yet.
  bool asleep() const { return asleep_; }
  void wake_for_sums();
  // In a control operation: makes all sums that wait.
  void run_all();
  // In a control operation: forgets the sums that it has made.
  void forget_sums() { made_.clear(); }

 private:
  void run();
  // Finishes the sums that were made, takes what the ranks have submitted, and makes the sums that became possible.
  // Returns whether there was anything.
  bool turn();
  bool serve(Pipeline* pipeline);
  void sleep();
  // Wakes the ranks that the turn left in sleepers_; values_ is held.
  void wake_sleepers();
  // Lets the ranks know what they must ring for, and wakes those that have results. False when something was submitted
  // meanwhile: then the thread must not sleep.
  bool prepare_sleep();
  // The rank without which no result of the job can come, or null.
  const ShmConnection* awaited_of(ShmJob* job) const;
  std::optional<Clock::time_point> next_deadline() const;

  ShmPort* port_;
  PipelineHost* host_;
  std::vector<int> cpus_;
  int epoll_ = -1;  // of the doorbells, and of the worker's event
  std::map<uint16_t, ShmConnection*> connections_;
  bool asleep_ = false;
  std::vector<SumTask> tasks_;
  std::vector<SumTask> made_;  // a control operation adds to them (run_all)
  std::vector<channel::ChannelControl*>
      sleepers_;  // processes to be woken while values_ is held, and so no memory goes away
  runtime::Turns::Outside values_;
  unsigned passes_ = 0;
  runtime::Worker worker_;
};

}  // namespace switchml::soft
