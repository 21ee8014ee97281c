// How threads that are woken often for a little work ask the scheduler to be let in soon.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace switchml::runtime {

// struct sched_attr of sched_setattr(2), in its first version: the C library has none, and the kernel's header cannot
// be included beside <sched.h>.
struct SchedulingAttributes {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime;  // under SCHED_OTHER the length of a slice, in nanoseconds
  uint64_t deadline;
  uint64_t period;
};

// Asks for short time slices for the calling thread. Its share of the processor remains the same; what changes (from
// Linux 6.12 on) is that a thread with long slices makes way when it wakes up, instead of milliseconds later. Where
// the kernel does not know this, nothing changes.
inline void ask_for_short_slices() {
  constexpr uint64_t kSliceNanoseconds = 100'000;  // the shortest that it grants
  SchedulingAttributes attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != 0) return;  // SCHED_OTHER: anything else somebody chose
  attributes.runtime = kSliceNanoseconds;
  [[maybe_unused]] const long result = syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace switchml::runtime
