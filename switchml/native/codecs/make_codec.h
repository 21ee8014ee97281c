// The kinds of calls and their codecs.
#pragma once

#include <cstdint>
#include <memory>

#include "switchml/native/codecs/codec.h"
#include "switchml/native/codecs/lanes.h"

namespace switchml::client {

enum class CallKind : uint8_t {
  float32_sum = 1,
  float32_average = 2,
  float16_sum = 3,
  float16_average = 4,
  bfloat16_sum = 5,
  bfloat16_average = 6,
  int32_sum = 7,
  bytes = 8,    // of one rank in each chunk: a broadcast, or an all-gather
  barrier = 9,  // no values
  int16_sum = 10,
  int8_sum = 11,
  uint8_sum = 12,
  bool_sum = 13,  // true if any is
  int64_sum = 14,
  float64_sum = 15,
  float64_average = 16,
};
constexpr CallKind kLastCallKind = CallKind::float64_average;

// Returns the bytes of an element, to which the memory of a call must be aligned.
uint32_t element_bytes(CallKind kind);

// Throws std::invalid_argument if no array of `elements` elements of the kind can be at this address.
void require_memory(const uint8_t* memory, uint64_t elements, CallKind kind);

// The form of an all-reduce. Large `sparse` ones are dense if a sample of their blocks shows that too many have
// values (sample.h). `automatic` is chosen by the results of earlier calls (sparse_history.h), if a sparse call has the
// same bits as a dense one; its codec is that of a sparse call without a sample.
enum class Form : uint8_t { dense, sparse, automatic };

// A call as its rank describes it; `call_hash` is of what all ranks must have described alike. A rank that does not
// `contributes` to a call of bytes adds nothing to them.
struct CallDescription {
  CallKind kind = CallKind::barrier;
  Arrays arrays;
  Lanes lanes;
  Form form = Form::dense;
  bool contributes = true;
  uint32_t call_hash = 0;
};

// Returns the codec for a call of the kind. If the kind is bytes and they have one part, a rank that does not
// `contributes` adds nothing to them. `lanes` are for sums and averages; the sums of integers must fit them. A sparse
// call has the same result; in large packets (agreed.h), floats may differ from it in their last bits. It is sparse if
// its ranks may send no values, its elements are not of 64 bits and are replaced by their sums, and its blocks can be
// named. Throws std::invalid_argument if the kind cannot have parts like those of `arrays`, or no such lanes.
std::unique_ptr<Codec> make_codec(CallKind kind, const Arrays& arrays, bool contributes, const Geometry& geometry,
                                  const Lanes& lanes = {}, Form form = Form::dense);

// Returns whether the magnitude of every one of `elements` integers at `memory` is at most `bound`. Throws
// std::invalid_argument if the kind is not a sum of integers.
bool all_within(CallKind kind, const uint8_t* memory, uint64_t elements, int32_t bound);

}  // namespace switchml::client
