// The memory that all ranks of a job on one machine share, in which they add up the values of a call themselves,
// without the switch (docs/understand/one-machine.md, "Direct calls").
//
// A call is cut into pieces; piece q goes through row q mod kRows of the memory, in three steps:
//
//   put   every rank copies its elements of the piece into its own part of the row
//   sum   every rank adds up a share of the piece, for all ranks
//   take  every rank copies the sums
//
// A row counts the ranks that have done each step. A rank begins a step when all ranks have done the one before; the
// next round of the row begins when all have taken.
//
// The switch makes the memory, and never looks at it. The processes that have it are of one user, that of the switch,
// so they trust each other.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "native/channel/channel.h"
#include "native/wire/constants.h"

namespace switchml::channel {

// How often ranks have done a step, all of them together, until freeze().
class StepCounter {
 public:
  // Returns whether the count is at least `wanted`.
  bool has_reached(uint64_t wanted) const { return (word_.load(std::memory_order_acquire) & ~kFrozen) >= wanted; }
  // Counts a step. Returns the new count; nothing is counted after freeze(), and 0 is returned.
  uint64_t count() {
    uint64_t before = word_.load(std::memory_order_relaxed);
    do {
      if ((before & kFrozen) != 0) return 0;
    } while (!word_.compare_exchange_weak(before, before + 1, std::memory_order_seq_cst, std::memory_order_relaxed));
    return before + 1;
  }
  // From now on the count is final, so that all ranks come to the same conclusion from it.
  void freeze() { word_.fetch_or(kFrozen, std::memory_order_seq_cst); }

 private:
  static constexpr uint64_t kFrozen = uint64_t{1} << 63U;

  std::atomic<uint64_t> word_{0};
};

struct DirectControl {
  static constexpr uint64_t kMagic = 0x53574D4C44523031;  // "SWMLDR01"
  static constexpr size_t kLine = ChannelControl::kLine;
  static constexpr size_t kRows = 16;
  static constexpr size_t kMostRanks = wire::protocol::max_workers;

  // A rank's entry of a row. The first three must be those of all ranks; the last one it writes after it has added up
  // its share.
  struct alignas(64) Part {
    uint64_t sequence = 0;  // of the call
    uint64_t chunks = 0;    // of the piece
    uint32_t fingerprint = 0;
    uint32_t contributes = 0;  // 1: it has elements
    uint32_t non_finite = 0;   // 1: among the elements of its share, one is NaN or infinite at some rank
  };
  struct Row {
    alignas(kLine) StepCounter put;
    alignas(kLine) StepCounter summed;
    alignas(kLine) StepCounter taken;
    std::array<Part, kMostRanks> parts;
  };
  struct alignas(kLine) Rank {
    std::atomic<uint32_t> event{0};  // a futex, on which the rank sleeps
    // 1 + the sequence number of the latest call that the rank has begun here, or over the switch.
    std::atomic<uint64_t> begun_here{0};
    std::atomic<uint64_t> begun_over_switch{0};
  };

  explicit DirectControl(uint32_t of_ranks) : ranks(of_ranks) {}

  uint64_t magic = kMagic;
  uint32_t ranks;
  // Calls from this sequence number on go over the switch: because a rank makes no direct calls, or because the ranks
  // differ in their calls, which the switch's way finds out.
  alignas(kLine) std::atomic<uint64_t> first_over_switch{UINT64_MAX};
  alignas(kLine) std::atomic<uint64_t> sleeping{0};  // ranks, as bits
  std::array<Rank, kMostRanks> rank;
  std::array<Row, kRows> rows;
};

class DirectMemory {
 public:
  // Returns the size of the memory for `ranks` ranks.
  static size_t bytes(uint32_t ranks) { return offset_of(ranks, DirectControl::kRows, 0); }
  // Returns the most bytes that a piece has at each rank.
  static uint64_t piece_bytes(uint32_t ranks) {
    const uint64_t share = kMostRowBytes / ranks / kAlignment * kAlignment;
    return share < kMostPieceBytes ? share : kMostPieceBytes;
  }
  // Begins the life of the control block in new memory.
  static void make(void* memory, uint32_t ranks) { new (memory) DirectControl{ranks}; }

  // Precondition: the memory has bytes(ranks), and make() was called for as many.
  DirectMemory(void* memory, uint32_t ranks) : base_(static_cast<uint8_t*>(memory)), ranks_(ranks) {}

  DirectControl& control() const { return *std::launder(reinterpret_cast<DirectControl*>(base_)); }
  // The elements that a rank has put into a row, and their sums.
  uint8_t* part(size_t row, uint32_t rank) const { return base_ + offset_of(ranks_, row, rank); }
  uint8_t* sums(size_t row) const { return part(row, ranks_); }

  // Lets calls from this sequence number on go over the switch, and wakes all ranks.
  void leave_from(uint64_t sequence) const {
    std::atomic<uint64_t>& first = control().first_over_switch;
    uint64_t known = first.load(std::memory_order_relaxed);
    while (sequence < known && !first.compare_exchange_weak(known, sequence, std::memory_order_seq_cst)) {
    }
    wake(UINT64_MAX);
  }

  void freeze() const {
    for (DirectControl::Row& row : control().rows) {
      row.put.freeze();
      row.summed.freeze();
    }
  }

  // Wakes those of some ranks, given as bits, that sleep.
  void wake(uint64_t ranks) const {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if ((control().sleeping.load(std::memory_order_relaxed) & ranks) == 0) return;
    uint64_t woken = control().sleeping.fetch_and(~ranks, std::memory_order_seq_cst) & ranks;
    for (; woken != 0; woken &= woken - 1) {
      std::atomic<uint32_t>& event = control().rank[static_cast<size_t>(__builtin_ctzll(woken))].event;
      event.fetch_add(1, std::memory_order_release);
      syscall(SYS_futex, &event, FUTEX_WAKE, 1, nullptr, nullptr, 0);
    }
  }

  // Announces that a rank is about to sleep. Returns the event to sleep on, unless there is something to look at that
  // came before this call.
  uint32_t announce_sleep(uint32_t rank) const {
    const uint32_t event = control().rank[rank].event.load(std::memory_order_seq_cst);
    control().sleeping.fetch_or(uint64_t{1} << rank, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return event;
  }

 private:
  // Larger pieces leave the caches before they are added up; smaller ones make the ranks wait for each other more
  // often.
  static constexpr uint64_t kMostPieceBytes = 64 << 10U;
  static constexpr uint64_t kMostRowBytes = 1 << 20U;
  static constexpr uint64_t kAlignment = Channel::kAlignment;

  static size_t offset_of(uint32_t ranks, size_t row, uint32_t rank) {
    const size_t first = (sizeof(DirectControl) + kAlignment - 1) / kAlignment * kAlignment;
    return first + (row * (ranks + 1) + rank) * piece_bytes(ranks);
  }

  uint8_t* base_;
  uint32_t ranks_;
};

}  // namespace switchml::channel
