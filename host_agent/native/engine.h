// The agent's data thread: moves packets between the shared memory of local ranks and the switch.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "host_agent/native/rank.h"
#include "host_agent/native/shm_rank.h"

namespace switchml {

// Control calls come from any thread and take effect between two rounds of the data thread. A handle that is not open
// raises std::out_of_range.
class Engine {
 public:
  // Throws std::system_error.
  Engine();
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void start();
  void stop();

  // Throws as Rank's constructor does.
  uint64_t open_rank(const RankAssignment& assignment);
  // A rank that shares memory with the switch at `path`; it waits for that switch, a few milliseconds. Throws as
  // ShmRank's constructor does.
  uint64_t open_shm_rank(const std::string& path, const RankAssignment& assignment);
  // The rank's UDP port, or what takes its place.
  uint16_t udp_port(uint64_t handle);
  // New descriptors for the process, which the caller closes.
  struct Descriptors {
    int memory;
    int doorbell;
    int results = -1;  // of a rank that shares memory with the switch
  };
  Descriptors open_channel(uint64_t handle);
  void close_rank(uint64_t handle);
  RankStatus status(uint64_t handle);
  // As Rank's, of a rank that shares memory with the switch too; they throw what ShmConnector throws as well.
  std::vector<uint32_t> freeze(uint64_t handle);
  std::vector<uint32_t> fetch(uint64_t handle, const std::vector<uint32_t>& targets);
  // With up to `calls` of the rank's latest calls.
  RankProfile profile(uint64_t handle, uint64_t calls);

 private:
  class ControlCall;

  void run();
  bool serve(Clock::time_point now);
  int wait_milliseconds(Clock::time_point now) const;
  void sleep(std::unique_lock<std::mutex>& lock);
  void watch(int fd, bool is_eventfd) const;
  Rank& rank(uint64_t handle) const;

  int epoll_ = -1;
  int wake_ = -1;
  std::mutex mutex_;  // held by the data thread but while it sleeps, and by control calls
  std::condition_variable no_calls_;
  int waiting_calls_ = 0;  // guarded by calls_mutex_: control calls go first, or a busy data thread would starve them
  std::mutex calls_mutex_;
  bool stopping_ = false;
  std::thread thread_;
  std::map<uint64_t, std::unique_ptr<Rank>> ranks_;
  std::map<uint64_t, std::unique_ptr<ShmRank>> shm_ranks_;  // in which the data thread has no part
  uint64_t next_handle_ = 1;
  ReceiveBatch receive_batch_;
  SendBatch send_batch_;
};

}  // namespace switchml
