#include "dataplane/softswitch/native/shared_memory/shm_job.h"

#include <algorithm>

#include "native/channel/channel.h"

namespace switchml::soft {

bool ShmJobKey::operator==(const ShmJobKey& other) const {
  return job == other.job && epoch == other.epoch && slot_base == other.slot_base && world_size == other.world_size &&
         slots == other.slots && values == other.values;
}

ShmJob::ShmJob(const ShmJobKey& key)
    : key_(key),
      stride_(channel::Channel::payload_stride(key.values)),
      uplink_(key.slots, wire::protocol::header_bytes + uint64_t{key.values} * sizeof(uint32_t)),
      results_(2 * size_t{key.slots}) {}

bool ShmJob::has_result(uint8_t rank, const wire::Header& result) {
  if (!covers(result.slot / 2)) return false;
  const Result& last = this->result(result.slot);
  return last.completion.answer.phase == result.phase && (last.ranks >> rank & 1U) != 0;
}

bool ShmJob::has_ranks() const {
  return std::any_of(contributions_.begin(), contributions_.end(),
                     [](const uint8_t* first) { return first != nullptr; });
}

std::shared_ptr<ShmJob> ShmJobs::get(const ShmJobKey& key) const {
  const auto& found = jobs_.at(key.job);
  return found != nullptr && found->key() == key ? found : nullptr;
}

void ShmJobs::forget_results() const {
  for (const auto& job : jobs_) {
    if (job != nullptr) job->forget_results();
  }
}

void ShmJobs::remove(const ShmJob& job) {
  auto& found = jobs_.at(job.key().job);
  if (found.get() == &job) found.reset();
}

}  // namespace switchml::soft
