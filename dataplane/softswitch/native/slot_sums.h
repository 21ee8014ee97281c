// The values of slots: added up as they come, or, of ranks that share memory with the switch, all at once where they
// are, when the last of them has come.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/softswitch/native/shm_job.h"
#include "dataplane/softswitch/native/slot_memory.h"

namespace switchml {

// The values of one contribution: in a packet that does not wait, or in a rank's own buffer, which belongs to the
// switch until the rank has its result.
struct Values {
  const uint8_t* words = nullptr;  // big-endian; of a packet
  ShmJob* job = nullptr;           // of a rank's buffer
  uint8_t rank = 0;
};

class SlotSums {
 public:
  // `slots` outlives it.
  explicit SlotSums(SlotMemory* slots) : slots_(slots) {}

  // The first of a phase overwrites.
  void begin(size_t half, const Values& values);
  // The first of a phase that has no values.
  void begin(size_t half);
  void add(size_t half, const Values& values);
  // Makes the sum, now that all are there: in the results of `job` where it has ranks that share memory, else null.
  // Returns it, as result() does from then on.
  const uint8_t* finish(size_t half, ShmJob* job);
  const uint8_t* result(size_t half);

  // Takes over what a rank has contributed, before its memory goes.
  void take_over(const ShmJob& job, uint8_t rank);
  // Takes over the results, before the job's memory goes.
  void take_over(const ShmJob& job);

 private:
  void add_words(size_t half, const uint8_t* words);
  void take_over(size_t half, uint64_t ranks);

  SlotMemory* slots_;
};

}  // namespace switchml
