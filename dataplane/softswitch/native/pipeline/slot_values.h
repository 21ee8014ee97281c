// Where the values of a slot half are, and what may become of them.
#pragma once

#include <cstdint>

namespace switchml::soft {

// Values that come in packets are added up in the slot's memory at once. Values that ranks share with the switch lie in
// the ranks' buffers until all have come, and are then replaced there by their sum.
enum class SlotValues : uint8_t {
  none,          // no rank has brought values to the phase
  in_memory,     // the slot's memory holds the sum of all that have come
  in_buffers,    // all that have come lie in ranks' buffers
  in_both,       // some are added up in the slot's memory, the others lie in ranks' buffers
  summing,       // all have come, and are being added up in ranks' buffers
  summing_both,  // all have come, and are being added up in ranks' buffers and in the slot's memory
  in_results,    // the ranks' buffers hold the sum, the slot's memory does not
};
constexpr uint8_t kSlotValues = 7;

enum class SlotEvent : uint8_t {
  begin,       // a phase begins, and what is left of the one before no longer counts
  add_words,   // values are added to the slot's memory
  add_buffer,  // the buffer of one more rank holds values
  hand_over,   // a thread is given the sum to make
  finish,      // the sum is made
  take_some,   // the values of some buffers are added to the slot's memory, and others are left
  take_last,   // the same, and no buffer is left
  copy_sum,    // the sum is copied from a rank's buffer to the slot's memory
  reopen,      // values come for a sum that is being made, which no longer counts
  forget,      // the ranks whose buffers hold the sum have gone, or all of the job
};
constexpr uint8_t kSlotEvents = 10;

struct SlotTransition {
  SlotValues from;
  SlotEvent event;
  SlotValues to;
};

// All that is legal. In the slot's memory the first values of a phase overwrite those of the phase before.
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
    {SlotValues::in_both, SlotEvent::hand_over, SlotValues::summing_both},
    {SlotValues::summing, SlotEvent::finish, SlotValues::in_results},
    {SlotValues::summing_both, SlotEvent::finish, SlotValues::in_memory},

    // A rank leaves, or somebody needs the values in one place. Of a sum that is made but not finished, the slot's
    // memory gets a copy with the last buffer.
    {SlotValues::in_buffers, SlotEvent::take_some, SlotValues::in_both},
    {SlotValues::in_both, SlotEvent::take_some, SlotValues::in_both},
    {SlotValues::summing, SlotEvent::take_some, SlotValues::summing},
    {SlotValues::summing_both, SlotEvent::take_some, SlotValues::summing_both},
    {SlotValues::in_buffers, SlotEvent::take_last, SlotValues::in_memory},
    {SlotValues::in_both, SlotEvent::take_last, SlotValues::in_memory},
    {SlotValues::summing, SlotEvent::take_last, SlotValues::summing_both},
    {SlotValues::summing_both, SlotEvent::take_last, SlotValues::summing_both},
    {SlotValues::in_results, SlotEvent::copy_sum, SlotValues::in_memory},

    {SlotValues::summing, SlotEvent::reopen, SlotValues::in_buffers},
    {SlotValues::summing_both, SlotEvent::reopen, SlotValues::in_both},

    {SlotValues::in_memory, SlotEvent::forget, SlotValues::in_memory},
    {SlotValues::summing_both, SlotEvent::forget, SlotValues::in_memory},
    {SlotValues::in_results, SlotEvent::forget, SlotValues::in_memory},
};

constexpr bool is_summing(SlotValues values) {
  return values == SlotValues::summing || values == SlotValues::summing_both;
}

// Returns whether the slot's memory takes part in the sum.
constexpr bool uses_memory(SlotValues values) {
  return values == SlotValues::in_memory || values == SlotValues::in_both || values == SlotValues::summing_both;
}

bool is_legal(SlotValues from, SlotEvent event);
// Returns the state after `event`. Ends the process if that is not legal: a wrong sum would be worse.
SlotValues after(SlotValues from, SlotEvent event);

}  // namespace switchml::soft
