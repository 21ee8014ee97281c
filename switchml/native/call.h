// One collective call of this rank, from submit() until its outcome was fetched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "native/channel/call_log.h"
#include "native/kernels/half.h"

namespace switchml::client {

enum class CallKind : uint8_t {
  float32_sum = 1,
  float32_average = 2,
  float16_sum = 3,
  float16_average = 4,
  bfloat16_sum = 5,
  bfloat16_average = 6,
  int32_sum = 7,
  bytes = 8,    // broadcast: the root's words plus zeros
  barrier = 9,  // no values
};

enum class CallStatus : uint8_t { pending, done, non_finite, failed };

struct Call {
  static constexpr size_t kIndicesKept = 16;

  uint64_t sequence = 0;  // among this communicator's calls, from 0
  CallKind kind = CallKind::barrier;
  uint8_t* memory = nullptr;
  uint64_t size = 0;         // elements; bytes for CallKind::bytes
  bool contributes = true;   // false: zeros, whatever the memory holds
  uint32_t fingerprint = 0;  // of sequence, operation, dtype, size and root
  uint64_t first_position = 0;
  uint64_t chunks = 0;
  uint64_t chunks_left = 0;
  CallStatus status = CallStatus::pending;
  channel::CallTimes times;
  uint64_t non_finite_count = 0;
  std::vector<uint64_t> non_finite_indices;  // the lowest ones, at most kIndicesKept

  bool is_float() const { return kind <= CallKind::bfloat16_average; }
  bool is_average() const {
    return kind == CallKind::float32_average || kind == CallKind::float16_average || kind == CallKind::bfloat16_average;
  }
  bool has_values() const { return size > 0; }
};

// How the memory of a call has to be aligned: the size of an element.
inline size_t alignment_of(CallKind kind) {
  switch (kind) {
    case CallKind::float32_sum:
    case CallKind::float32_average:
    case CallKind::int32_sum:
      return sizeof(uint32_t);
    case CallKind::float16_sum:
    case CallKind::float16_average:
    case CallKind::bfloat16_sum:
    case CallKind::bfloat16_average:
      return sizeof(uint16_t);
    case CallKind::bytes:
    case CallKind::barrier:
      return 1;
  }
  return 1;
}

// Calls act(values) with a pointer to value `first` of a call that is_float(), which has the values' type.
template <typename Act>
auto with_floats(const Call& call, uint64_t first, Act&& act) {
  switch (call.kind) {
    case CallKind::float16_sum:
    case CallKind::float16_average:
      return act(reinterpret_cast<kernels::Float16*>(call.memory) + first);
    case CallKind::bfloat16_sum:
    case CallKind::bfloat16_average:
      return act(reinterpret_cast<kernels::BFloat16*>(call.memory) + first);
    default:
      return act(reinterpret_cast<float*>(call.memory) + first);
  }
}

}  // namespace switchml::client
