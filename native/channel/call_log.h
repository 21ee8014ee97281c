// The log of a rank's calls in the memory that its process shares (channel.h), for the agent to read: totals, and the
// times of the latest calls. One thread of the process writes it after each call. Neither side waits for the other.
//
// A reader does not trust the process: it takes only numbers that are possible.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "native/counters/counters.h"
#include "native/runtime/durations.h"

namespace switchml::channel {

// The distance between two kinds that differ only in how a call's elements are divided among the ranks.
constexpr uint64_t kKindsOfCalls = 256;

// Times are monotonic_nanoseconds(); the counters say what the thread did between `begun` and `ended`, for this call or
// for another one at the same time.
struct CallTimes : counters::Thread {
  uint64_t sequence = 0;  // among the rank's calls, from 0
  uint64_t kind = 0;      // CallKind + kKindsOfCalls * Division (switchml/native/codecs)
  uint64_t bytes = 0;     // of the tensor
  uint64_t submitted = 0;
  uint64_t begun = 0;     // work on its first chunk began
  uint64_t answered = 0;  // the result of its last chunk was found
  uint64_t ended = 0;
};

class CallLog {
 public:
  static constexpr uint64_t kRecords = 64;

  // ---- the process ----

  void note(const CallTimes& call) {
    const uint64_t number = ended_.load(std::memory_order_relaxed);
    const uint64_t took = call.ended - call.submitted;
    // A reader that sees anything of this record sees that the one before it was complete.
    std::atomic_thread_fence(std::memory_order_release);
    Record& record = records_[number % kRecords];
    const Fields fields = fields_of(call);
    for (size_t i = 0; i < kFields; ++i) record[i].store(fields[i], std::memory_order_relaxed);
    add(bytes_, call.bytes);
    add(nanoseconds_, took);
    add(took_[runtime::duration_bucket(took)], 1);
    ended_.store(number + 1, std::memory_order_release);
  }

  // ---- the reader ----

  counters::Process totals() const {
    counters::Process found;
    found.calls = ended_.load(std::memory_order_relaxed);
    found.bytes = bytes_.load(std::memory_order_relaxed);
    found.call_time_ns = nanoseconds_.load(std::memory_order_relaxed);
    for (size_t bucket = 0; bucket < took_.size(); ++bucket) {
      found.calls_by_duration[bucket] = took_[bucket].load(std::memory_order_relaxed);
    }
    return found;
  }

  // The latest calls, at most `most`, oldest first, without those that were overwritten during the call and those whose
  // times are impossible as of `now`.
  std::vector<CallTimes> latest(uint64_t most, uint64_t now) const {
    const uint64_t end = ended_.load(std::memory_order_acquire);
    uint64_t wanted = most < kRecords ? most : kRecords;
    wanted = wanted < end ? wanted : end;
    std::vector<CallTimes> found;
    found.reserve(wanted);
    for (uint64_t number = end - wanted; number != end; ++number) {
      const Record& record = records_[number % kRecords];
      Fields fields;
      for (size_t i = 0; i < kFields; ++i) fields[i] = record[i].load(std::memory_order_relaxed);
      found.push_back(times_of(fields));
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    // The record that may be in the making takes the place of the one kRecords before it.
    const uint64_t written = ended_.load(std::memory_order_relaxed) - end;
    const uint64_t kept = written >= kRecords ? 0 : kRecords - 1 - written;
    if (found.size() > kept) found.erase(found.begin(), found.end() - static_cast<ptrdiff_t>(kept));
    std::vector<CallTimes> believed;
    for (const CallTimes& call : found) {
      if (can_be(call, now)) believed.push_back(call);
    }
    return believed;
  }

 private:
  static constexpr size_t kFields = sizeof(CallTimes) / sizeof(uint64_t);
  using Fields = std::array<uint64_t, kFields>;
  using Record = std::array<std::atomic<uint64_t>, kFields>;

  static Fields fields_of(const CallTimes& call) {
    return {call.sequence, call.kind,  call.bytes,       call.submitted, call.begun,
            call.answered, call.ended, call.quantize_ns, call.wait_ns,   call.dequantize_ns};
  }
  static CallTimes times_of(const Fields& fields) {
    return {
        {fields[7], fields[8], fields[9]}, fields[0], fields[1], fields[2], fields[3], fields[4], fields[5], fields[6]};
  }
  static bool can_be(const CallTimes& call, uint64_t now) {
    if (call.submitted > call.begun || call.begun > call.answered || call.answered > call.ended || call.ended > now) {
      return false;
    }
    uint64_t left = call.ended - call.begun;
    for (const uint64_t part : {call.quantize_ns, call.wait_ns, call.dequantize_ns}) {
      if (part > left) return false;
      left -= part;
    }
    return true;
  }
  // There is one writer.
  static void add(std::atomic<uint64_t>& counter, uint64_t more) {
    counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }

  std::atomic<uint64_t> ended_{0};  // calls
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint64_t> nanoseconds_{0};  // from submission to end, of all calls together
  std::array<std::atomic<uint64_t>, runtime::kDurationBuckets> took_{};
  std::array<Record, kRecords> records_{};
};

}  // namespace switchml::channel
