// The ranks that are open on this agent.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "host_agent/native/assignment.h"
#include "host_agent/native/packet_path.h"
#include "host_agent/native/rank.h"

namespace switchml::agent {

// Any thread may call it. Calls that open, close or stop a rank may take seconds, because they make memory and wait for
// the switch. Status and profile of a rank do not wait for such calls.
class Engine {
 public:
  // The parameters are those of PacketPath; `slot_uses` applies to all ranks.
  explicit Engine(unsigned threads, PacketPath::Medium medium = {}, uint32_t slot_uses = wire::kSlotUses);

  void start() { packets_.start(); }
  void stop() { packets_.stop(); }

  // Opens a rank whose contributions travel as packets, as PacketPath does. Returns its handle.
  uint64_t open_rank(const RankAssignment& assignment);
  // Opens a rank that shares memory with the switch at `path`, as SharedMemoryRank's constructor does.
  uint64_t open_shm_rank(const std::string& path, const RankAssignment& assignment);
  // Both functions throw std::out_of_range if no rank with this handle is open.
  std::shared_ptr<Rank> rank(uint64_t handle);
  void close_rank(uint64_t handle);

  PacketPath::LinkCounters link_counters() { return packets_.link_counters(); }
  int lost_fd() const { return packets_.lost_fd(); }
  std::string lost() const { return packets_.lost(); }

 private:
  uint64_t add(std::shared_ptr<Rank> rank);

  uint32_t slot_uses_;
  PacketPath packets_;
  std::mutex mutex_;  // guards what follows
  std::map<uint64_t, std::shared_ptr<Rank>> ranks_;
  uint64_t next_handle_ = 1;
};

}  // namespace switchml::agent
