// A rank whose process shares its memory with the switch: the agent binds it there, hands the memory on and looks at
// the counters, but moves nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "host_agent/native/assignment.h"
#include "host_agent/native/rank_profile.h"
#include "native/channel/shared_memory.h"
#include "native/channel/shm_messages.h"

namespace switchml::agent {

// An agent's connection to a shm port.
class ShmConnector {
 public:
  // Throw std::system_error when nobody answers at `path` in time, and std::invalid_argument when the switch refuses.
  explicit ShmConnector(const std::string& path);
  ~ShmConnector();
  ShmConnector(const ShmConnector&) = delete;
  ShmConnector& operator=(const ShmConnector&) = delete;

  struct Reply {
    channel::ShmAnswer answer{};
    std::array<int, channel::kShmDescriptors> descriptors{-1, -1};  // the caller closes those that are there
  };
  Reply ask(const channel::ShmRequest& request) const;
  int fd() const { return socket_; }
  // Whether the switch has closed its end; it does so only when it ends.
  bool ended() const;
  // For a rank that is bound: freeze or, with `targets`, fetch. Returns how many phases it holds, for each slot.
  std::vector<uint32_t> ask(uint32_t kind, uint32_t slots, const std::vector<uint32_t>& targets) const;

 private:
  int socket_ = -1;
};

class ShmRank {
 public:
  // `switch_address` and `switch_udp_port` of the assignment are not used. Throws what ShmConnector throws.
  ShmRank(const std::string& path, const RankAssignment& assignment);
  // The switch serves the rank no longer.
  ~ShmRank();
  ShmRank(const ShmRank&) = delete;
  ShmRank& operator=(const ShmRank&) = delete;

  uint16_t connection() const { return connection_; }
  int switch_socket() const { return connector_.fd(); }
  bool switch_ended() const { return connector_.ended(); }
  // Memory, doorbell and results, for the process; the caller closes them. Throws std::logic_error the second time.
  std::array<int, channel::kShmDescriptors> take_descriptors();
  RankStatus status() const;
  // As Rank's; the switch does it.
  std::vector<uint32_t> freeze() const { return connector_.ask(channel::ShmRequest::kFreeze, slots_, {}); }
  std::vector<uint32_t> fetch(const std::vector<uint32_t>& targets) const {
    return connector_.ask(channel::ShmRequest::kFetch, slots_, targets);
  }
  RankProfile profile(uint64_t calls) const;

 private:
  ShmConnector connector_;
  uint32_t slots_;
  uint16_t connection_ = 0;
  std::array<int, channel::kShmDescriptors> descriptors_{-1, -1};
  bool taken_ = false;
  channel::SharedMemory memory_;  // read only
};

// The number of the shm port that is reached at `path`. Throws what ShmConnector throws.
uint16_t shm_port_at(const std::string& path);

}  // namespace switchml::agent
