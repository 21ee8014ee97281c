// A job whose ranks share memory with the switch, which replaces their contributions by results there.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "dataplane/softswitch/native/pipeline/slot_store.h"
#include "dataplane/softswitch/native/shared_memory/uplink.h"
#include "native/channel/shared_memory.h"
#include "native/wire/constants.h"
#include "native/wire/wire.h"

namespace switchml::soft {

// The fields that distinguish one generation of a job from another.
struct ShmJobKey {
  uint16_t job = 0;
  uint16_t epoch = 0;
  uint16_t slot_base = 0;
  uint16_t world_size = 0;
  uint32_t slots = 0;
  uint32_t values = 0;

  bool operator==(const ShmJobKey& other) const;
};

class ShmJob {
 public:
  // The last result of a half.
  struct Result {
    Completion completion;
    uint64_t ranks = 0;  // those whose contribution buffer holds it
  };

  explicit ShmJob(const ShmJobKey& key);

  const ShmJobKey& key() const { return key_; }
  // The contributions to the parent, if this switch is below another one.
  Uplink& uplink() { return uplink_; }
  // Returns whether the job uses a slot. `pool_index` counts the slots of the switch, as in the header.
  bool covers(size_t pool_index) const { return pool_index - key_.slot_base < key_.slots; }
  uint8_t* contribution(uint8_t rank, size_t pool_index) const {
    return contributions_[rank] + (pool_index - key_.slot_base) * stride_;
  }

  Result& result(size_t half) { return results_[half - 2 * size_t{key_.slot_base}]; }
  void forget_results() { results_.assign(results_.size(), {}); }
  // Returns whether a rank's contribution buffer holds the result with this header.
  bool has_result(uint8_t rank, const wire::Header& result);

  // Returns the rank that was behind the others when they last differed; it will probably be the last again.
  uint8_t slowest() const { return slowest_; }
  void set_slowest(uint8_t rank) { slowest_ = rank; }

  // Adds to the nanoseconds that all threads have spent adding up the job's values.
  void count_summing(uint64_t nanoseconds) { summing_.fetch_add(nanoseconds, std::memory_order_relaxed); }
  uint64_t summing() const { return summing_.load(std::memory_order_relaxed); }

  // The memory for direct calls (native/channel/direct_memory.h); empty if its calls go over the switch.
  void set_direct(channel::SharedMemory memory) { direct_ = std::move(memory); }
  const channel::SharedMemory& direct() const { return direct_; }

  // Sets the buffer that a rank writes to; null once the rank has left.
  void set_contributions(uint8_t rank, uint8_t* first) { contributions_[rank] = first; }
  bool has_ranks() const;
  bool has_rank(uint8_t rank) const { return contributions_[rank] != nullptr; }

 private:
  ShmJobKey key_;
  size_t stride_;
  uint8_t slowest_ = 0;
  Uplink uplink_;
  std::vector<Result> results_;
  std::atomic<uint64_t> summing_{0};
  channel::SharedMemory direct_;
  std::array<uint8_t*, wire::protocol::max_workers> contributions_{};
};

// The jobs that have a rank on a shm port of this switch, by id.
class ShmJobs {
 public:
  // Returns the generation with this key, or null.
  std::shared_ptr<ShmJob> get(const ShmJobKey& key) const;
  void put(const std::shared_ptr<ShmJob>& job) { jobs_[job->key().job] = job; }
  // Removes a job, unless another generation of it has taken its place.
  void remove(const ShmJob& job);
  // Forgets the results in the ranks' buffers, because their slots no longer exist.
  void forget_results() const;

 private:
  std::vector<std::shared_ptr<ShmJob>> jobs_ = std::vector<std::shared_ptr<ShmJob>>(wire::protocol::max_jobs);
};

}  // namespace switchml::soft
