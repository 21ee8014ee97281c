// The number of slot uses after which an epoch must end.
#pragma once

#include <cstdint>

namespace switchml::wire {

// The limit of a slot's phases in one epoch: below it a plain comparison tells which of two phases is later.
constexpr uint32_t kSlotUses = 1U << 31U;

// Returns true once a slot has been used often enough that the epoch must end. The remaining 1/32 of the uses lasts
// until it has ended.
constexpr bool epoch_is_spent(uint64_t uses, uint32_t slot_uses) { return uses >= slot_uses - slot_uses / 32; }

}  // namespace switchml::wire
