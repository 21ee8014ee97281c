// The state machine of a slot half: where its values are, and the events that move them.
#pragma once

#include <cstdint>

namespace switchml::soft {

// Values that come in packets are added up in the slot's memory at once. Values that ranks share with the switch stay
// in the ranks' buffers until all have come; then their sum replaces them there. Ranks that share memory but bring no
// values get the sum in their buffers, too.
enum class SlotValues : uint8_t {
  none,          // no rank has brought values to the phase
  in_memory,     // the slot's memory holds the sum of all that have come
  in_buffers,    // all that have come are in ranks' buffers
  in_both,       // some are added up in the slot's memory, the others are in ranks' buffers
  summing,       // all have come, and are being added up in ranks' buffers
  summing_both,  // all have come, and are being added up in ranks' buffers and in the slot's memory
  in_results,    // the ranks' buffers hold the sum, the slot's memory does not
};
constexpr uint8_t kSlotValues = 7;

enum class SlotEvent : uint8_t {
  begin,           // a phase begins, and the values of the previous phase no longer count
  add_words,       // values are added to the slot's memory
  add_buffer,      // the buffer of one more rank holds values
  hand_over,       // the sum is queued for a thread that makes it in ranks' buffers
  hand_over_both,  // as hand_over, and the thread makes it in the slot's memory as well
  finish,          // the sum is made
  take_some,       // the values of some buffers are added to the slot's memory, and others are left
  take_last,       // as take_some, and no buffer is left
  copy_sum,        // the sum is copied from a rank's buffer to the slot's memory
  reopen,          // values arrive while a sum is being made without them, and what came before is lost
  forget,          // the ranks whose buffers hold the sum have left, or the whole job has ended
};
constexpr uint8_t kSlotEvents = 11;

struct SlotTransition {
  SlotValues from;
  SlotEvent event;
  SlotValues to;
};

// All legal transitions. In the slot's memory the first values of a phase overwrite those of the previous phase.
constexpr SlotTransition kSlotTransitions[] = {
    {SlotValues::none, SlotEvent::begin, SlotValues::none},
    {SlotValues::in_memory, SlotEvent::begin, SlotValues::none},
    {SlotValues::in_buffers, SlotEvent::begin, SlotValues::none},
    {SlotValues::in_both, SlotEvent::begin, SlotValues::none},
    {SlotValues::summing, SlotEvent::begin, SlotValues::none},
    {SlotValues::summing_both, SlotEvent::begin, SlotValues::none},
    {SlotValues::in_results, SlotEvent::begin, SlotValues::none},

    {SlotValues::none, SlotEvent::add_words, SlotValues::in_memory},
    {SlotValues::in_memory, SlotEvent::add_words, SlotValues::in_memory},
    {SlotValues::in_buffers, SlotEvent::add_words, SlotValues::in_both},
    {SlotValues::in_both, SlotEvent::add_words, SlotValues::in_both},

    {SlotValues::none, SlotEvent::add_buffer, SlotValues::in_buffers},
    {SlotValues::in_memory, SlotEvent::add_buffer, SlotValues::in_both},
    {SlotValues::in_buffers, SlotEvent::add_buffer, SlotValues::in_buffers},
    {SlotValues::in_both, SlotEvent::add_buffer, SlotValues::in_both},

    {SlotValues::in_buffers, SlotEvent::hand_over, SlotValues::summing},
    {SlotValues::in_memory, SlotEvent::hand_over_both, SlotValues::summing_both},
    {SlotValues::in_buffers, SlotEvent::hand_over_both, SlotValues::summing_both},
    {SlotValues::in_both, SlotEvent::hand_over_both, SlotValues::summing_both},
    {SlotValues::summing, SlotEvent::finish, SlotValues::in_results},
    {SlotValues::summing_both, SlotEvent::finish, SlotValues::in_memory},

    // Ranks leave, or the values are needed in one place. If the sum is made but not finished yet, it is copied to the
    // slot's memory from the last buffer.
    {SlotValues::in_buffers, SlotEvent::take_some, SlotValues::in_both},
    {SlotValues::in_both, SlotEvent::take_some, SlotValues::in_both},
    {SlotValues::in_buffers, SlotEvent::take_last, SlotValues::in_memory},
    {SlotValues::in_both, SlotEvent::take_last, SlotValues::in_memory},
    {SlotValues::summing, SlotEvent::copy_sum, SlotValues::summing_both},
    {SlotValues::in_results, SlotEvent::copy_sum, SlotValues::in_memory},

    {SlotValues::summing, SlotEvent::reopen, SlotValues::none},
    {SlotValues::summing_both, SlotEvent::reopen, SlotValues::none},

    {SlotValues::none, SlotEvent::forget, SlotValues::none},
    {SlotValues::in_memory, SlotEvent::forget, SlotValues::in_memory},
    {SlotValues::summing_both, SlotEvent::forget, SlotValues::in_memory},
    {SlotValues::in_results, SlotEvent::forget, SlotValues::in_memory},
};

constexpr bool is_summing(SlotValues values) {
  return values == SlotValues::summing || values == SlotValues::summing_both;
}

// Returns whether the slot's memory holds values of the phase, or will hold their sum.
constexpr bool uses_memory(SlotValues values) {
  return values == SlotValues::in_memory || values == SlotValues::in_both || values == SlotValues::summing_both;
}

bool is_legal(SlotValues from, SlotEvent event);
// Returns the state after `event`. Ends the process if the transition is illegal, which is better than a wrong sum.
SlotValues after(SlotValues from, SlotEvent event);

}  // namespace switchml::soft
