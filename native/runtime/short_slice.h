// Lets threads that are woken often for little work ask the scheduler to run soon after they wake up.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace switchml::runtime {

// struct sched_attr of sched_setattr(2), in its first version: the C library does not define it, and the kernel's
// header cannot be included together with <sched.h>.
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

// Asks for short time slices for the calling thread. Its share of CPU time remains the same; but from Linux 6.12 on,
// when it wakes up, it preempts a thread with long slices at once instead of milliseconds later. Older kernels ignore
// the request.
inline void ask_for_short_slices() {
  constexpr uint64_t kSliceNanoseconds = 100'000;  // the shortest that the kernel grants
  SchedulingAttributes attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != 0) return;  // another policy than SCHED_OTHER was chosen on purpose
  attributes.runtime = kSliceNanoseconds;
  [[maybe_unused]] const long result = syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace switchml::runtime
