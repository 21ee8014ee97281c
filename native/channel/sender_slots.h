// The state of a rank's slots at the server that sends its contributions: the agent for a rank over UDP or a device,
// the soft switch for a rank that shares its memory. Neither believes what the process writes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "native/channel/channel.h"
#include "native/wire/epoch_limit.h"
#include "native/wire/wire.h"

namespace switchml::channel {

// Stream positions wrap around; those of one pool are close together.
inline bool is_before(uint32_t position, uint32_t other) { return !has_reached(position, other); }
inline uint32_t earlier(uint32_t position, uint32_t other) { return is_before(position, other) ? position : other; }
inline uint32_t later(uint32_t position, uint32_t other) { return is_before(position, other) ? other : position; }

// Stands in a header for every format that the header's eight bits cannot hold. No switch knows it, so each drops such
// contributions as bad_format, as it does those in any other format that it does not know.
constexpr uint8_t kNoFormat = UINT8_MAX;

// The fields of a rank's headers that its process cannot choose.
struct Sender {
  uint16_t job = 0;
  uint8_t worker = 0;
  uint16_t epoch = 0;
  uint32_t secret = 0;
  uint16_t slot_base = 0;  // first pool index
  uint32_t slots = 0;      // a power of two
  uint32_t slot_uses = wire::kSlotUses;
  wire::OwnerNumbers owners = wire::unchanged_owners();
};

// Slots are numbered from 0 here, within the rank's pool. One thread at a time uses it.
class SenderSlots {
 public:
  // with_process -submit()-> queued -send_next()-> in_flight -complete()-> with_process, in the next phase.
  enum class State : uint8_t { with_process, queued, in_flight };

  explicit SenderSlots(const Sender& sender);

  uint32_t size() const { return sender_.slots; }
  State state(uint32_t slot) const { return slots_[slot].state; }
  // The state of a position's slot; with_process when another position has it.
  State state_of(uint32_t position) const {
    const Slot& slot = slots_[position % sender_.slots];
    return slot.ticket.position == position ? slot.state : State::with_process;
  }
  // The ticket of the contribution that is queued or in flight.
  const Ticket& ticket(uint32_t slot) const { return slots_[slot].ticket; }
  uint32_t in_flight() const { return in_flight_; }
  // One past the highest position that was submitted.
  uint32_t stream_end() const { return stream_end_; }
  // Phases of the slot that was used most.
  uint32_t uses() const { return uses_; }

  // Queues what the process has submitted. `ticket` is a copy that the process cannot change. Returns false, and
  // changes nothing, for what no process of this release submits: a slot outside of the pool, one that the process does
  // not have, one whose phases are used up, or a position that is not in the order of the stream.
  bool submit(uint32_t slot, const Ticket& ticket);
  // The lowest position that is queued or in flight; stream_end() if all are with the process.
  uint32_t first();
  // Takes the lowest queued contribution whose position is less than `window` beyond first(), to be sent for the first
  // time. Returns its slot, or nothing if the window allows nothing.
  //
  // The window is a range of the stream that begins with the lowest position that the rank waits for. Counting packets
  // instead would not work: a slot's second phase comes after later positions, in a different order on each rank. Two
  // ranks whose windows are full of positions that the other one has not sent yet would wait for each other forever
  // (model/window.pml). With the range, the lowest unfinished position of all ranks is in every window, whatever the
  // windows' sizes.
  std::optional<uint32_t> send_next(uint32_t window);
  // Returns whether send_next() would find one.
  bool may_send(uint32_t window) { return find_queued(window); }
  // Contributions that are not sent yet.
  uint32_t queued() const { return queued_; }
  // The header of the contribution that is queued or in flight.
  wire::Header header(uint32_t slot) const;
  // Returns whether a result of this phase is one that the rank waits for, and may take.
  bool awaits(uint32_t slot, uint32_t phase) const { return slots_[slot].phase == phase && may_complete(slot); }
  // Takes an awaited result, and returns its ticket for the process.
  Ticket complete(uint32_t slot, const wire::Header& result);

  // A change of epoch (docs/understand/correctness.md). After freeze() no result is taken; fetch() then lets results of
  // each slot be taken until the given number of its phases is held. Returns whether the targets are new, so that what
  // is in flight must be sent again. Throws std::invalid_argument without a freeze(), or for targets that are not one
  // for each slot.
  void freeze() { limits_ = held(); }
  bool fetch(const std::vector<uint32_t>& targets);
  bool frozen() const { return !limits_.empty(); }
  // Returns whether a slot is in flight and its result may be taken.
  bool may_complete(uint32_t slot) const {
    return slots_[slot].state == State::in_flight && (!frozen() || slots_[slot].phase < limits_[slot]);
  }
  // Phases held of each slot.
  std::vector<uint32_t> held() const;

 private:
  struct Slot {
    uint32_t phase = 0;
    State state = State::with_process;
    Ticket ticket{};  // of the last submission; at first its position is the first that the slot can have
  };

  bool in_stream_order(uint32_t slot, uint32_t position) const;
  // Advances next_ to the lowest queued position. Returns false if it is beyond the window.
  bool find_queued(uint32_t window);

  Sender sender_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> limits_;  // once frozen: of each slot, the first phase whose result is not taken
  uint32_t stream_end_ = 0;
  uint32_t first_ = 0;  // no position below is queued or in flight
  uint32_t next_ = 0;   // no position below is queued
  uint32_t queued_ = 0;
  uint32_t in_flight_ = 0;
  uint32_t uses_ = 0;
};

}  // namespace switchml::channel
