#include "host_agent/native/engine.h"

#include <stdexcept>
#include <utility>

#include "host_agent/native/shared_memory_rank.h"

namespace switchml::agent {

Engine::Engine(unsigned threads, PacketPath::Medium medium, uint32_t slot_uses)
    : slot_uses_(slot_uses), packets_(threads, std::move(medium), slot_uses) {}

uint64_t Engine::open_rank(const RankAssignment& assignment) { return add(packets_.open(assignment)); }

uint64_t Engine::open_shm_rank(const std::string& path, const RankAssignment& given) {
  RankAssignment assignment = given;
  assignment.slot_uses = slot_uses_;
  return add(std::make_shared<SharedMemoryRank>(path, assignment));
}

uint64_t Engine::add(std::shared_ptr<Rank> rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t handle = next_handle_++;
  ranks_.emplace(handle, std::move(rank));
  return handle;
}

std::shared_ptr<Rank> Engine::rank(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = ranks_.find(handle);
  if (found == ranks_.end()) {
    throw std::out_of_range("no open rank has handle " + std::to_string(handle));
  }
  return found->second;
}

void Engine::close_rank(uint64_t handle) {
  const std::shared_ptr<Rank> closing = rank(handle);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ranks_.erase(handle) == 0) {
      return;  // another thread closes it
    }
  }
  closing->close();
}

}  // namespace switchml::agent
