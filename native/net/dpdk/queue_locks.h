// The locks of a device's queues.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <vector>

namespace switchml::net {

// A mutex for the thread of each queue, and a lock over all of them for a thread that changes the device. A thread that
// polls its queue would take its mutex again at once, so those that move frames do not try while another thread waits.
class QueueLocks {
 public:
  explicit QueueLocks(size_t queues) : queues_(queues) {}

  // Never waits; the result owns nothing while another thread has, or waits for, all queues.
  std::unique_lock<std::mutex> try_lock(size_t queue) {
    if (all_wanted_.load(std::memory_order_relaxed)) return {};
    return std::unique_lock<std::mutex>(queues_[queue], std::try_to_lock);
  }

  // All queues; with unlock(), for std::lock_guard.
  void lock() {
    all_.lock();
    all_wanted_.store(true, std::memory_order_relaxed);
    for (std::mutex& queue : queues_) queue.lock();
  }
  void unlock() {
    for (std::mutex& queue : queues_) queue.unlock();
    all_wanted_.store(false, std::memory_order_relaxed);
    all_.unlock();
  }

 private:
  std::mutex all_;
  std::atomic<bool> all_wanted_{false};
  std::vector<std::mutex> queues_;
};

}  // namespace switchml::net
