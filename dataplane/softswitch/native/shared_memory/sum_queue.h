// Sums over ranks' own buffers, from the contribution that makes them possible until their results have left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace switchml::soft {

class ShmJob;

// One sum, to be made by run(). Nobody else touches the buffers until the store has finished it
// (SharedSlotStore::finish), so others may go on with the pipeline.
struct SumTask {
  size_t half = 0;
  uint64_t id = 0;
  ShmJob* job = nullptr;
  uint64_t ranks = 0;         // whose buffers take part
  uint8_t* memory = nullptr;  // the slot's, where it takes part like another buffer
  size_t values = 0;

  void run() const;
};

// Used in turns (runtime::Turns).
class SumQueue {
 public:
  void add(const SumTask& task) { waiting_.push_back(task); }
  bool any_wait() const { return !waiting_.empty(); }
  bool any_left() const { return !waiting_.empty() || running_ != 0; }
  // A thread has made `made` of them and takes some more.
  void exchange(size_t made, std::vector<SumTask>* taken);
  // Makes all that wait. They count as being made.
  void run_all(std::vector<SumTask>* made);
  // Forgets those that wait and those that are being made.
  void clear();

 private:
  std::deque<SumTask> waiting_;
  size_t running_ = 0;
};

}  // namespace switchml::soft
