// The thread in which DPDK handles interrupts and the control messages of net_memif.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "native/net/dpdk/queue_locks.h"

struct rte_intr_handle;

namespace switchml::net {

// Keeps the drivers' code in that thread apart from the threads that move frames.
//
// When the other end of a net_memif is gone, the driver unmaps the memory that the two shared, without regard to
// threads that are just reading it (DPDK 22.11 to 26.11); a process would end with a segmentation fault because another
// one ended. The interrupt thread calls all its handlers one after another, so an additional handler that is always due
// stops it: it returns only while the queues of all devices are locked, and unlocks them when it is called again. All
// that the drivers do in this thread, they do between the two.
class InterruptThread {
 public:
  // DPDK starts the thread and never ends it, so this object is not destroyed.
  static InterruptThread& of_process();

  // From now on the drivers' code runs only while `device` is locked. Throws std::system_error if the thread does not
  // answer.
  void add(QueueLocks* device);
  // `device` is not used afterwards; after the last one the thread runs as DPDK means it to. No effect if it was not
  // added.
  void remove(QueueLocks* device);

 private:
  // Between two turns of the drivers: each takes the threads that move frames a few microseconds.
  static constexpr std::chrono::milliseconds kBetweenTurns{5};
  static constexpr std::chrono::seconds kAnswers{10};

  // The drivers run without pauses, between two of them, or not at all.
  enum class State : uint8_t { unhindered, drivers_turn, paused };

  InterruptThread() = default;
  void await_pause(std::unique_lock<std::mutex>* lock);
  void forget(const QueueLocks* device);
  void begin_pauses();
  static void handle(void* self);  // DPDK calls it while its event is due, which is always
  void pause();
  void end_pauses();
  void ended();

  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::unhindered;
  std::vector<QueueLocks*> devices_;
  std::vector<QueueLocks*> locked_;  // during the drivers' turn
  rte_intr_handle* always_due_ = nullptr;
};

}  // namespace switchml::net
