#include "dataplane/softswitch/native/pipeline/slot_values.h"

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace switchml::soft {
namespace {

constexpr uint8_t kIllegal = UINT8_MAX;
using Table = std::array<std::array<uint8_t, kSlotEvents>, kSlotValues>;

// Builds the table of the states that follow each state and event.
constexpr Table make_table() {
  Table table{};
  for (auto& row : table) {
    for (uint8_t& next : row) next = kIllegal;
  }
  for (const SlotTransition& each : kSlotTransitions) {
    table[static_cast<size_t>(each.from)][static_cast<size_t>(each.event)] = static_cast<uint8_t>(each.to);
  }
  return table;
}

constexpr Table kTable = make_table();

uint8_t look_up(SlotValues from, SlotEvent event) {
  return kTable[static_cast<size_t>(from)][static_cast<size_t>(event)];
}

}  // namespace

bool is_legal(SlotValues from, SlotEvent event) { return look_up(from, event) != kIllegal; }

SlotValues after(SlotValues from, SlotEvent event) {
  const uint8_t next = look_up(from, event);
  if (next == kIllegal) {
    std::fprintf(stderr, "switchml-switch: event %u is illegal in state %u of a slot half\n",
                 static_cast<unsigned>(event), static_cast<unsigned>(from));
    std::abort();
  }
  return static_cast<SlotValues>(next);
}

}  // namespace switchml::soft
