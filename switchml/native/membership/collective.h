// One collective call, as all ranks of a job must make it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "switchml/native/codecs/make_codec.h"
#include "switchml/native/membership/json.h"
#include "switchml/native/membership/memory_in_flight.h"
#include "switchml/native/membership/wire_choice.h"

namespace switchml::client {

enum class Operation : uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, barrier };

// A call as a program asks for it.
struct CollectiveRequest {
  Operation operation = Operation::barrier;
  std::string op;     // of a sum: "sum" or "avg"; of an all_gather, its purpose, if it must be the same on all ranks
  std::string dtype;  // the name of the elements' type, such as "float32"; empty for a barrier
  uint32_t element_bytes = 0;
  uint64_t elements = 0;           // of all parts
  uint32_t root = 0;               // of a broadcast
  std::optional<WireChoice> wire;  // of a sum
  Form form = Form::dense;         // of an all_reduce
};

// A request that was found to be possible in a job. Immutable, so that a program can make the same call again with it.
class Collective {
 public:
  // `formats` are those that the job's switches take: bit f for format f. Throws std::invalid_argument for a request
  // that cannot be made, and FailureError if the type of the elements has no such sum.
  Collective(CollectiveRequest request, uint32_t world_size, uint32_t formats);

  // Returns the same call in another world, or null if it is the one that this call was made for. Throws like the
  // constructor.
  std::shared_ptr<const Collective> in(uint32_t world_size, uint32_t formats) const;
  // Returns what the native code must know about the call at a rank.
  CallDescription at(uint32_t rank, const uint8_t* input, uint8_t* output) const;
  // Throws std::invalid_argument if a value is beyond the bound of the wire.
  void require_values(const uint8_t* input) const;

  // The memory of the call that gets the result, and the memory that is only read, or that has the result's in it.
  MemoryRange written(const uint8_t* output) const;
  MemoryRange read(const uint8_t* input, const uint8_t* output) const;

  // The name of the operation, such as "all_reduce".
  const char* operation() const;
  // Returns the call in words, with its number among those of its rank.
  std::string in_words(uint64_t sequence) const;
  // Returns the call in the form of messages to the agent.
  JsonObject to_message(uint64_t sequence) const;

 private:
  bool is_sum() const;
  std::string how() const;  // the wire of a sum, and which blocks are not sent
  uint64_t bytes() const { return request_.elements * request_.element_bytes; }

  CollectiveRequest request_;
  uint32_t world_size_;
  uint32_t formats_;
  CallKind kind_ = CallKind::barrier;
  std::string wire_text_;
  uint32_t fingerprint_ = 0;
};

using CollectivePointer = std::shared_ptr<const Collective>;

}  // namespace switchml::client
