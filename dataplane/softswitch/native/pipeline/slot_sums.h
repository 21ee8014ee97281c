// The values of slots: added up as they come, or, of ranks that share memory with the switch, all at once where they
// are, when the last of them has come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "dataplane/softswitch/native/pipeline/shm_job.h"
#include "dataplane/softswitch/native/pipeline/slot_memory.h"

namespace switchml::soft {

// One sum over ranks' own buffers, to be made by run(). Nobody else touches the buffers before finished(), so others
// may go on with the pipeline meanwhile.
struct SumTask {
  size_t half = 0;
  uint64_t id = 0;
  ShmJob* job = nullptr;
  uint64_t ranks = 0;       // whose buffers they are
  uint8_t* kept = nullptr;  // what came in packets; it takes part like another buffer
  size_t values = 0;

  void run() const;
};

// The values of one contribution: in a packet that does not wait, or in a rank's own buffer, which belongs to the
// switch until the rank has its result.
struct Values {
  const uint8_t* words = nullptr;  // big-endian; of a packet
  ShmJob* job = nullptr;           // of a rank's buffer
  uint8_t rank = 0;
  std::deque<SumTask>* tasks = nullptr;  // takes the sum that became possible
};

class SlotSums {
 public:
  // `slots` outlives it.
  explicit SlotSums(SlotMemory* slots) : slots_(slots), next_id_(first_id()) {}

  // Begins a phase, which has no values yet.
  void begin(size_t half);
  // Takes the values of one contribution. The first of a phase overwrite, from any rank.
  void add(size_t half, const Values& values);

  // Leaves the sum to `tasks` if values are in ranks' own buffers: it replaces them there, and in the slot's memory if
  // not all of the job's ranks, `everyone`, have such a buffer. finished() returns `completion` once that is done.
  // Returns false where no values are in ranks' buffers.
  bool finish_later(size_t half, const ShmJob::Completion& completion, uint64_t everyone, std::deque<SumTask>* tasks);
  // `task` was run. Returns what is left to do, or null when that is not wanted any more.
  const ShmJob::Completion* finished(const SumTask& task);

  // One value, or the sum of those of them that have come.
  uint32_t word(size_t half, size_t lane) const;
  // Adds what is in ranks' own buffers to the slot's memory: of all ranks, whose sum it then is if all have come, or of
  // one before its memory goes. A sum that only ranks have is copied by the former. All tasks were run.
  void settle(size_t half);
  void take_over(const ShmJob& job, uint8_t rank);
  // The job's last rank has gone.
  void forget(const ShmJob& job);

 private:
  void add_words(size_t half, const uint8_t* words);
  void take_over(size_t half, uint64_t ranks);
  // The same where the sum was made but finished() was not called yet.
  void take_over_sum(size_t half, uint64_t ranks);
  // A sum that is being made will not count.
  void cancel(HalfState* state);
  // Calls act(half) for all halves of a job.
  template <class Act>
  void for_each_half(const ShmJob& job, Act&& act);
  // Of no other object in this process.
  static uint64_t first_id();

  SlotMemory* slots_;
  uint64_t next_id_;
};

}  // namespace switchml::soft
