#include "native/channel/sender_slots.h"

#include <algorithm>
#include <stdexcept>

namespace switchml::channel {

SenderSlots::SenderSlots(const Sender& sender) : sender_(sender), slots_(sender.slots) {
  for (uint32_t slot = 0; slot < sender.slots; ++slot) {
    slots_[slot].ticket.position = slot;
  }
}

// A slot serves one position in one or several phases, then the position one pool further on. No position is more than
// a pool behind the furthest: its slot would not have been free for that one.
bool SenderSlots::in_stream_order(uint32_t slot, uint32_t position) const {
  const uint32_t before = slots_[slot].ticket.position;
  return (position == before || position == before + sender_.slots) &&
         has_reached(position, stream_end_ - sender_.slots);
}

bool SenderSlots::submit(uint32_t slot, const Ticket& ticket) {
  if (slot >= sender_.slots || slots_[slot].state != State::with_process || slots_[slot].phase >= sender_.slot_uses ||
      !in_stream_order(slot, ticket.position)) {
    return false;
  }
  slots_[slot].ticket = ticket;
  slots_[slot].state = State::queued;
  if (has_reached(ticket.position, stream_end_)) {
    stream_end_ = ticket.position + 1;
  }
  first_ = queued_ + in_flight_ == 0 ? ticket.position : earlier(first_, ticket.position);
  next_ = queued_ == 0 ? ticket.position : earlier(next_, ticket.position);
  queued_ += 1;
  return true;
}

uint32_t SenderSlots::first() {
  while (first_ != stream_end_ && state_of(first_) == State::with_process) ++first_;
  return first_;
}

bool SenderSlots::find_queued(uint32_t window) {
  if (queued_ == 0) return false;
  const uint32_t end = earlier(stream_end_, first() + window);
  next_ = later(next_, first_);
  while (is_before(next_, end) && state_of(next_) != State::queued) ++next_;
  return is_before(next_, end);
}

std::optional<uint32_t> SenderSlots::send_next(uint32_t window) {
  if (!find_queued(window)) return std::nullopt;
  const uint32_t slot = next_++ % sender_.slots;
  slots_[slot].state = State::in_flight;
  queued_ -= 1;
  in_flight_ += 1;
  return slot;
}

wire::Header SenderSlots::header(uint32_t slot) const {
  const Ticket& ticket = slots_[slot].ticket;
  const uint32_t phase = slots_[slot].phase;
  wire::Header header;
  header.kind = static_cast<uint8_t>(wire::Kind::contribution);
  header.job = sender_.job;
  header.worker = sender_.worker;
  header.format = static_cast<uint8_t>(std::min<uint16_t>(ticket.format, kNoFormat));
  header.exponent = ticket.exponent;
  header.slot = static_cast<uint16_t>((sender_.slot_base + slot) << 1U | (phase & 1U));
  header.count = ticket.count;
  header.epoch = sender_.epoch;
  header.owner = wire::owner_at_switch(sender_.owners, ticket.owner);
  header.flags = static_cast<uint8_t>(ticket.flags & ~wire::flag::retransmission);
  header.phase = phase;
  header.chunk = ticket.chunk;
  header.check = ticket.check;
  header.secret = sender_.secret;
  return header;
}

Ticket SenderSlots::complete(uint32_t slot, const wire::Header& result) {
  slots_[slot].state = State::with_process;
  slots_[slot].phase += 1;
  uses_ = std::max(uses_, slots_[slot].phase);
  in_flight_ -= 1;
  return {slots_[slot].ticket.position,
          result.chunk,
          result.check,
          result.exponent,
          result.count,
          result.format,
          result.owner,
          static_cast<uint8_t>(result.flags & ~wire::flag::retransmission)};
}

bool SenderSlots::fetch(const std::vector<uint32_t>& targets) {
  if (!frozen() || targets.size() != slots_.size()) {
    throw std::invalid_argument("the rank is not frozen, or the targets are not one for each of its slots");
  }
  if (limits_ == targets) return false;
  limits_ = targets;
  return true;
}

std::vector<uint32_t> SenderSlots::held() const {
  std::vector<uint32_t> phases;
  phases.reserve(slots_.size());
  for (const Slot& slot : slots_) phases.push_back(slot.phase);
  return phases;
}

}  // namespace switchml::channel
