#include "dataplane/softswitch/native/shared_memory/sum_queue.h"

#include <algorithm>
#include <array>

#include "dataplane/softswitch/native/shared_memory/shm_job.h"
#include "native/kernels/accumulate.h"
#include "native/wire/constants.h"

namespace switchml::soft {
namespace {

// The number of sums that a thread takes at a time: enough to be worth a turn, few enough to leave some for others.
constexpr size_t kSumsPerTurn = 16;

}  // namespace

void SumTask::run() const {
  std::array<uint8_t*, wire::protocol::max_workers + 1> buffers;
  size_t count = 0;
  const auto append = [&](uint64_t left) {
    for (; left != 0; left &= left - 1) {
      buffers[count++] = job->contribution(static_cast<uint8_t>(__builtin_ctzll(left)), half / 2);
    }
  };
  append(sources & ~ranks);
  const size_t kept = count;
  append(sources & ranks);
  const bool memory_has_words = adds_memory && !floats;
  if (memory_has_words) buffers[count++] = memory;
  const size_t source_count = count;
  append(ranks & ~sources);
  if (memory != nullptr && !memory_has_words) buffers[count++] = memory;
  if (floats) {
    return kernels::sum_float_buffers({buffers.data(), count, source_count, kept}, values,
                                      adds_memory ? &*floats : nullptr);
  }
  kernels::sum_buffers({buffers.data(), count, source_count, kept}, values);
}

void SumQueue::exchange(size_t made, std::vector<SumTask>* taken) {
  running_ -= made;
  const size_t count = std::min(waiting_.size(), kSumsPerTurn);
  const auto end = waiting_.begin() + static_cast<ptrdiff_t>(count);
  taken->assign(waiting_.begin(), end);
  waiting_.erase(waiting_.begin(), end);
  running_ += count;
}

void SumQueue::run_all(std::vector<SumTask>* made) {
  for (const SumTask& task : waiting_) task.run();
  running_ += waiting_.size();
  made->insert(made->end(), waiting_.begin(), waiting_.end());
  waiting_.clear();
}

void SumQueue::clear() {
  waiting_.clear();
  running_ = 0;
}

}  // namespace switchml::soft
