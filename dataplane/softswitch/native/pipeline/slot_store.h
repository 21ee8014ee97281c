// The interface to the slots of a pipeline. The implementations differ in where values are kept and when they are added
// up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "dataplane/softswitch/native/pipeline/slot_memory.h"
#include "dataplane/softswitch/native/pipeline/slot_values.h"
#include "native/wire/wire.h"

namespace switchml::soft {

struct SharedValues;

// The values of one contribution, or where they would be if it had any. One of the pointers is set.
struct Values {
  const uint8_t* words = nullptr;        // big-endian; valid only during the call
  const SharedValues* shared = nullptr;  // in memory that the rank shares with the switch, if the store supports it
};

// The data needed to send the result of a phase once its sum is made.
struct Completion {
  wire::Header answer;
  uint16_t group = 0;
};

class SlotStore {
 public:
  virtual ~SlotStore() = default;
  SlotStore(const SlotStore&) = delete;
  SlotStore& operator=(const SlotStore&) = delete;

  size_t halves() const { return memory_.halves(); }
  size_t values_per_packet() const { return memory_.values_per_packet(); }
  HalfState& state(size_t half) { return memory_.state(half); }
  const HalfState& state(size_t half) const { return memory_.state(half); }
  // Returns the values of a result: big-endian words in the slot's memory.
  const uint8_t* values(size_t half) const { return memory_.values(half); }

  // Begins a phase without values. Its values, of all ranks, are added up as integers or as floats.
  void begin(size_t half, wire::Format format) {
    state(half).format = format;
    begin_values(half);
  }
  // Adds the values of one contribution. The first ones of a phase, from any rank, overwrite the old values.
  virtual void add(size_t half, const Values& values) = 0;
  // Handles a contribution without values. Its rank may get the sum where its values would have been.
  virtual void lend(size_t half, const Values& values) = 0;
  // Called when all ranks of a job, `everyone`, have contributed; `last` are the values of the last contribution.
  // Returns true if the result can be sent now, with the sum in the slot's memory if the phase has values. Otherwise a
  // thread makes the sum later, for the ranks that read it, and then calls Pipeline::send_completed with `completion`.
  virtual bool complete(size_t half, const Values& last, const Completion& completion, uint64_t everyone) = 0;
  // Called before the result of a phase is sent to one rank that asks for it again, and `reads` its values or does not.
  virtual void resend(size_t half, uint64_t rank_bit, bool reads) = 0;
  // Makes the slot's memory hold the sum of the values that have come so far.
  void settle(size_t half) {
    gather(half);
    round(half);
  }
  // Returns one value of the sum of the contributions that have come so far.
  virtual uint32_t word(size_t half, size_t lane) const = 0;

  // A register by its name in the P4 program: slot_epoch, slot_phase, slot_bitmap, slot_filled, slot_exponent,
  // slot_check, slot_next, slot_owner, lane_0 and up. Both functions throw std::out_of_range for an unknown name and
  // std::invalid_argument for a bad index or value.
  uint64_t read_register(const std::string& name, size_t index) const;
  void write_register(const std::string& name, size_t index, uint64_t value);

 protected:
  // Throws what SlotMemory throws.
  SlotStore(size_t slots, size_t values) : memory_(slots, values) {}

  virtual void begin_values(size_t half) = 0;
  // Adds up in the slot's memory the values that have come so far. Sums of floats need not be rounded.
  virtual void gather(size_t half) = 0;

  void apply(size_t half, SlotEvent event) {
    HalfState& state = memory_.state(half);
    state.values = after(state.values, event);
  }
  // Adds words to the slot's memory, or overwrites it if it is not part of the sum yet. The caller must apply the
  // event.
  void merge(size_t half, const uint8_t* words);
  // Makes the slot's memory hold these words as the sum.
  void store_sum(size_t half, const uint8_t* words);
  // Writes the sums of floats that the slot's memory holds as words, once.
  void round(size_t half);
  // Makes further floats be added to a sum that was rounded: to what it was rounded to.
  void resume(size_t half);
  // Returns the sum of floats that the slot's memory holds for one lane.
  kernels::FloatSum float_sum(size_t half, size_t lane) const;
  SlotMemory& memory() { return memory_; }
  const SlotMemory& memory() const { return memory_; }

 private:
  void check_index(const std::string& name, size_t index) const;
  size_t lane_at(const std::string& name) const;

  SlotMemory memory_;
};

// Slots whose values come in packets only.
class PacketSlotStore final : public SlotStore {
 public:
  // Throws what SlotMemory throws.
  PacketSlotStore(size_t slots, size_t values) : SlotStore(slots, values) {}

  void add(size_t half, const Values& values) override {
    merge(half, values.words);
    apply(half, SlotEvent::add_words);
  }
  void lend(size_t /*half*/, const Values& /*values*/) override {}
  bool complete(size_t half, const Values& /*last*/, const Completion& /*completion*/, uint64_t /*everyone*/) override {
    round(half);
    return true;
  }
  void resend(size_t half, uint64_t /*rank_bit*/, bool /*reads*/) override { round(half); }
  uint32_t word(size_t half, size_t lane) const override;

 private:
  void begin_values(size_t half) override { apply(half, SlotEvent::begin); }
  void gather(size_t /*half*/) override {}
};

}  // namespace switchml::soft
