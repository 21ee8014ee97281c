// The memory that a training process shares, for one rank, with the server that moves its values: the agent, which puts
// them into packets, or a switch on the same machine, which adds them up where they are. It holds a contribution buffer
// per slot, a ticket each way, and two rings.
//
// The process writes a slot's values and its Ticket, then puts the slot into the submission ring; from then on both
// belong to the server until it puts the slot into the completion ring, with the RESULT's values and its own Ticket. A
// slot is in at most one ring at a time, so rings of one entry per slot never overflow, and the only shared counters
// are their tails. The memory is a sealed memfd: it has no name that another user could open, and it cannot shrink
// under a reader. The server trusts nothing that the process writes until it is checked; the server keeps the
// protocol's state (phases, headers) to itself.
//
// An agent puts results into separate buffers. A switch on the same machine writes them over the contributions:
// those lines of the cache are the switch's already after it has read them, so that a result costs no further journey
// from core to core.
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

#include "native/channel/call_log.h"
#include "native/wire/constants.h"

namespace switchml::channel {

// The stream position of one contribution, or of its result, and the header fields that travel with its values.
struct Ticket {
  uint32_t position;  // modulo 2^32
  uint32_t chunk;
  uint32_t check;
  uint16_t exponent;
  uint16_t count;
  uint16_t format;
  uint8_t owner;
  uint8_t flags;
};

// Constant once the server has made the memory.
struct Geometry {
  static constexpr uint32_t kInPlace = 2;
  static constexpr uint64_t kMagic = 0x53574D4C43483132;  // "SWMLCH12": changes with any change of layout

  uint64_t magic;
  uint32_t slots;   // a power of two
  uint32_t values;  // per packet
  uint32_t rank;
  uint32_t world_size;
  uint32_t results_apart;  // 1: results are in the job's memory, one buffer a slot; kInPlace: in place of contributions
  // 1: the ranks of a phase may differ in whether they send values, and its result names the smallest chunk of theirs.
  uint32_t optional_values;
  uint32_t owned_results;  // 1: a result that only one rank reads may come to the others without values
  uint32_t formats;        // bit f: the switches take contributions with values in wire::Format f
  // The CPUs, by number, near which the server has the values of this rank; none where first is above last.
  uint32_t first_cpu;
  uint32_t last_cpu;
};

// The server's counters of a rank. The process reads those of round trips, which an agent publishes before the results.
struct ServerCounters {
  std::atomic<uint64_t> position;  // contributions taken for the first time
  std::atomic<uint64_t> sent;      // all that were put into the pipeline
  std::atomic<uint64_t> sent_without_values;
  std::atomic<uint64_t> received;  // results
  std::atomic<uint64_t> retransmissions;
  std::atomic<uint64_t> ignored;            // results of no slot in flight
  std::atomic<uint64_t> uses;               // of the slot that was used most, in this epoch
  std::atomic<uint64_t> sum_ns;             // this rank's share of the time in which a switch added up the job's values
  std::atomic<uint64_t> round_trips_ns;     // of packets that were sent once and completed their slots, all together
  std::atomic<uint64_t> round_trips_bytes;  // of the packets whose results came during each of them
};

// How long the process has quantized, waited and dequantized so far, in nanoseconds.
struct ProcessCounters {
  std::atomic<uint64_t> quantize_ns;
  std::atomic<uint64_t> wait_ns;
  std::atomic<uint64_t> dequantize_ns;
  std::atomic<uint64_t> sleeps;  // how often it went to sleep
  std::atomic<uint64_t> sparse_calls_dense;
  // Chunks of direct calls that this rank has put, and those whose sums it has taken.
  std::atomic<uint64_t> direct_put;
  std::atomic<uint64_t> direct_taken;
  // Its state (ThreadState) and since when, which those above do not count yet; 0 while they change.
  std::atomic<uint64_t> state;
  std::atomic<uint64_t> since;
};

struct ChannelControl {
  static constexpr size_t kLine = 128;  // two cache lines: the hardware fetches them in pairs

  Geometry geometry;
  // How many slots were ever put into each ring, modulo 2^32.
  alignas(kLine) std::atomic<uint32_t> submitted;
  alignas(kLine) std::atomic<uint32_t> completed;
  // Set by a side before it goes to sleep, with the count at which it wants to be woken: waking costs more than a few
  // slots of work. The other side wakes it there, or when it has nothing more to do itself. The process sleeps on the
  // futex `process_event`, the server on the doorbell eventfd.
  alignas(kLine) std::atomic<uint32_t> server_sleeps;
  std::atomic<uint32_t> server_wakes_at;
  std::atomic<uint32_t> server_cpu;  // where a switch on the same machine went to sleep, and likely wakes up
  alignas(kLine) std::atomic<uint32_t> process_sleeps;
  std::atomic<uint32_t> process_wakes_at;
  std::atomic<uint32_t> process_saw;  // how many results it had taken when it went to sleep
  alignas(kLine) std::atomic<uint32_t> process_event;
  alignas(kLine) ServerCounters server;
  alignas(kLine) ProcessCounters process;
  alignas(kLine) CallLog calls;  // of the process
};

static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free,
              "shared memory needs lock-free words");

