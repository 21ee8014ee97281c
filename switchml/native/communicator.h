// A rank's end of its job inside the training process: calls go in from any thread, a thread of its own moves the
// values.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "native/channel/shared_memory.h"
#include "switchml/native/call.h"
#include "switchml/native/codecs/make_codec.h"
#include "switchml/native/stream.h"

namespace switchml::client {

class Communicator {
 public:
  // Duplicates the descriptors; `results_fd` is -1 where results come into the rank's own memory. Throws
  // std::invalid_argument when the memory is not a channel's and std::system_error.
  Communicator(int memory_fd, int doorbell_fd, int results_fd);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const channel::Geometry& geometry() const { return geometry_; }

  // Returns the call's sequence number. The memory belongs to the progress thread until the call has ended.
  // Throws std::invalid_argument for misaligned numbers and std::logic_error once abandoned.
  uint64_t submit(CallKind kind, uint64_t address, uint64_t size, bool contributes, uint32_t call_hash);
  // Whether the call has ended, after at most `seconds`. Throws std::out_of_range for a call that is not known.
  bool wait(uint64_t sequence, double seconds);
  struct Outcome {
    CallStatus status;
    NonFinite non_finite;
  };
  Outcome outcome(uint64_t sequence);
  void release(uint64_t sequence);

  // Stops touching user memory; every call that has not ended fails. Returns when that is so.
  void abandon();
  // The same, but the results that are there by now are taken first: of a rank that will get no others, when its job
  // changes to another epoch.
  void settle();
  // An eventfd, readable once a check failed.
  int attention_fd() const { return attention_; }
  // Position and sequence number of the call whose check failed.
  std::optional<std::pair<uint64_t, uint64_t>> check_failure();
  // Where the progress thread's time went so far.
  const channel::ProcessCounters& spent() const { return channel_.control().process; }
  const channel::CallLog& calls() const { return channel_.control().calls; }
  uint64_t position() const { return position_.load(std::memory_order_relaxed); }

 private:
  void run();
  bool has_results_to_settle() const;
  void take_inbox();
  // Waits a little for results, awake; false when they did not come.
  bool linger();
  void sleep();
  void end(const std::vector<std::shared_ptr<Call>>& ended);
  std::shared_ptr<Call>& find(uint64_t sequence);

  channel::SharedMemory memory_;
  channel::Geometry geometry_{};
  channel::SharedMemory results_;
  channel::Channel channel_;
  int doorbell_ = -1;
  int attention_ = -1;
  std::unique_ptr<Stream> stream_;  // of the progress thread

  std::mutex mutex_;  // guards all below but the atomics
  std::condition_variable ended_;
  std::map<uint64_t, std::shared_ptr<Call>> calls_;  // until released
  std::vector<std::shared_ptr<Call>> inbox_;         // submitted, not seen by the progress thread yet
  uint64_t next_sequence_ = 0;
  bool abandoned_ = false;  // the progress thread has let go of all calls
  std::optional<std::pair<uint64_t, uint64_t>> check_failure_;

  std::atomic<bool> has_inbox_{false};
  std::atomic<bool> abandoning_{false};
  std::atomic<bool> settling_{false};
  std::atomic<uint64_t> position_{0};
  std::thread thread_;
};

}  // namespace switchml::client
