// One collective call of this rank, from submit() until its outcome was fetched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/native/call_log.h"

namespace switchml {

enum class CallKind : uint8_t {
  float32_sum = 1,
  float32_average = 2,
  int32_sum = 3,
  bytes = 4,    // broadcast: the root's words plus zeros
  barrier = 5,  // no values
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
  CallTimes times;
  uint64_t non_finite_count = 0;
  std::vector<uint64_t> non_finite_indices;  // the lowest ones, at most kIndicesKept

  bool is_float() const { return kind == CallKind::float32_sum || kind == CallKind::float32_average; }
  bool has_values() const { return size > 0; }
};

}  // namespace switchml