// Where everything is inside the memory.
class Channel {
 public:
  static constexpr size_t kAlignment = 4096;

  // Returns the size of the rank's memory, which has result buffers unless they are `results_apart`.
  static size_t bytes(uint32_t slots, uint32_t values, bool results_apart) {
    return payload_offset(slots) + (results_apart ? 1 : 2) * static_cast<size_t>(slots) * payload_stride(values);
  }
  // Returns the size of the job's memory for results.
  static size_t result_bytes(uint32_t slots, uint32_t values) {
    return static_cast<size_t>(slots) * payload_stride(values);
  }
  // Bytes from one buffer to the next.
  static size_t payload_stride(uint32_t values) { return round_up(values * sizeof(uint32_t), 64); }

  Channel() = default;
  // Returns the first contribution's buffer.
  static uint8_t* contributions(void* memory, uint32_t slots) {
    return static_cast<uint8_t*>(memory) + payload_offset(slots);
  }
  // `slots` and `values` are the caller's own, checked figures, not those that the memory claims. `results` is where
  // results are, if not behind the contributions.
  Channel(void* memory, uint32_t slots, uint32_t values, void* results = nullptr)
      : base_(static_cast<uint8_t*>(memory)),
        results_(static_cast<uint8_t*>(results)),
        slots_(slots),
        stride_(payload_stride(values)) {
    if (base_ != nullptr && results_ == nullptr) {
      results_ = contribution(slots);
    }
  }

  ChannelControl& control() const { return *std::launder(reinterpret_cast<ChannelControl*>(base_)); }
  // The slot that was the `number`-th to be submitted: a copy that the process cannot change any more.
  uint16_t submission(uint32_t number) const { return read_once(submission_ring() + number % slots_); }
  uint16_t* submission_ring() const { return reinterpret_cast<uint16_t*>(base_ + rings_offset()); }
  uint16_t* completion_ring() const { return submission_ring() + slots_; }
  // A copy that the process cannot change any more.
  Ticket contribution_ticket(uint32_t slot) const { return read_once(contribution_tickets() + slot); }
  Ticket* contribution_tickets() const { return reinterpret_cast<Ticket*>(base_ + tickets_offset(slots_)); }
  Ticket* result_tickets() const { return contribution_tickets() + slots_; }
  // Big-endian words, as they travel.
  uint8_t* contribution(uint32_t slot) const { return base_ + payload_offset(slots_) + slot * stride_; }
  uint8_t* result(uint32_t slot) const { return results_ + slot * stride_; }

 private:
  // Without the fence the compiler might read the original again after the copy was checked.
  template <class Value>
  static Value read_once(const Value* shared) {
    const Value copy = *shared;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return copy;
  }
  static constexpr size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }
  static constexpr size_t rings_offset() { return round_up(sizeof(ChannelControl), ChannelControl::kLine); }
  static size_t tickets_offset(uint32_t slots) {
    return round_up(rings_offset() + 2 * slots * sizeof(uint16_t), ChannelControl::kLine);
  }
  static size_t payload_offset(uint32_t slots) {
    return round_up(tickets_offset(slots) + 2 * slots * sizeof(Ticket), kAlignment);
  }

  uint8_t* base_ = nullptr;
  uint8_t* results_ = nullptr;
  uint32_t slots_ = 0;
  size_t stride_ = 0;
};

// Sleeps until futex_wake is called on `word`, unless it already differs from `expected`; may return early.
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

// Returns whether `count` has reached `wanted`; counts wrap around.
inline bool has_reached(uint32_t count, uint32_t wanted) { return static_cast<int32_t>(count - wanted) >= 0; }

// Announces that the process is about to sleep. Returns the event to sleep on, unless there is something to look at
// that came before this call.
inline uint32_t announce_sleep(ChannelControl& control) {
  // The event is read first. A waker that was late may still take this announcement back, and then no other one wakes
  // the process; but it also changes the event, so that the process does not fall asleep. See model/sleep.pml.
  const uint32_t event = control.process_event.load(std::memory_order_seq_cst);
  control.process_sleeps.store(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return event;
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

// Returns whether the process sleeps until `completed` slots are back, or fewer when nothing else is left to do here.
inline bool sleeps_until(const ChannelControl& control, uint32_t completed, bool nothing_left) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return control.process_sleeps.load(std::memory_order_relaxed) != 0 &&
         control.process_saw.load(std::memory_order_relaxed) != completed &&
         (nothing_left || has_reached(completed, control.process_wakes_at.load(std::memory_order_relaxed)));
}

}  // namespace switchml::channel
