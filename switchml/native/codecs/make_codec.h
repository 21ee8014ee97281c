// The formats that there are.
#pragma once

#include <cstdint>
#include <memory>

#include "native/channel/channel.h"
#include "switchml/native/codecs/codec.h"

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

// The bytes of an element, which are also how the memory of a call has to be aligned.
uint32_t element_bytes(CallKind kind);

// `elements` of the kind are at `memory`; a rank that does not contribute to a call of kind bytes sends zeros.
std::unique_ptr<Codec> make_codec(CallKind kind, uint8_t* memory, uint64_t elements, bool contributes,
                                  const channel::Geometry& geometry);

}  // namespace switchml::client
