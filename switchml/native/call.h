// One collective call of this rank, from submit() until its outcome is fetched.
#pragma once

#include <cstdint>
#include <memory>

#include "native/channel/call_log.h"
#include "switchml/native/codecs/codec.h"
#include "switchml/native/sparse_history.h"

namespace switchml::client {

enum class CallStatus : uint8_t { pending, done, non_finite, failed };

struct Call {
  uint64_t sequence = 0;         // among this communicator's calls, from 0
  std::unique_ptr<Codec> codec;  // converts its values
  // If the stream is to choose the form of the call: the codec that makes it sparse, and then the choice.
  std::unique_ptr<Codec> sparse_codec;
  std::shared_ptr<Trial> trial;
  uint32_t fingerprint = 0;  // a hash of sequence, operation, dtype, size, root and lanes
  uint64_t first_position = 0;
  uint64_t positions_left = 0;
  uint64_t wire_bytes = 0;  // of the values that its contributions have had so far
  CallStatus status = CallStatus::pending;
  channel::CallTimes times;
};

}  // namespace switchml::client
