// The registers of the switch: state and values of both halves of every slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace switchml::soft {

class ShmJob;

// All of a half but its values.
struct HalfState {
  uint64_t bitmap = 0;
  uint32_t phase = 0;
  uint32_t check = 0;
  uint16_t epoch = 0;
  uint16_t exponent = 0;
  uint32_t result_burst = 0;  // the burst of results that may still point at the values; see ResultSender
  bool filled = false;        // some rank has brought values to the phase
  // Where the values are; see SlotSums.
  bool has_sum = true;     // some or all are added up in the slot's memory
  bool is_apart = false;   // the complete sum is in ranks' memory only
  bool completes = false;  // all values have come, and the sum is being made
  uint64_t in_place = 0;   // ranks whose values are still where they wrote them
  uint64_t sum_id = 0;     // changes with whatever a sum that is being made does not know of
  ShmJob* job = nullptr;   // whose ranks and results these are
};

// `slots` pool indexes of two halves with `values` values each. Values are kept in network byte order, so that a
// result leaves the switch straight from here. Memory is zero at first and taken from the system at first touch.
class SlotMemory {
 public:
  // Throws std::invalid_argument for impossible sizes and std::system_error when there is no memory.
  SlotMemory(size_t slots, size_t values);
  ~SlotMemory();
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;

  size_t halves() const { return states_.size(); }
  size_t values_per_packet() const { return values_; }
  HalfState& state(size_t half) { return states_[half]; }
  // Big-endian words; starts at a multiple of 64 bytes.
  uint8_t* values(size_t half) { return memory_ + half * stride_; }
  const uint8_t* values(size_t half) const { return memory_ + half * stride_; }

  // A register by the name it has in the P4 program: slot_epoch, slot_phase, slot_bitmap, slot_filled,
  // slot_exponent, slot_check, lane_0 and up. Throw std::out_of_range for an unknown name and std::invalid_argument for
  // a bad index or value. Where ranks share memory with the switch, a lane's value may be elsewhere
  // (Pipeline::read_register).
  uint64_t read_register(const std::string& name, size_t index);
  void write_register(const std::string& name, size_t index, uint64_t value);
  // The number of the lane that a register holds, or that of the values in a packet.
  size_t lane(const std::string& name) const;

 private:
  struct Register;
  Register find_register(const std::string& name, size_t index);

  size_t values_;
  size_t stride_;  // bytes from half to half
  std::vector<HalfState> states_;
  uint8_t* memory_ = nullptr;
};

}  // namespace switchml::soft
