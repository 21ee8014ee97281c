// A job whose ranks share memory with the switch: where their contributions are, and the results that all of them read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/native/constants.h"
#include "dataplane/native/shared_memory.h"

namespace switchml {

// What distinguishes one generation of a job from another.
struct ShmJobKey {
  uint16_t job = 0;
  uint16_t epoch = 0;
  uint16_t slot_base = 0;
  uint8_t world_size = 0;
  uint32_t slots = 0;
  uint32_t values = 0;

  bool operator==(const ShmJobKey& other) const;
};

class ShmJob {
 public:
  // `streaming`: stores bypass the caches. Throws std::system_error.
  ShmJob(const ShmJobKey& key, bool streaming);

  const ShmJobKey& key() const { return key_; }
  bool streaming() const { return streaming_; }
  const SharedMemory& results() const { return results_; }
  SharedMemory& results() { return results_; }

  // `pool_index` is the switch's, as in the header.
  bool covers(size_t pool_index) const { return pool_index - key_.slot_base < key_.slots; }
  uint8_t* result(size_t pool_index) const { return results_.data() + (pool_index - key_.slot_base) * stride_; }
  const uint8_t* contribution(uint8_t rank, size_t pool_index) const {
    return contributions_[rank] + (pool_index - key_.slot_base) * stride_;
  }

  // Where a rank writes; null when it has gone.
  void set_contributions(uint8_t rank, const uint8_t* first) { contributions_[rank] = first; }
  bool has_ranks() const;
  bool has_rank(uint8_t rank) const { return contributions_[rank] != nullptr; }

 private:
  ShmJobKey key_;
  bool streaming_;
  size_t stride_;
  SharedMemory results_;  // of every slot the newest
  std::array<const uint8_t*, protocol::max_workers> contributions_{};
};

// The jobs that have a rank on a shm port of this switch, by id.
class ShmJobs {
 public:
  // The job's newest generation, if it is this one.
  ShmJob* find(uint16_t job, uint16_t epoch) const {
    ShmJob* found = job < jobs_.size() ? jobs_[job].get() : nullptr;
    return found != nullptr && found->key().epoch == epoch ? found : nullptr;
  }
  // The generation that is like `key`, or null.
  std::shared_ptr<ShmJob> get(const ShmJobKey& key) const;
  void put(const std::shared_ptr<ShmJob>& job) { jobs_[job->key().job] = job; }
  // Forgets a job if it is this generation of it.
  void remove(const ShmJob& job);

 private:
  std::vector<std::shared_ptr<ShmJob>> jobs_ = std::vector<std::shared_ptr<ShmJob>>(protocol::max_jobs);
};

}  // namespace switchml
