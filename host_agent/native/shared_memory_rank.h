// A rank whose process shares its memory with the switch: the agent binds the rank, passes the memory to the process
// and reads the counters, but moves no values.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "host_agent/native/assignment.h"
#include "host_agent/native/rank.h"
#include "native/channel/shared_memory.h"
#include "native/channel/shm_messages.h"

namespace switchml::agent {

// An agent's connection to a shm port.
class ShmConnector {
 public:
  // Throws std::system_error if no switch answers at `path` in time, and std::invalid_argument if it refuses.
  explicit ShmConnector(const std::string& path);
  ~ShmConnector();
  ShmConnector(const ShmConnector&) = delete;
  ShmConnector& operator=(const ShmConnector&) = delete;

  struct Reply {
    channel::ShmAnswer answer{};
    std::array<int, channel::kShmDescriptors> descriptors{-1, -1, -1};  // the caller must close those that are not -1
  };
  Reply ask(const channel::ShmRequest& request) const;
  int fd() const { return socket_; }
  // Returns whether end() was called, or the switch has closed the connection, which it does only when it ends.
  bool ended() const;
  // Makes the switch stop serving the rank.
  void end() const;
  // For a bound rank: freezes it or, with `targets`, lets it fetch. Returns the number of phases that it holds of each
  // slot.
  std::vector<uint32_t> ask(uint32_t kind, uint32_t slots, const std::vector<uint32_t>& targets) const;

 private:
  int socket_ = -1;
};

class SharedMemoryRank : public Rank {
 public:
  // `switch_address` and `switch_udp_port` of the assignment are not used. Throws what ShmConnector throws.
  SharedMemoryRank(const std::string& path, const RankAssignment& assignment);
  ~SharedMemoryRank() override;
  SharedMemoryRank(const SharedMemoryRank&) = delete;
  SharedMemoryRank& operator=(const SharedMemoryRank&) = delete;

  uint32_t sender() const override { return connection_; }
  int switch_socket() const override { return connector_.fd(); }
  bool switch_ended() const override { return connector_.ended(); }
  std::vector<int> open_channel() override;
  void close() override;
  RankStatus status() const override;
  RankProfile profile(uint64_t calls) const override;
  // The switch freezes the rank and lets it fetch. Both wait for its answer and throw what ShmConnector throws.
  std::vector<uint32_t> freeze() override { return ask(channel::ShmRequest::kFreeze, {}); }
  void pause(bool /*paused*/) override {}
  std::vector<uint32_t> fetch(const std::vector<uint32_t>& targets) override {
    return ask(channel::ShmRequest::kFetch, targets);
  }

 private:
  std::vector<uint32_t> ask(uint32_t kind, const std::vector<uint32_t>& targets);
  // Throws std::out_of_range once the rank is closed.
  void require_open() const;

  ShmConnector connector_;
  std::atomic<bool> closed_{false};
  uint32_t slots_;
  uint32_t slot_uses_;
  uint16_t connection_ = 0;
  channel::SharedMemory memory_;  // read only
  std::mutex mutex_;              // guards the members below, and lets one request at a time go to the switch
  std::array<int, channel::kShmDescriptors> descriptors_{-1, -1, -1};
  bool taken_ = false;
};

// Returns the number of the shm port at `path`. Throws what ShmConnector throws.
uint16_t shm_port_at(const std::string& path);

}  // namespace switchml::agent
