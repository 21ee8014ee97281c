// The queue of sums over ranks' buffers, from the contribution that completes them until their results are sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "native/kernels/floats.h"

namespace switchml::soft {

class ShmJob;

// One sum, which run() makes. No other thread touches the buffers until SharedSlotStore::finish(), so other threads may
// use the pipeline during run().
struct SumTask {
  size_t half = 0;
  uint64_t id = 0;
  ShmJob* job = nullptr;
  uint64_t sources = 0;                      // the ranks whose buffers are added up
  uint64_t ranks = 0;                        // those whose buffers get the sum
  uint8_t* memory = nullptr;                 // the slot's memory, if it gets the sum
  bool adds_memory = false;                  // its values are added up, too
  std::optional<kernels::FloatSums> floats;  // if the values are floats: the sums that the slot's memory holds
  size_t values = 0;

  void run() const;
};

// Must be used in turns (runtime::Turns).
class SumQueue {
 public:
  void add(const SumTask& task) { waiting_.push_back(task); }
  bool any_wait() const { return !waiting_.empty(); }
  bool any_left() const { return !waiting_.empty() || running_ != 0; }
  // Called by a thread that has made `made` sums; gives it some more.
  void exchange(size_t made, std::vector<SumTask>* taken);
  // Makes all waiting sums, which count as being made until exchange() reports them.
  void run_all(std::vector<SumTask>* made);
  // Forgets the waiting sums and those that are being made.
  void clear();

 private:
  std::deque<SumTask> waiting_;
  size_t running_ = 0;
};

}  // namespace switchml::soft
