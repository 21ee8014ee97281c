// The registers of the switch: state and values of both halves of every slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/softswitch/native/pipeline/slot_values.h"
#include "native/kernels/floats.h"
#include "native/wire/constants.h"

namespace switchml::soft {

// The registers of a half except its values.
struct HalfState {
  uint64_t bitmap = 0;
  uint32_t phase = 0;
  uint32_t check = 0;
  uint32_t next = 0;  // the smallest chunk that the ranks of the phase have named
  uint16_t epoch = 0;
  uint16_t exponent = 0;
  uint8_t owner = wire::owner::everyone;      // that the last contribution of the phase has named
  wire::Format format = wire::Format::int32;  // of the phase's sums
  bool rounded = false;       // floats: `values` of the slot's memory are the sum that its `floats` hold
  uint32_t result_burst = 0;  // the burst of results that may still point at the values; see ResultSender
  SlotValues values = SlotValues::none;

  // Returns whether any rank has brought values to the phase.
  bool filled() const { return values != SlotValues::none; }
};

// `slots` pool indexes of two halves with `values` values each. Values are kept in network byte order, so that a
// result is sent from here without a copy. Sums of floats are kept apart until they are rounded. The memory is zero at
// first, and the system allocates a page at its first use.
class SlotMemory {
 public:
  // Throws std::invalid_argument for sizes out of range and std::system_error if there is not enough memory.
  SlotMemory(size_t slots, size_t values);
  ~SlotMemory();
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;

  size_t halves() const { return states_.size(); }
  size_t values_per_packet() const { return values_; }
  HalfState& state(size_t half) { return states_[half]; }
  const HalfState& state(size_t half) const { return states_[half]; }
  // Big-endian words; starts at a multiple of 64 bytes.
  uint8_t* values(size_t half) { return memory_ + half * stride_; }
  const uint8_t* values(size_t half) const { return memory_ + half * stride_; }
  kernels::FloatSums floats(size_t half) const {
    const size_t first = (halves() + half * kernels::FloatSums::kArrays) * stride_;
    return {reinterpret_cast<uint32_t*>(memory_ + first), stride_ / sizeof(uint32_t)};
  }

 private:
  size_t bytes() const { return halves() * (1 + kernels::FloatSums::kArrays) * stride_; }

  size_t values_;
  size_t stride_;  // bytes from half to half
  std::vector<HalfState> states_;
  uint8_t* memory_ = nullptr;
};

}  // namespace switchml::soft
