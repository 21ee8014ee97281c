// The memory that an agent shares with one training process, for one rank: a pair of buffers per slot and two rings.
//
// The process writes a slot's values and its Ticket, then puts the slot into the submission ring; from then on both
// belong to the agent until it puts the slot into the completion ring, with the RESULT's values and its own Ticket. A
// slot is in at most one ring at a time, so rings of one entry per slot never overflow, and the only shared counters
// are their tails. The memory is a sealed memfd: it has no name that another user could open, and it cannot shrink
// under a reader. What the process writes is hostile to the agent until checked; the agent keeps the protocol's state
// (phases, headers) to itself.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <new>

#include "dataplane/native/constants.h"

namespace switchml {

// What travels with the values of one contribution, or of its result.
struct Ticket {
  uint32_t chunk;
  uint32_t check;
  uint16_t exponent;
  uint16_t count;
  uint16_t flags;
  uint16_t format;
};

// Constant once the agent has made the memory.
struct Geometry {
  static constexpr uint64_t kMagic = 0x53574D4C43483031;  // "SWMLCH01": changes with any change of layout

  uint64_t magic;
  uint32_t slots;   // a power of two
  uint32_t values;  // per packet
  uint32_t rank;
  uint32_t world_size;
};

struct ChannelControl {
  static constexpr size_t kLine = 128;  // two cache lines: the hardware fetches them in pairs

  Geometry geometry;
  // How many slots were ever put into each ring, modulo 2^32.
  alignas(kLine) std::atomic<uint32_t> submitted;
  alignas(kLine) std::atomic<uint32_t> completed;
  // Set by a side before it goes to sleep; the other one wakes it. The process sleeps on the futex `process_event`,
  // the agent on the doorbell eventfd.
  alignas(kLine) std::atomic<uint32_t> agent_sleeps;
  alignas(kLine) std::atomic<uint32_t> process_sleeps;
  alignas(kLine) std::atomic<uint32_t> process_event;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free, "shared memory needs lock-free words");

// Where everything is inside the memory.
class Channel {
 public:
  static constexpr size_t kAlignment = 4096;

  static size_t bytes(uint32_t slots, uint32_t values) {
    return payload_offset(slots) + 2 * static_cast<size_t>(slots) * payload_stride(values);
  }

  Channel() = default;
  // `slots` and `values` are the caller's own, checked figures, not those that the memory claims.
  Channel(void* memory, uint32_t slots, uint32_t values)
      : base_(static_cast<uint8_t*>(memory)), slots_(slots), stride_(payload_stride(values)) {}

  ChannelControl& control() const { return *std::launder(reinterpret_cast<ChannelControl*>(base_)); }
  uint16_t* submission_ring() const { return reinterpret_cast<uint16_t*>(base_ + rings_offset()); }
  uint16_t* completion_ring() const { return submission_ring() + slots_; }
  Ticket* contribution_tickets() const { return reinterpret_cast<Ticket*>(base_ + tickets_offset(slots_)); }
  Ticket* result_tickets() const { return contribution_tickets() + slots_; }
  // Big-endian words, as they travel.
  uint8_t* contribution(uint32_t slot) const { return base_ + payload_offset(slots_) + slot * stride_; }
  uint8_t* result(uint32_t slot) const { return contribution(slots_ + slot); }

 private:
  static constexpr size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }
  static constexpr size_t rings_offset() { return round_up(sizeof(ChannelControl), ChannelControl::kLine); }
  static size_t tickets_offset(uint32_t slots) {
    return round_up(rings_offset() + 2 * slots * sizeof(uint16_t), ChannelControl::kLine);
  }
  static size_t payload_offset(uint32_t slots) {
    return round_up(tickets_offset(slots) + 2 * slots * sizeof(Ticket), kAlignment);
  }
  static size_t payload_stride(uint32_t values) { return round_up(values * sizeof(uint32_t), 64); }

  uint8_t* base_ = nullptr;
  uint32_t slots_ = 0;
  size_t stride_ = 0;
};

// Sleeps until somebody calls futex_wake on `word`, unless it already differs from `expected`; returns early at times.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, const timespec* timeout) {
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, timeout, nullptr, 0);
}

inline void futex_wake(std::atomic<uint32_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0); }

// Adds 1 to an eventfd. A full one is not empty, which is all that its reader wants to know.
inline void ring(int eventfd) {
  const uint64_t one = 1;
  while (write(eventfd, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

// Tells a process that may sleep on `process_event` that there is something to look at.
inline void wake_process(ChannelControl& control) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (control.process_sleeps.load(std::memory_order_relaxed) != 0) {
    control.process_sleeps.store(0, std::memory_order_relaxed);
    control.process_event.fetch_add(1, std::memory_order_release);
    futex_wake(control.process_event);
  }
}

}  // namespace switchml
